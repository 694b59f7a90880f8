// The attention of a model to a text: all heads, one head or several, one token. The same for saved pages, the
// laboratory and notebooks.

import { SCALES, isDark, normalized, sharesOf } from "./colours.js";
import { element, saveDrawings, segmented } from "./dom.js";
import { headGrid, scoresOf } from "./grid.js";
import { overview } from "./heat.js";
import { insideView } from "./inside.js";
import { panel } from "./panel.js";
import { makeSource } from "./source.js";
import { setLanguage, t } from "./words.js";

const WHOLE = 48; // tokens that are shown at once; of more a window of 40
const WINDOW = 40;
const COLOURS = 6;
const VIEWS = ["lines", "map", "inside"];
const SCALE_HINTS = {
  row: "relative to the largest weight of each row",
  weight: "from 0 to 1, so that heads can be compared",
  log: "logarithmic, from 0.001 to 1",
};
const ENDS = { row: "0|largest of the row", weight: "0|1", log: "0.001|1" };

/**
 * Show a source in an element; `other` is a second one to compare it with, and `names` what they are called. `state` is
 * what `changed` was called with: { heads: "layer.head,…", row, view, scale, sort, at: "row,key" }, all texts or null.
 */
export function showAttention(root, source, { state = {}, changed = () => {}, other = null, names = ["A", "B"] } = {}) {
  root.style.minHeight = `${root.offsetHeight}px`; // nothing jumps while the new one is drawn
  const sources = other ? [source, other] : [source];
  const isSame = Boolean(other) && source.layers.every((layer, index) => sameShape(layer, other.layers[index]));
  const minus = t("{first} minus {second}", { first: names[0], second: names[1] });
  const view = opened(source, state);
  let hovered = null;
  let heads = []; // of each source, the weights of each head that is open
  let turn = 0;

  // ------------------------------------------------------------------------------------------------------------- parts
  const pictures = isSame ? { small: changes, map: "changes" } : {};
  const grid = headGrid(source, { choose, leave: () => go({ row: null }), ...pictures });
  const hasScore = ([, layers]) => layers.flat().some((value) => value !== null);
  const sort = element("select", { class: "rv-sort", onchange: () => go({ sort: sort.value }) },
    element("option", { value: "layer" }, t("by layer")),
    ...Object.entries(source.scores).filter(hasScore).map(([name]) => element("option", { value: name }, t(name))));
  const scale = segmented(t("scale of the colours"), SCALES.map((name) => [name, t(name), t(SCALE_HINTS[name])]),
    (value) => go({ scale: value }));
  const views = segmented(t("view"), VIEWS.slice(0, source.hasInside ? 3 : 2).map((name) => [name, t(name)]),
    (value) => go({ view: value }));
  const chips = element("div", { class: "rv-chips" });
  const about = element("p", { class: "rv-about" });
  const move = (row, key) => go({ at: [row, key].map((at) => Math.round(at - WINDOW / 2)).join(",") });
  const whole = overview({ move });
  const wholeBox = element("figure", { class: "rv-whole" }, element("figcaption"), whole.node);
  const panels = sources.map((_, index) => panel({ name: other && names[index], hover, pin, step }));
  const inner = insideView({ pin: ({ row }) => go({ row }) });
  const figures = element("div", { class: "rv-figures" }, ...panels.map(({ node }) => node), inner.node);
  const numbers = element("div", { tabindex: "0", role: "group", "aria-label": t("the numbers") });
  const details = element("details", { class: "rv-numbers", ontoggle: fillNumbers },
    element("summary", {}, t("the numbers")), numbers);
  const download = (ending) => element("button", { type: "button", title: t("save what is shown"),
    onclick: () => saveDrawings(drawings(), `attention.${ending}`) }, ending.toUpperCase());
  grid.arrange(view.sort);
  root.classList.add("rv");
  root.replaceChildren(element("div", { class: other ? "rv-columns rv-two" : "rv-columns" },
    element("section", { class: "rv-side", "aria-label": t("heads") },
      element("div", { class: "rv-tools" }, element("label", {}, t("heads"), " ", sort), scale.node), grid.node,
      ...(isSame ? [element("p", { class: "rv-note" }, t("small pictures: {minus}", { minus }))] : []), wholeBox),
    element("section", { class: "rv-main", "aria-label": t("one head") },
      element("div", { class: "rv-tools" }, chips, element("span", { class: "rv-space" }), views.node,
        element("span", { class: "rv-saves" }, download("svg"), download("png"))),
      about, figures, details)));

  // -------------------------------------------------------------------------------------------------------------- state
  /** The indices of a head's layer and of the head in a source, as near as it has them. */
  const placeOf = (one, name) => {
    const [index, head] = name.split(".").map(Number);
    const layer = Math.min(index, one.layers.length - 1);
    return [layer, Math.min(head, one.layers[layer].heads.length - 1)];
  };
  const layerOf = (one) => one.layers[placeOf(one, view.heads[0])[0]];
  const nameOf = (one, name) => {
    const [index, head] = placeOf(one, name);
    return { layer: one.layers[index].layer, head: one.layers[index].heads[head] };
  };

  /** A click on a head: open it; or add it to those that are open, where it has the same tokens, or take it away. */
  function choose(index, head, adds) {
    const name = `${index}.${head}`;
    const rest = view.heads.filter((one) => one !== name);
    if (!adds) go({ heads: [name] });
    else if (rest.length < view.heads.length) go({ heads: rest.length ? rest : view.heads });
    else go({ heads: sameTokens(layerOf(source), source.layers[index]) ? [...rest, name].slice(-COLOURS) : [name] });
  }

  function go(change) {
    Object.assign(view, change);
    if (change.heads) hovered = null;
    if (change.row !== undefined && change.row !== null) {
      const [rows] = windowOf(source);
      if (view.row < rows[0] || view.row >= rows[1]) view.at = null; // the window goes along
    }
    changed({ ...view, heads: view.heads.join(","), row: view.row === null ? null : String(view.row) });
    draw(change);
  }

  function pin(chosen) {
    if (chosen?.row !== undefined) go({ row: chosen.row === view.row ? null : chosen.row });
    else if (chosen) go({ at: [windowOf(source)[0][0], chosen.column - WINDOW / 2].join(",") });
  }

  /** A key that was pressed on the tokens; whether it means something. */
  function step(key) {
    const last = layerOf(source).tokens.length - 1;
    const [up, down] = [Math.max((view.row ?? last + 1) - 1, 0), Math.min((view.row ?? -1) + 1, last)];
    const moves = { ArrowUp: up, ArrowDown: down, Home: 0, End: last };
    if (key !== "Escape" && !(key in moves)) return false;
    go({ row: key === "Escape" ? null : moves[key] });
    return true;
  }

  /** The rows and the keys on display: all of them, or a window. */
  function windowOf(one) {
    const { tokens: { length: n }, key_tokens: { length: m }, kind } = layerOf(one);
    if (Math.max(n, m) <= WHOLE) return [[0, n], [0, m]];
    const middle = (view.row ?? WINDOW / 2) - WINDOW / 2;
    const beside = kind === "cross" ? (middle * m) / n : middle;
    const [row, key] = view.at ? view.at.split(",").map(Number) : [middle, beside];
    const span = (from, count) => {
      const start = Math.min(Math.max(Math.round(from), 0), Math.max(0, count - WINDOW));
      return [start, Math.min(count, start + WINDOW)];
    };
    return [span(row, n), span(key, m)];
  }

  // ------------------------------------------------------------------------------------------------------------ drawing
  async function draw(change = null) {
    const mine = (turn += 1);
    const load = (one) => Promise.all(view.heads.map((name) => one.weights(...placeOf(one, name))));
    const loaded = await Promise.all(sources.map(load));
    if (mine !== turn || !root.isConnected) return; // another head was chosen meanwhile
    heads = loaded;
    if (change?.sort) grid.arrange(view.sort);
    if (!change || change.scale) grid.paint(view.scale);
    grid.mark(view.heads);
    sort.value = view.sort;
    scale.set(view.scale);
    views.set(view.view);
    showChips();
    drawPanels();
    inner.node.hidden = view.view !== "inside";
    if (view.view === "inside") await drawInside(mine);
    fillNumbers();
    root.style.minHeight = "";
    root.dataset.drawn = Number(root.dataset.drawn ?? 0) + 1;
  }

  function drawPanels() {
    const [dark, main] = [isDark(root), figures.clientWidth];
    const width = Math.max(280, Math.min(760, other && main > 720 ? (main - 24) / 2 : main));
    sources.forEach((one, index) => {
      const layer = layerOf(one);
      const [rows, keys] = windowOf(one);
      const isChange = index === 1 && isSame && view.view === "map";
      const shares = isChange ? normalized(heads[0][0].map((weight, at) => weight - heads[1][0][at]))
        : sharesOf(heads[index][0], layer.tokens.length, layer.key_tokens.length, view.scale);
      const map = isChange ? "changes" : "weights";
      const ends = isChange ? [t("less"), t("more")] : t(ENDS[view.scale]).split("|");
      const before = isSame && view.view === "map" ? { name: names[1], weights: heads[1][0] } : null;
      const place = t("layer {layer}, head {head}", nameOf(one, view.heads[0]));
      const title = isChange ? minus : names[index];
      const colours = { shares, map, ends, dark };
      panels[index].draw({ ...view, layer, matrices: heads[index], rows, keys, ...colours, place, title, before }, width);
      if (index === 0) drawWhole(layer, shares, rows, keys, dark);
    });
    mark();
  }

  function drawWhole(layer, shares, rows, keys, dark) {
    const isLong = Math.max(layer.tokens.length, layer.key_tokens.length) > WHOLE;
    wholeBox.hidden = view.view === "map" && !isLong;
    wholeBox.classList.toggle("rv-long", isLong);
    wholeBox.firstChild.textContent = isLong ? t("the whole text; drag the window") : t("the map of this head");
    const side = Math.min(360, Math.max(200, wholeBox.clientWidth));
    if (!wholeBox.hidden) whole.draw({ layer, shares, rows, keys, map: "weights", dark, isLong }, side);
  }

  async function drawInside(mine) {
    const [index, head] = placeOf(source, view.heads[0]);
    const [rows, keys] = windowOf(source);
    const known = await source.inside(index, head, rows[0], keys[0]);
    if (mine !== turn) return;
    const width = Math.max(280, Math.min(760, figures.clientWidth));
    if (known) inner.draw(known, source.layers[index], isDark(root), width, view.row);
    else inner.node.replaceChildren(element("p", { class: "rv-note" },
      t("The operands of this head are not in this page: it has those of the head that it opens with.")));
  }

  function hover(chosen) {
    if (JSON.stringify(chosen) === JSON.stringify(hovered)) return;
    hovered = chosen;
    mark();
  }

  function mark() {
    const pinned = view.row === null ? null : { row: view.row };
    panels.forEach((one) => one.mark(hovered ?? pinned, Boolean(hovered)));
  }

  function showChips() {
    chips.replaceChildren(...view.heads.map((name, index) => {
      const label = t("layer {layer}, head {head}", nameOf(source, name));
      const remove = element("button", { type: "button", "aria-label": t("close {label}", { label }),
        onclick: () => go({ heads: view.heads.filter((one) => one !== name) }) }, "×");
      return element("span", { class: `rv-chip c${index}` }, element("i", { "aria-hidden": "true" }), label,
        ...(view.heads.length > 1 ? [remove] : []));
    }));
    const known = scoresOf(source, ...placeOf(source, view.heads[0])).filter(([, value]) => value >= 0.1).slice(0, 3);
    const { kind, name } = layerOf(source);
    about.replaceChildren(
      ...known.map(([score, value]) => element("span", { class: "rv-badge" }, `${t(score)} ${value.toFixed(2)}`)),
      element("span", {}, `${t(kind)} · ${name}`));
    const { kept } = source;
    if (kept) about.append(element("span", {}, t("of each row the {kept} largest weights are in this page", { kept })));
  }

  function fillNumbers() {
    if (!details.open || !heads.length) return;
    const titles = (one) => view.heads.map((name) => Object.values(nameOf(one, name)).join("·"));
    numbers.replaceChildren(...panels.map((one, index) => one.numbers(titles(sources[index]))));
  }

  const drawings = () => (view.view === "inside" ? inner.drawings() : panels.map((one) => one.drawing()));

  /** Small pictures of what changed from the other source to this one. */
  async function changes(index) {
    const [mine, theirs] = await Promise.all(sources.map((one) => one.small(index)));
    return normalized(mine.map((weight, at) => weight - theirs[at]));
  }

  const redraw = () => root.isConnected && heads.length && draw({ scale: view.scale });
  new ResizeObserver(debounced(redraw)).observe(figures);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  draw();
}

/** The state that a view begins with: what is asked for where it is there, else the most telling head. */
function opened(source, state) {
  const given = (state.heads ?? "").split(",").filter((name) => {
    const [index, head] = name.split(".").map(Number);
    return source.layers[index]?.heads[head] !== undefined;
  });
  const row = Number.parseInt(state.row, 10);
  const heads = given.length ? given.slice(0, COLOURS) : [source.opens.join(".")];
  const { tokens } = source.layers[Number(heads[0].split(".")[0])];
  return {
    heads,
    row: Number.isInteger(row) && row >= 0 && row < tokens.length ? row : null,
    view: VIEWS.includes(state.view) ? state.view : "lines",
    scale: SCALES.includes(state.scale) ? state.scale : "row",
    sort: Object.hasOwn(source.scores, state.sort) ? state.sort : "layer",
    at: /^-?\d+,-?\d+$/.test(state.at ?? "") ? state.at : null,
  };
}

const sameTokens = (one, two) =>
  ["tokens", "key_tokens"].every((name) => one[name].join("\n") === two[name].join("\n"));
const sameShape = (one, two) =>
  two && ["tokens", "key_tokens", "heads"].every((name) => one[name].length === two[name].length);

function debounced(work) {
  let frame = 0;
  let first = true;
  return () => {
    if (first) { first = false; return; } // an observer begins with a call
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(work);
  };
}

/** The view of a page of one file, with its state in the address, and buttons for language and theme. */
export function showPage(document) {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const given = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const keep = (changes) => {
    const kept = Object.entries({ ...given(), ...changes }).filter(([, value]) => value !== null && value !== undefined);
    history.replaceState(null, "", `#${new URLSearchParams(Object.fromEntries(kept))}`);
  };
  const [source, other] = [data, data.other].map((run) => run && makeSource(run));
  const language = element("button", { type: "button",
    onclick: () => { keep({ language: root.lang.startsWith("zh") ? "en" : "zh" }); show(); } });
  const theme = element("button", { type: "button",
    onclick: () => { root.dataset.theme = isDark(root) ? "light" : "dark"; } }, "◐");
  document.querySelector("header").append(element("span", { class: "rv-space" }), language, theme);
  function show() {
    const isChinese = (given().language ?? navigator.language ?? "en").startsWith("zh");
    root.lang = isChinese ? "zh-Hans" : "en";
    setLanguage(root.lang);
    language.textContent = isChinese ? "English" : "中文";
    language.lang = isChinese ? "en" : "zh-Hans";
    theme.title = t("light or dark");
    theme.setAttribute("aria-label", t("light or dark"));
    const options = { state: given(), changed: keep, other, names: [t("after"), t("before")] };
    showAttention(document.getElementById("view"), source, options);
  }
  addEventListener("hashchange", show);
  show();
}
