// What may come next, what each head adds to it, and what changes when a head is cut.

import { latest } from "./app.js";
import { colour, isDark, readable } from "./colours.js";
import { element, set } from "./dom.js";
import { focusCell, roving } from "./grid.js";
import { t } from "./words.js";

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const written = (word) => JSON.stringify(word).slice(1, -1).replace(/^ /, "␣");
const signed = (value) => {
  if (value === null) return "?";
  if (Math.abs(value) < 0.05) return "·";
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(Math.abs(value) < 9.95 ? 1 : 0)}`;
};

/** A slider whose value is in the address: { node, value, reset }. `way` are functions to its scale and back. */
function slider(page, { name, label, start, low, high, step, way: [to, from], show, changed }) {
  const shown = element("output", { for: name });
  const value = () => Number(page.values.get(name) ?? start);
  const keep = (next) => {
    page.set({ [name]: next === start ? null : next });
    shown.textContent = show(next);
    set(input, { "aria-valuetext": shown.textContent });
  };
  const move = () => {
    keep(Number(from(Number(input.value)).toPrecision(2)));
    changed();
  };
  const input = element("input", { type: "range", id: name, min: to(low), max: to(high), step, oninput: move });
  const put = (next) => {
    input.value = to(next);
    keep(next);
  };
  put(value());
  return { node: element("label", { for: name }, label, " ", input, " ", shown), value, reset: () => put(start) };
}

/** The bars and the grid of contributions, for a page's state; `add(word)` puts a word behind the text. */
export function writing(page, { add }) {
  const cut = new Set((page.values.get("cut") ?? "").split(",").filter((name) => /^\d+\.\d+$/.test(name)));
  let answer = null; // to the text
  let token = null; // the id of the one whose heads are shown
  const same = (value) => value;
  const temperature = slider(page, { name: "temperature", label: t("temperature"), start: 1, low: 0.1, high: 5, step: 0.01,
    way: [Math.log, Math.exp], show: String, changed: refresh });
  const top = slider(page, { name: "top_k", label: t("among the top"), start: 0, low: 0, high: 50, step: 1,
    way: [same, same], show: (value) => (value ? String(value) : t("all")), changed: refresh });
  const reset = () => {
    temperature.reset();
    top.reset();
    refresh();
  };
  const bars = element("div", { class: "bars", role: "radiogroup", "aria-label": t("what may come next") });
  const grid = element("div", { class: "contributions", role: "grid", "aria-label": t("what every head adds to the logit") });
  const title = element("h2");
  const status = element("p", { class: "cuts", role: "status" });
  const node = element("div", { class: "writing" },
    element("div", {}, element("h2", {}, t("what may come next")),
      element("div", { class: "controls" }, temperature.node, top.node,
        element("button", { type: "button", onclick: reset }, t("reset"))), bars),
    element("div", {}, title,
      element("p", { class: "note" }, t("A click, or Enter, cuts a head; another one brings it back.")),
      element("div", { class: "scrolled" }, grid), status));

  const next = latest("next", (reply) => {
    drawBars(reply);
    const heads = [...cut].join(", ");
    const restore = element("button", { type: "button", onclick: () => { cut.clear(); changeCut(); } }, t("bring all back"));
    status.replaceChildren(...(cut.size
      ? [t("without {heads}: the answer has changed by {change} nats", { heads, change: reply.change.toFixed(3) }), " ", restore]
      : [t("no head is cut")]));
    node.dataset.drawn = Number(node.dataset.drawn ?? 0) + 1;
  });
  const contributions = latest("contributions", (reply, sent) => { if (sent.token === token) drawGrid(reply); });

  function refresh() {
    if (!answer) return;
    const heads = [...cut].map((name) => name.split(".").map(Number));
    next({ display: answer.display, temperature: temperature.value(), top_k: top.value(), cut: heads });
  }

  function drawBars({ tokens }) {
    const largest = Math.max(...tokens.map(({ before, after }) => Math.max(before, after ?? 0)), 1e-9);
    if (!tokens.some(({ id }) => id === token)) choose(tokens[0]);
    const bar = (name, share) => {
      const part = element("i", { class: name });
      part.style.width = `${(100 * share) / largest}%`;
      return part;
    };
    bars.replaceChildren(...tokens.map((one) => {
      const isCut = one.after !== undefined;
      const word = written(one.word);
      const checked = one.id === token;
      return element("label", { class: isCut ? "changed" : null },
        element("input", { type: "radio", name: "next", value: one.id, checked, onchange: () => choose(one) }),
        element("b", {}, word),
        element("span", { class: "track" }, bar("before", one.before), ...(isCut ? [bar("after", one.after)] : [])),
        element("span", { class: "share" }, isCut ? `${percent(one.before)} → ${percent(one.after)}` : percent(one.before)),
        element("button", { type: "button", title: t("put it behind the text"),
          "aria-label": t("put “{word}” behind the text", { word }), onclick: () => add(one.word) }, "+"));
    }));
  }

  function choose({ id, word }) {
    token = id;
    title.textContent = t("what every head adds to the logit of “{word}”", { word: written(word) });
    contributions({ display: answer.display, token: id });
  }

  function drawGrid({ layers }) {
    const dark = isDark(node);
    const largest = Math.max(...layers.flat().map((value) => Math.abs(value ?? 0)), 1e-9);
    const cellOf = (name, value) => {
      const share = (value ?? 0) / largest;
      const cell = element("div", { role: "gridcell", tabindex: "-1", "data-head": name, onclick: () => toggle(name) }, signed(value));
      cell.style.background = `rgb(${colour(share, dark, "changes")})`;
      cell.style.color = readable(share, dark, "changes");
      return cell;
    };
    const header = (role, text) => element("span", { role, class: text.length > 3 ? "rv-corner" : null }, text);
    const rows = layers.map((values, index) => {
      const { layer, heads } = answer.layers[index];
      return element("div", { role: "row" }, header("rowheader", String(layer)),
        ...values.map((value, head) => cellOf(`${layer}.${heads[head]}`, value)));
    });
    const at = grid.querySelector("[tabindex='0']")?.dataset.head;
    const isFocused = grid.contains(document.activeElement);
    grid.style.setProperty("--columns", Math.max(...layers.map((layer) => layer.length)));
    grid.replaceChildren(element("div", { role: "row" }, header("columnheader", t("layer ↓ head →")),
      ...answer.layers[0].heads.map((head) => header("columnheader", String(head)))), ...rows);
    markCut();
    const cell = grid.querySelector(`[data-head="${at}"]`) ?? grid.querySelector("[role=gridcell]");
    if (cell) focusCell(grid, cell, isFocused);
  }

  function markCut() {
    grid.querySelectorAll("[role=gridcell]").forEach((cell) => {
      const isCut = cut.has(cell.dataset.head);
      const [layer, head] = cell.dataset.head.split(".");
      const label = `${t("layer {layer}, head {head}", { layer, head })}: ${cell.textContent}${isCut ? `, ${t("cut")}` : ""}`;
      set(cell, { "aria-selected": String(isCut), "aria-label": label, title: label });
    });
  }

  function toggle(name) {
    if (!cut.delete(name)) cut.add(name);
    changeCut();
  }
  function changeCut() {
    page.set({ cut: cut.size ? [...cut].join(",") : null });
    markCut();
    refresh();
  }
  roving(grid, (cell, key) => (key === "Escape" ? (cut.clear(), changeCut()) : toggle(cell.dataset.head)));

  return {
    node,
    show(newer) {
      answer = newer;
      token = null;
      refresh();
    },
  };
}
