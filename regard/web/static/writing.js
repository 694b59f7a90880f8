// What may come next, what each head adds to it, and what changes when a head is cut.

import { ask, latest } from "./app.js";
import { colour, isDark, readable } from "./colours.js";
import { element } from "./dom.js";
import { focusCell, roving } from "./grid.js";
import { t } from "./words.js";

const DEFAULTS = { temperature: 1, top_k: 0 };
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const written = (word) => JSON.stringify(word).slice(1, -1).replace(/^ /, "␣");

/** The bars and the grid of contributions, for a page's state; `add(word)` puts a word behind the text. */
export function writing(page, { add }) {
  const cut = new Set((page.values.get("cut") ?? "").split(",").filter((name) => /^\d+\.\d+$/.test(name)));
  let answer = null; // to the text
  let token = null; // the id of the one whose heads are shown
  const number = (name, label, low, high, step, log) => {
    const start = Number(page.values.get(name) ?? DEFAULTS[name]);
    const [to, from] = log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
    const shown = element("output", { for: name });
    const input = element("input", { type: "range", id: name, min: to(low), max: to(high), step, oninput: () => set(Number(from(Number(input.value)).toPrecision(2))) });
    const set = (value, sends = true) => {
      shown.textContent = name === "top_k" && value === 0 ? t("all") : String(value);
      input.setAttribute("aria-valuetext", shown.textContent);
      page.set({ [name]: value === DEFAULTS[name] ? null : value });
      if (sends) refresh();
    };
    const moved = (value, sends) => {
      input.value = to(value);
      set(value, sends);
    };
    moved(start, false);
    return { node: element("label", { for: name }, label, " ", input, " ", shown), value: () => Number(page.values.get(name) ?? DEFAULTS[name]), set: moved };
  };
  const temperature = number("temperature", t("temperature"), 0.1, 5, 0.01, true);
  const topK = number("top_k", t("among the top"), 0, 50, 1, false);
  const bars = element("div", { class: "bars", role: "radiogroup", "aria-label": t("what may come next") });
  const grid = element("div", { class: "contributions", role: "grid", "aria-label": t("what every head adds to the logit") });
  const title = element("h2");
  const status = element("p", { class: "cuts", role: "status" });
  const node = element("div", { class: "writing" },
    element("div", {}, element("h2", {}, t("what may come next")),
      element("div", { class: "controls" }, temperature.node, topK.node,
        element("button", { type: "button", onclick: () => { temperature.set(1, false); topK.set(0); } }, t("reset"))), bars),
    element("div", {}, title, element("p", { class: "note" }, t("A click, or Enter, cuts a head; another one brings it back.")), element("div", { class: "scrolled" }, grid), status));
  const pairs = () => [...cut].map((name) => name.split(".").map(Number));
  const next = latest("next", (reply) => {
    drawBars(reply);
    status.replaceChildren(...(cut.size ? [t("without {heads}: the answer has changed by {change} nats", { heads: [...cut].join(", "), change: reply.change.toFixed(3) }), " ",
      element("button", { type: "button", onclick: () => { cut.clear(); changeCut(); } }, t("bring all back"))] : [t("no head is cut")]));
    node.dataset.drawn = Number(node.dataset.drawn ?? 0) + 1;
  });
  const contributions = latest("contributions", (reply, sent) => { if (sent.token === token) drawGrid(reply); });

  const refresh = () => answer && next({ display: answer.display, temperature: temperature.value(), top_k: topK.value(), cut: pairs() });

  function drawBars({ tokens }) {
    const largest = Math.max(...tokens.map(({ before, after }) => Math.max(before, after ?? 0)), 1e-9);
    if (!tokens.some(({ id }) => id === token)) choose(tokens[0]);
    bars.replaceChildren(...tokens.map((one) => {
      const radio = element("input", { type: "radio", name: "next", value: one.id, checked: one.id === token, onchange: () => choose(one) });
      const bar = (name, share) => {
        const part = element("i", { class: name });
        part.style.width = `${(100 * share) / largest}%`;
        return part;
      };
      const shares = one.after === undefined ? percent(one.before) : `${percent(one.before)} → ${percent(one.after)}`;
      return element("label", { class: one.after === undefined ? "" : "changed" }, radio, element("b", {}, written(one.word)),
        element("span", { class: "track" }, bar("before", one.before), ...(one.after === undefined ? [] : [bar("after", one.after)])), element("span", { class: "share" }, shares),
        element("button", { type: "button", title: t("put it behind the text"), "aria-label": t("put “{word}” behind the text", { word: written(one.word) }), onclick: () => add(one.word) }, "+"));
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
    grid.style.setProperty("--columns", Math.max(...layers.map((layer) => layer.length)));
    const at = grid.querySelector("[tabindex='0']")?.dataset.head;
    const focused = grid.contains(document.activeElement);
    grid.replaceChildren(element("div", { role: "row" }, element("span", { role: "columnheader", class: "rv-corner" }, t("layer ↓ head →")),
      ...answer.layers[0].heads.map((head) => element("span", { role: "columnheader" }, String(head)))),
    ...layers.map((values, index) => element("div", { role: "row" }, element("span", { role: "rowheader" }, String(answer.layers[index].layer)),
      ...values.map((value, head) => {
        const name = `${answer.layers[index].layer}.${answer.layers[index].heads[head]}`;
        const text = value === null ? "?" : Math.abs(value) < 0.05 ? "·" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(Math.abs(value) < 9.95 ? 1 : 0)}`;
        const cell = element("div", { role: "gridcell", tabindex: "-1", "data-head": name, onclick: () => toggle(name) }, text);
        cell.style.background = `rgb(${colour((value ?? 0) / largest, dark, "changes")})`;
        cell.style.color = readable((value ?? 0) / largest, dark, "changes");
        return cell;
      }))));
    markCut();
    const cell = grid.querySelector(`[data-head="${at}"]`) ?? grid.querySelector("[role=gridcell]");
    if (cell) focusCell(grid, cell, focused);
  }

  function markCut() {
    grid.querySelectorAll("[role=gridcell]").forEach((cell) => {
      const isCut = cut.has(cell.dataset.head);
      const [layer, head] = cell.dataset.head.split(".");
      const label = `${t("layer {layer}, head {head}", { layer, head })}: ${cell.textContent}${isCut ? `, ${t("cut")}` : ""}`;
      cell.setAttribute("aria-selected", String(isCut));
      cell.setAttribute("aria-label", label);
      cell.title = label;
    });
  }

  const toggle = (name) => {
    if (!cut.delete(name)) cut.add(name);
    changeCut();
  };
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
