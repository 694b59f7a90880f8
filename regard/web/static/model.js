// A text, what a model makes of it, and what it attends to: for translators, language models, and any folder.

import { ask, element, latest } from "./app.js";
import { colour, inflatedBytes, readable, showMaps } from "./maps.js";
import { offer } from "./offer.js";
import { t } from "./words.js";

const LEADS = {
  translate: "Type a sentence: its translation, and which words looked at which.",
  language: "Type a text: what may come next, and what every word looks back at.",
  model: "Type a text: every layer, every head, every token.",
};
const NEXT = 8; // words
const START = {
  translate: "the cat is on the mat",
  language: "Once upon a time",
  model: "The animal didn't cross the street because it was too tired.",
};

export async function textTab(root, page, tab) {
  root.append(element("p", { class: "lead" }, t(LEADS[tab])));
  const offered = await ask("models", {});
  if (!offered) return;
  const models = offered.models.filter(({ kind }) => (tab === "model" ? kind !== "images" : kind === tab));
  if (!models.length) {
    offer(root, tab === "model" ? "language" : tab, () => { root.replaceChildren(); textTab(root, page, tab); });
    return;
  }
  const model = element("select", { id: "model", onchange: () => request(true) }, ...models.map(({ name }) =>
    element("option", { value: name, selected: name === page.values.get("model") }, name)));
  const text = element("textarea", { id: "text", rows: "2", maxlength: "20000", oninput: () => soon() });
  text.value = page.values.get("text") ?? START[tab];
  const result = element("div", { id: "result", "aria-live": "polite" });
  const maps = element("div", { id: "maps" });
  root.append(element("div", { class: "controls" }, element("label", { for: "model" }, t("model"), " "), model),
    element("label", { for: "text" }, t("text")), text, result, maps);

  const show = latest("text", (answer) => {
    result.replaceChildren(...outputs(answer));
    const packs = new Map();
    const source = {
      ...answer,
      weights(layer, head) {
        const name = `${layer}.${head}`;
        if (!packs.has(name)) {
          packs.set(name, ask("weights", { display: answer.display, layer, head }).then((bytes) => inflatedBytes(bytes)));
        }
        return packs.get(name);
      },
    };
    const number = (name, fallback) => (page.values.has(name) ? Number.parseInt(page.values.get(name), 10) || 0 : fallback);
    showMaps(maps, source, {
      state: { layer: number("layer", 0), head: number("head", 0), row: number("row", null) },
      changed: ({ layer, head, row }) => page.set({ layer, head, row }),
      t,
    });
  });

  function request(step = false) {
    if (!text.value.trim()) return;
    page.set({ model: model.value, text: text.value }, { step });
    show({ model: model.value, text: text.value });
  }
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(request, 300);
  };
  request();
}

/** The translation, its alignment, and the next words, where the answer has them. */
function outputs(answer) {
  const parts = [];
  if (answer.translation !== undefined) parts.push(element("p", { class: "translation" }, answer.translation));
  if (answer.alignment) parts.push(aligned(answer.alignment));
  if (answer.next) {
    parts.push(element("table", { class: "next" }, element("caption", {}, t("what may come next")),
      ...answer.next.slice(0, NEXT).map(({ word, probability }) => {
        const bar = element("span", { class: "bar" });
        bar.style.width = `${Math.round(160 * probability)}px`;
        return element("tr", {}, element("td", {}, JSON.stringify(word).slice(1, -1)),
          element("td", {}, `${(100 * probability).toFixed(1)} %`), element("td", {}, bar));
      })));
  }
  return parts;
}

/** Which words looked at which: a row for each word of the translation, its largest weight in bold. */
function aligned({ source, target, weights }) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return element("div", { class: "scrolled" }, element("table", { class: "aligned" },
    element("caption", {}, t("words: who looked at whom, over all layers and heads")),
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
