// The attention of a model to a text: all heads, one head or several, one token. The same for saved pages, the laboratory
// and notebooks.

import { SCALES, colour, isDark, normalized, readable, shareOf, sharesOf } from "./colours.js";
import { element, saveDrawings, segmented, short, table } from "./dom.js";
import { headGrid, scoresOf } from "./grid.js";
import { heatMap, overview } from "./heat.js";
import { insideView } from "./inside.js";
import { makeSource } from "./source.js";
import { strips } from "./strips.js";
import { setLanguage, t } from "./words.js";

const WHOLE = 48; // tokens that are shown at once; of more a window of 40
const WINDOW = 40;
const COLOURS = 6;
const TOP = 5; // keys that are named for a token
const ROWS = 200; // of the table

/**
 * Show a source in an element; `other` is a second one to compare it with, and `names` what they are called. `state` is
 * what `changed` was called with: { heads: "layer.head,…", row, view, scale, sort, at: "row,key" }, all texts or null.
 */
export function showAttention(root, source, { state = {}, changed = () => {}, other = null, names = ["A", "B"] } = {}) {
  const start = root.offsetHeight; // nothing jumps while the new one is drawn
  root.style.minHeight = `${start}px`;
  const sources = other ? [source, other] : [source];
  const view = opened(source, state);
  let hovered = null;
  let heads = []; // of each source, the weights of each head that is open
  let turn = 0;

  // ------------------------------------------------------------------------------------------------------------- parts
  const isSame = other && sources[0].layers.every((layer, index) => sameShape(layer, sources[1].layers[index]));
  const grid = headGrid(source, { choose, leave: () => go({ row: null }), ...(isSame ? { small: changes, map: "changes" } : {}) });
  const sort = element("select", { class: "rv-sort", onchange: () => go({ sort: sort.value }) },
    element("option", { value: "layer" }, t("by layer")),
    ...Object.entries(source.scores).filter(([, layers]) => layers.flat().some((value) => value !== null))
      .map(([name]) => element("option", { value: name }, t(name))));
  const scale = segmented(t("scale of the colours"), SCALES.map((name) => [name, t(name), t(SCALE_HINTS[name])]), (value) => go({ scale: value }));
  const views = segmented(t("view"), [["lines", t("lines")], ["map", t("map")], ...(source.hasInside ? [["inside", t("inside")]] : [])],
    (value) => go({ view: value }));
  const chips = element("div", { class: "rv-chips" });
  const about = element("p", { class: "rv-about" });
  const whole = overview({ move: (row, key) => go({ at: [row - WINDOW / 2, key - WINDOW / 2].map(Math.round).join(",") }) });
  const wholeBox = element("figure", { class: "rv-whole" }, element("figcaption"), whole.node);
  const panels = sources.map((one, index) => panel(one, index));
  const inner = insideView({ pin: ({ row }) => go({ row }) });
  const figures = element("div", { class: "rv-figures" }, ...panels.map(({ node }) => node), inner.node);
  const numbers = element("div");
  const details = element("details", { class: "rv-numbers", ontoggle: () => fillNumbers() }, element("summary", {}, t("the numbers")), numbers);
  const download = (ending) => element("button", { type: "button", title: t("save what is shown"), onclick: () => saveDrawings(drawings(), `attention.${ending}`) }, ending.toUpperCase());
  grid.arrange(view.sort);
  root.classList.add("rv");
  root.replaceChildren(element("div", { class: other ? "rv-columns rv-two" : "rv-columns" },
    element("section", { class: "rv-side", "aria-label": t("heads") },
      element("div", { class: "rv-tools" }, element("label", {}, t("heads"), " ", sort), scale.node), grid.node,
      ...(isSame ? [element("p", { class: "rv-note" }, t("small pictures: {first} minus {second}", { first: names[0], second: names[1] }))] : []), wholeBox),
    element("section", { class: "rv-main", "aria-label": t("one head") },
      element("div", { class: "rv-tools" }, chips, element("span", { class: "rv-space" }), views.node,
        element("span", { class: "rv-saves" }, download("svg"), download("png"))),
      about, figures, details)));

  function panel(one, index) {
    const pinned = (chosen) => {
      if (chosen?.row !== undefined) go({ row: chosen.row === view.row ? null : chosen.row });
      else if (chosen?.column !== undefined) jump(chosen.column);
    };
    const listeners = { hover: (chosen) => hover(chosen, index), pin: pinned };
    const [lines, heat] = [strips(listeners), heatMap(listeners)];
    const readout = element("p", { class: "rv-readout" });
    const words = element("div", { class: "rv-words", tabindex: "0", role: "group", "aria-label": t("the text") });
    // A slider's value is read aloud when it changes: the token, and what it looks at.
    const slider = element("div", { class: "rv-slider", role: "slider", tabindex: "0", "aria-orientation": "vertical", "aria-valuemin": "0" }, lines.node, heat.node);
    const node = element("div", { class: "rv-panel" }, ...(other ? [element("b", { class: "rv-name" }, names[index])] : []), words, slider, readout);
    slider.addEventListener("keydown", (event) => {
      const last = one.layers[layerIndex(one)].tokens.length - 1;
      const row = { ArrowUp: Math.max((view.row ?? last + 1) - 1, 0), ArrowDown: Math.min((view.row ?? -1) + 1, last), Home: 0, End: last, Escape: null }[event.key];
      if (row === undefined) return;
      event.preventDefault();
      go({ row });
    });
    const over = (event) => event.target.closest("[data-index]");
    words.addEventListener("pointerover", (event) => hover(over(event) ? { [over(event).dataset.side]: Number(over(event).dataset.index) } : null, index));
    words.addEventListener("pointerleave", () => hover(null, index));
    words.addEventListener("click", (event) => over(event) && pinned({ [over(event).dataset.side]: Number(over(event).dataset.index) }));
    const saved = { words: [], shades: [] };
    return { node, slider, readout, lines, heat, words, saved, source: one };
  }

  // -------------------------------------------------------------------------------------------------------------- state
  function layerIndex(one) { return Math.min(Number(view.heads[0].split(".")[0]), one.layers.length - 1); }
  const placeOf = (one, name) => {
    const [index, head] = name.split(".").map(Number);
    const layer = Math.min(index, one.layers.length - 1);
    return [layer, Math.min(head, one.layers[layer].heads.length - 1)];
  };

  function choose(index, head, adds) {
    const name = `${index}.${head}`;
    if (!adds) return go({ heads: [name] });
    const [first] = view.heads.map((one) => source.layers[Number(one.split(".")[0])]);
    if (view.heads.includes(name)) return view.heads.length > 1 ? go({ heads: view.heads.filter((one) => one !== name) }) : undefined;
    const fits = sameTokens(first, source.layers[index]);
    return go({ heads: fits ? [...view.heads, name].slice(-COLOURS) : [name] });
  }

  function go(change) {
    Object.assign(view, change);
    if (typeof change.heads !== "undefined") hovered = null;
    changed({ heads: view.heads.join(","), row: view.row === null ? null : String(view.row), view: view.view, scale: view.scale, sort: view.sort, at: view.at });
    return draw(change);
  }

  /** Move the window to a key. */
  function jump(key) { go({ at: [windowOf(source)[0][0], key - WINDOW / 2].map(Math.round).join(",") }); }

  /** The rows and the keys on display: all of them, or a window that holds the pinned row. */
  function windowOf(one) {
    const layer = one.layers[layerIndex(one)];
    const [n, m] = [layer.tokens.length, layer.key_tokens.length];
    if (Math.max(n, m) <= WHOLE) return [[0, n], [0, m]];
    let [row, key] = view.at ? view.at.split(",").map((part) => Number.parseInt(part, 10) || 0) : [null, null];
    if (row === null) {
      row = (view.row ?? WINDOW / 2) - WINDOW / 2;
      key = layer.kind === "cross" ? (row * m) / n : row;
    }
    const clamped = (from, count) => Math.min(Math.max(Math.round(from), 0), Math.max(0, count - WINDOW));
    const [top, left] = [clamped(row, n), clamped(key, m)];
    return [[top, Math.min(n, top + WINDOW)], [left, Math.min(m, left + WINDOW)]];
  }

  // ------------------------------------------------------------------------------------------------------------ drawing
  async function draw(change = null) {
    const mine = (turn += 1);
    if (change && "row" in change && change.row !== null) keepInWindow();
    heads = await Promise.all(sources.map((one) => Promise.all(view.heads.map((name) => one.weights(...placeOf(one, name))))));
    if (mine !== turn || !root.isConnected) return; // another head was chosen meanwhile
    if (change && "sort" in change) grid.arrange(view.sort);
    if (!change || "scale" in change) grid.paint(view.scale);
    grid.mark(view.heads);
    sort.value = view.sort;
    scale.set(view.scale);
    views.set(view.view);
    showChips();
    drawPanels();
    if (view.view === "inside") await drawInside(mine);
    fillNumbers();
    root.style.minHeight = "";
    root.dataset.drawn = Number(root.dataset.drawn ?? 0) + 1;
  }

  function keepInWindow() {
    const [rows] = windowOf(source);
    if (view.row < rows[0] || view.row >= rows[1]) view.at = null;
  }

  function drawPanels() {
    const dark = isDark(root);
    const isInside = view.view === "inside";
    const [side, main] = [whole.node.parentElement.clientWidth, figures.clientWidth];
    const width = Math.max(280, Math.min(760, other && main > 720 ? (main - 24) / 2 : main));
    panels.forEach((one, index) => {
      const layer = one.source.layers[layerIndex(one.source)];
      const [rows, keys] = windowOf(one.source);
      const chosen = hovered ?? pinned();
      const base = { layer, rows, keys, chosen, dark };
      one.node.hidden = isInside;
      one.lines.node.toggleAttribute("hidden", view.view !== "lines");
      one.heat.node.toggleAttribute("hidden", view.view !== "map");
      write(one, layer);
      const place = t("layer {layer}, head {head}", { layer: layer.layer, head: layer.heads[placeOf(one.source, view.heads[0])[1]] });
      const label = t("{title}: what every token looks at", { title: place });
      one.lines.node.setAttribute("aria-label", label);
      one.heat.node.setAttribute("aria-label", label);
      const shares = index === 1 && isSame ? normalized(heads[0][0].map((weight, at) => weight - heads[1][0][at]))
        : sharesOf(heads[index][0], layer.tokens.length, layer.key_tokens.length, view.scale);
      const isChange = index === 1 && isSame;
      if (view.view === "lines") one.lines.draw({ ...base, heads: heads[index].map((weights) => ({ weights })) }, width);
      if (view.view === "map") one.heat.draw({ ...base, shares, map: isChange ? "changes" : "weights", ends: isChange ? [t("less"), t("more")] : t(ENDS[view.scale]).split("|") }, width);
      if (index === 0) {
        const isLong = Math.max(layer.tokens.length, layer.key_tokens.length) > WHOLE;
        wholeBox.hidden = view.view === "map" && !isLong;
        wholeBox.classList.toggle("rv-long", isLong);
        wholeBox.firstChild.textContent = t(isLong ? "the whole text; drag the window" : "the map of this head");
        if (!wholeBox.hidden) whole.draw({ layer, shares, rows, keys, map: "weights", dark, isLong }, Math.min(360, Math.max(200, side)));
      }
    });
    if (isSame && view.view === "map") panels[1].node.querySelector(".rv-name").textContent = t("{first} minus {second}", { first: names[0], second: names[1] });
    else if (other) panels[1].node.querySelector(".rv-name").textContent = names[1];
    inner.node.hidden = !isInside;
    mark();
  }

  async function drawInside(mine) {
    const [index, head] = placeOf(source, view.heads[0]);
    const [rows, keys] = windowOf(source);
    const known = await source.inside(index, head, rows[0], keys[0]);
    if (mine !== turn) return;
    const width = Math.max(280, Math.min(760, figures.clientWidth));
    if (known) inner.draw(known, source.layers[index], isDark(root), width, view.row);
    else inner.node.replaceChildren(element("p", { class: "rv-note" }, t("The operands of this head are not in this page: it has those of the head that it opens with.")));
  }

  /** The tokens as running text. */
  function write(one, layer) {
    if (one.saved.layer === layer) return;
    const span = (side) => (token, index) => element("span", { "data-side": side, "data-index": index }, token);
    const isOne = layer.kind !== "cross" && layer.tokens.join("\n") === layer.key_tokens.join("\n");
    one.saved = { layer, queries: layer.tokens.map(span("row")), shades: [] };
    one.saved.keys = isOne ? one.saved.queries : layer.key_tokens.map(span("column"));
    const spans = isOne ? one.saved.queries : [...one.saved.keys, element("i", {}, "→"), ...one.saved.queries];
    one.words.replaceChildren(...spans.flatMap((node) => [node, " "]));
  }

  const pinned = () => (view.row === null ? null : { row: view.row });

  function hover(chosen, index) {
    if (JSON.stringify(chosen) === JSON.stringify(hovered)) return;
    hovered = chosen;
    mark(index);
  }

  /** One token's lines, frames, shades and words, in every panel. */
  function mark() {
    const chosen = hovered ?? pinned();
    const dark = isDark(root);
    panels.forEach((one, index) => {
      const layer = one.source.layers[layerIndex(one.source)];
      const [n, m] = [layer.tokens.length, layer.key_tokens.length];
      const fits = !chosen || ((chosen.row ?? 0) < n && (chosen.column ?? 0) < m) ? chosen : null;
      if (view.view === "lines") one.lines.mark(fits?.row === undefined ? fits : { row: fits.row });
      if (view.view === "map") one.heat.mark(fits);
      shade(one, layer, fits, heads[index], dark);
      const text = fits ? said(layer, fits, heads[index]) : t("no token is chosen: arrow keys choose one");
      one.slider.setAttribute("aria-label", other ? `${t("token")}, ${names[index]}` : t("token"));
      one.slider.setAttribute("aria-valuemax", String(Math.max(0, n - 1)));
      one.slider.setAttribute("aria-valuenow", String(view.row ?? 0));
      one.slider.setAttribute("aria-valuetext", text);
      one.readout.textContent = fits ? text
        : t("Point at a token to see what it looks at; click to keep it. Shift-click a head, or press Space on it, to see several at once.");
    });
  }

  function shade(one, layer, chosen, matrices, dark) {
    const m = layer.key_tokens.length;
    const row = chosen?.row;
    let largest = 0;
    for (let key = 0; row !== undefined && key < m; key += 1) largest = Math.max(largest, matrices[0][row * m + key]);
    one.saved.keys.forEach((span, key) => {
      const share = row === undefined ? -1 : shareOf(matrices[0][row * m + key], largest, view.scale === "weight" ? "weight" : "row");
      const step = Math.round(share * 40);
      if (one.saved.shades[key] === step) return;
      one.saved.shades[key] = step;
      span.style.background = step > 0 ? `rgb(${colour(step / 40, dark)})` : "";
      span.style.color = step > 0 ? readable(step / 40, dark) : "";
    });
    one.words.querySelector(".rv-chosen")?.classList.remove("rv-chosen");
    if (row === undefined) return;
    const span = one.saved.queries[row];
    span?.classList.add("rv-chosen");
    if (span && !hovered) one.words.scrollTop = span.offsetTop - one.words.clientHeight / 2;
  }

  /** “it” looks at: animal 0.43 · street 0.12 */
  function said(layer, chosen, matrices) {
    const m = layer.key_tokens.length;
    const [weights] = matrices;
    if (chosen.row !== undefined && chosen.column !== undefined) {
      const number = weights[chosen.row * m + chosen.column];
      const change = isSame && view.view === "map" ? ` (${names[1]}: ${heads[1][0][chosen.row * m + chosen.column].toFixed(3)})` : "";
      return `“${layer.tokens[chosen.row]}” → “${layer.key_tokens[chosen.column]}”: ${number.toFixed(3)}${change}`;
    }
    const isRow = chosen.row !== undefined;
    const count = isRow ? m : layer.tokens.length;
    const all = Array.from({ length: count }, (_, index) => [isRow ? weights[chosen.row * m + index] : weights[index * m + chosen.column], index]);
    const best = all.filter(([weight]) => weight >= 0.005).sort((one, two) => two[0] - one[0]).slice(0, TOP)
      .map(([weight, index]) => `${short((isRow ? layer.key_tokens : layer.tokens)[index], 20)} ${weight.toFixed(2)}`);
    if (isRow && layer.sink) best.push(`${t("(sink)")} ${Math.max(0, 1 - all.reduce((sum, [weight]) => sum + weight, 0)).toFixed(2)}`);
    const token = isRow ? layer.tokens[chosen.row] : layer.key_tokens[chosen.column];
    return `${t(isRow ? "“{token}” looks at" : "“{token}” is looked at by", { token })}: ${best.join(" · ") || "–"}`;
  }

  function showChips() {
    chips.replaceChildren(...view.heads.map((name, index) => {
      const [layer, head] = placeOf(source, name);
      const label = t("layer {layer}, head {head}", { layer: source.layers[layer].layer, head: source.layers[layer].heads[head] });
      const remove = element("button", { type: "button", "aria-label": t("close {label}", { label }), onclick: () => go({ heads: view.heads.filter((one) => one !== name) }) }, "×");
      return element("span", { class: `rv-chip c${index}` }, element("i", { "aria-hidden": "true" }), label, ...(view.heads.length > 1 ? [remove] : []));
    }));
    const [index, head] = placeOf(source, view.heads[0]);
    const layer = source.layers[index];
    const known = scoresOf(source, index, head).filter(([, value]) => value >= 0.1).slice(0, 3);
    about.replaceChildren(...known.map(([name, value]) => element("span", { class: "rv-badge" }, `${t(name)} ${value.toFixed(2)}`)),
      element("span", {}, `${t(layer.kind)} · ${layer.name}`));
    if (source.kept) about.append(element("span", {}, t("of each row the {kept} largest weights are in this page", { kept: source.kept })));
  }

  function fillNumbers() {
    if (!details.open || !heads.length) return;
    numbers.replaceChildren(...panels.map((one, index) => {
      const layer = one.source.layers[layerIndex(one.source)];
      const m = layer.key_tokens.length;
      const titles = view.heads.map((name) => placeOf(one.source, name)).map(([at, head]) => `${one.source.layers[at].layer}·${one.source.layers[at].heads[head]}`);
      const name = other ? `${names[index]}: ` : "";
      if (view.row !== null && view.row < layer.tokens.length) {
        const order = layer.key_tokens.map((token, key) => [token, key]).sort(([, one_], [, two]) => heads[index][0][view.row * m + two] - heads[index][0][view.row * m + one_]);
        return table(`${name}${t("What “{token}” looks at", { token: layer.tokens[view.row] })}`, [t("key"), t("position"), ...titles],
          order.slice(0, ROWS).map(([token, key]) => [token, key, ...heads[index].map((weights) => weights[view.row * m + key].toFixed(3))]));
      }
      const best = (weights, row) => Array.from({ length: m }, (_, key) => [weights[row * m + key], key]).sort((one_, two) => two[0] - one_[0]).slice(0, 3)
        .map(([weight, key]) => `${layer.key_tokens[key]} ${weight.toFixed(3)}`).join(", ");
      return table(`${name}${t("What every token looks at most")}`, [t("query"), t("position"), ...titles],
        layer.tokens.slice(0, ROWS).map((token, row) => [token, row, ...heads[index].map((weights) => best(weights, row))]));
    }));
  }

  const drawings = () => (view.view === "inside" ? inner.drawings() : panels.map((one) => (view.view === "map" ? one.heat : one.lines).node));

  /** Small pictures of what changed from the other source to this one. */
  async function changes(index) {
    const [mine, theirs] = await Promise.all(sources.map((one) => one.small(index)));
    return normalized(mine.map((weight, at) => weight - theirs[at]));
  }

  const redraw = () => root.isConnected && heads.length && (grid.paint(view.scale), draw({}));
  new ResizeObserver(debounced(redraw)).observe(figures);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  draw();
  return { state: () => view, redraw };
}

const SCALE_HINTS = {
  row: "relative to the largest weight of each row",
  weight: "from 0 to 1, so that heads can be compared",
  log: "logarithmic, from 0.001 to 1",
};
const ENDS = { row: "0|largest of the row", weight: "0|1", log: "0.001|1" };

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
    view: ["lines", "map", "inside"].includes(state.view) ? state.view : "lines",
    scale: SCALES.includes(state.scale) ? state.scale : "row",
    sort: source.scores[state.sort] ? state.sort : "layer",
    at: /^-?\d+,-?\d+$/.test(state.at ?? "") ? state.at : null,
  };
}

const sameTokens = (one, two) => one.tokens.join("\n") === two.tokens.join("\n") && one.key_tokens.join("\n") === two.key_tokens.join("\n");
const sameShape = (one, two) => two && one.tokens.length === two.tokens.length && one.key_tokens.length === two.key_tokens.length && one.heads.length === two.heads.length;

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
  const language = element("button", { type: "button", onclick: () => { keep({ language: root.lang.startsWith("zh") ? "en" : "zh" }); show(); } });
  const theme = element("button", { type: "button", onclick: () => { root.dataset.theme = isDark(root) ? "light" : "dark"; } }, "◐");
  document.querySelector("header").append(element("span", { class: "rv-space" }), language, theme);
  function show() {
    const isChinese = (given().language ?? navigator.language ?? "en").startsWith("zh");
    root.lang = isChinese ? "zh-Hans" : "en";
    setLanguage(root.lang);
    language.textContent = isChinese ? "English" : "中文";
    language.lang = isChinese ? "en" : "zh-Hans";
    theme.setAttribute("aria-label", t("light or dark"));
    theme.title = t("light or dark");
    showAttention(document.getElementById("view"), source, { state: given(), changed: keep, other, names: [t("after"), t("before")] });
  }
  addEventListener("hashchange", show);
  show();
}
