// A text, what a model makes of it, and what it attends to: for translators, language models, and any model at all.

import { ask, latest } from "./app.js";
import { colour, isDark, readable } from "./colours.js";
import { element, segmented } from "./dom.js";
import { offer } from "./offer.js";
import { makeSource } from "./source.js";
import { showAttention } from "./view.js";
import { t } from "./words.js";
import { writing } from "./writing.js";

const LEADS = {
  heads: "Type a text: every head of a model, what each token looks at, and how a head computes it.",
  translate: "Type a sentence: its translation, and which words looked at which.",
  language: "Type a text: what may come next, what every head adds to it, and what happens without that head.",
  model: "Your models, every layer, head and token; and two of them side by side.",
};
const GIVE = "These models come with regard. To see yours: `regard explore FOLDER`, "
  + "or in Python `regard.explore(model, tokenizer)`.";
const START = {
  heads: "the tired king watches a horse. she laughs in my garden. the tired king watches a",
  translate: "the cat is on the mat",
  language: "the tired king watches a horse. she laughs in my garden. the tired king watches a",
  model: "the cat is on the mat. a dog sees the small bird. the cat is on the",
};
const OTHER_TEXT = "the tired king watches a horse. she laughs in my garden. the happy queen watches a";
const STATE = ["heads", "row", "view", "scale", "sort", "at"];

export async function textTab(root, page, tab) {
  root.append(element("p", { class: "lead" }, t(LEADS[tab])));
  const offered = await ask("models", {});
  if (!offered) return;
  const isText = ({ kind }) => kind !== "images";
  const isOneKind = tab === "translate" || tab === "language";
  const fitting = offered.models.filter((one) => (isOneKind ? one.kind === tab : isText(one)));
  const given = fitting.filter((one) => one.given);
  const models = tab === "model" && given.length ? given : fitting;
  if (tab === "model" && !given.length) root.append(element("p", { class: "note" }, t(GIVE)));
  const first = models.find(({ kind, given: own }) => own || kind !== "translate") ?? models[0];
  const chooser = (id, fallback) => {
    const wanted = page.values.get(id);
    const chosen = models.some(({ name }) => name === wanted) ? wanted : fallback;
    return element("select", { id, onchange: () => request(true) }, ...models.map(({ name, parameters }) =>
      element("option", { value: name, selected: name === chosen }, `${name} (${counted(parameters)})`)));
  };
  const area = (id, label, start) => {
    const node = element("textarea", { id, rows: "2", maxlength: "20000", "aria-label": label, oninput: () => soon() });
    node.value = page.values.get(id) ?? start;
    return node;
  };
  const model = chooser("model", first.name);
  const text = area("text", t("text"), START[tab]);
  const otherModel = chooser("model2", models.at(-1).name);
  const otherText = area("text2", t("the other text"), OTHER_TEXT);
  const modes = [["", t("nothing")], ["text", t("another text")], ["model", t("another model")]];
  const compare = segmented(t("compare with"), modes, (value) => {
    page.set({ compare: value || null });
    arrange();
    request();
  });
  const otherBox = element("div", { class: "controls" });
  const result = element("div", { id: "result", "aria-live": "polite" });
  const view = element("div", { id: "view" });
  const writer = tab === "language" ? writing(page, { add: (word) => { text.value += word; request(); } }) : null;
  const canCompare = tab === "heads" || tab === "model";
  root.append(
    element("div", { class: "controls" }, element("label", { for: "model" }, t("model"), " "), model,
      ...(canCompare ? [element("span", {}, t("compare with")), compare.node] : [])),
    text, otherBox, result, ...(writer ? [writer.node] : []), view);

  const mode = () => (canCompare && ["text", "model"].includes(page.values.get("compare")) ? page.values.get("compare") : "");
  function arrange() {
    compare.set(mode());
    const label = element("label", { for: "model2" }, t("the other model"), " ");
    otherBox.replaceChildren(...{ "": [], text: [otherText], model: [label, otherModel] }[mode()]);
  }

  const sourceOf = (answer) => makeSource(answer, {
    fetchWeights: (layer, head) => ask("weights", { display: answer.display, layer, head }),
    fetchInside: (layer, head, row, key) => ask("inside", { display: answer.display, layer, head, row, key }),
  });
  let other = null;
  const show = latest("text", async (answer, sent) => {
    other = sent.other ? await ask("text", sent.other) : null;
    if (sent.other && !other) return;
    result.replaceChildren(...outputs(answer, root));
    writer?.show(answer);
    const state = Object.fromEntries(STATE.map((name) => [name, page.values.get(name)]));
    const names = mode() === "model" ? [sent.model, sent.other?.model] : [t("first text"), t("second text")];
    const changed = (changes) => page.set(changes);
    showAttention(view, sourceOf(answer), { state, changed, other: other && sourceOf(other), names });
  });

  function request(step = false) {
    if (!text.value.trim()) return;
    const both = { model: model.value, text: text.value };
    const others = { text: { ...both, text: otherText.value }, model: { ...both, model: otherModel.value } }[mode()];
    const [text2, model2] = [mode() === "text" ? otherText.value : null, mode() === "model" ? otherModel.value : null];
    page.set({ ...both, text2, model2 }, { step });
    show({ ...both, other: others?.text.trim() ? others : null });
  }
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(request, 300);
  };
  arrange();
  request();
  const isSmall = models.every(({ name }) => name.startsWith("small "));
  if ((tab === "translate" || tab === "language") && isSmall) offer(root, tab, page.reload);
}

/** 178 k, 135 M */
const counted = (count) => (count < 1e6 ? `${Math.round(count / 1e3)} k` : `${Math.round(count / 1e6)} M`);

/** The translation and its alignment, where the answer has them. */
function outputs(answer, root) {
  const parts = [];
  if (answer.translation !== undefined) parts.push(element("p", { class: "translation" }, answer.translation));
  if (answer.alignment) parts.push(aligned(answer.alignment, isDark(root)));
  return parts;
}

/** Which words looked at which: a row for each word of the translation, its largest weight in bold. */
function aligned({ source, target, weights }, dark) {
  const caption = t("words: who looked at whom, over all layers and heads");
  const box = { class: "scrolled", tabindex: "0", role: "group", "aria-label": caption };
  return element("div", box, element("table", { class: "aligned" },
    element("caption", {}, caption),
    element("tr", {}, element("td"), ...source.map((word) => element("th", { scope: "col" }, word))),
    ...target.map((word, i) => {
      const largest = Math.max(...weights[i]);
      return element("tr", {}, element("th", { scope: "row" }, word), ...weights[i].map((weight) => {
        const cell = element("td", weight === largest ? { class: "largest" } : {}, weight.toFixed(2));
        cell.style.background = `rgb(${colour(weight, dark)})`;
        cell.style.color = readable(weight, dark);
        return cell;
      }));
    })));
}
