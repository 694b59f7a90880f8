// One run in a view: its text, its lines or its map, and what a chosen token looks at, in words and as a table.

import { colour, readable, shareOf } from "./colours.js";
import { element, set, short, table } from "./dom.js";
import { heatMap } from "./heat.js";
import { strips } from "./strips.js";
import { t } from "./words.js";

const TOP = 5; // keys that are named for a token
const ROWS = 200; // of the table
const SHADES = 40;

/**
 * A panel. `name` is that of its run, where there are two; `hover(chosen)` and `pin(chosen)` are called with { row },
 * { column } or null; `step(key)` with the name of a key that was pressed.
 */
export function panel({ name, hover, pin, step }) {
  const [lines, heat] = [strips({ hover, pin }), heatMap({ hover, pin })];
  const title = element("b", { class: "rv-name" });
  const words = element("div", { class: "rv-words", tabindex: "0", role: "group", "aria-label": t("the text") });
  // A slider's value is read aloud when it changes: the token, and what it looks at.
  const slider = element("div", {
    class: "rv-slider", role: "slider", tabindex: "0", "aria-orientation": "vertical", "aria-valuemin": "0",
    onkeydown: (event) => { if (step(event.key)) event.preventDefault(); },
  }, lines.node, heat.node);
  const readout = element("p", { class: "rv-readout" });
  const node = element("div", { class: "rv-panel" }, ...(name ? [title] : []), words, slider, readout);
  const over = (event) => {
    const span = event.target.closest("[data-index]");
    return span && { [span.dataset.side]: Number(span.dataset.index) };
  };
  set(words, { onpointerover: (event) => hover(over(event)), onpointerleave: () => hover(null) });
  words.addEventListener("click", (event) => over(event) && pin(over(event)));
  let shown = null; // what `draw` was called with
  let spans = {};

  /** The tokens as running text. */
  function write(layer) {
    if (spans.layer === layer) return;
    const span = (side) => (token, index) => element("span", { "data-side": side, "data-index": index }, token);
    const isOne = layer.kind !== "cross" && layer.tokens.join("\n") === layer.key_tokens.join("\n");
    const queries = layer.tokens.map(span("row"));
    const keys = isOne ? queries : layer.key_tokens.map(span("column"));
    spans = { layer, queries, keys, shades: [] };
    const all = isOne ? queries : [...keys, element("i", {}, "→"), ...queries];
    words.replaceChildren(...all.flatMap((one) => [one, " "]));
  }

  /** Draw { layer, matrices, shares, rows, keys, map, ends, view, scale, row, dark, place, title }. */
  function draw(what, width) {
    shown = what;
    const { layer, matrices, shares, rows, keys, map, ends, view, dark, place } = shown;
    title.textContent = shown.title;
    node.hidden = view === "inside";
    lines.node.toggleAttribute("hidden", view !== "lines");
    heat.node.toggleAttribute("hidden", view !== "map");
    write(layer);
    const label = t("{title}: what every token looks at", { title: place });
    for (const one of [lines, heat]) set(one.node, { "aria-label": label });
    if (view === "lines") lines.draw({ layer, rows, keys, heads: matrices.map((weights) => ({ weights })) }, width);
    if (view === "map") heat.draw({ layer, rows, keys, shares, map, ends, dark }, width);
  }

  /** One token's lines, frames, shades and words; `isHovered`: it is not pinned. */
  function mark(chosen, isHovered) {
    const { layer, view, row } = shown;
    const [n, m] = [layer.tokens.length, layer.key_tokens.length];
    const fits = chosen && (chosen.row ?? 0) < n && (chosen.column ?? 0) < m ? chosen : null;
    if (view === "lines") lines.mark(fits?.row === undefined ? fits : { row: fits.row });
    if (view === "map") heat.mark(fits);
    shade(fits?.row, isHovered);
    const text = fits ? said(fits) : t("no token is chosen: arrow keys choose one");
    set(slider, { "aria-label": name ? `${t("token")}, ${name}` : t("token"), "aria-valuemax": Math.max(0, n - 1),
      "aria-valuenow": row ?? 0, "aria-valuetext": text });
    readout.textContent = fits ? text : t("Point at a token to see what it looks at; click to keep it. "
      + "Shift-click a head, or press Space on it, to see several at once.");
  }

  function shade(row, isHovered) {
    const { layer, matrices: [weights], scale, dark } = shown;
    const m = layer.key_tokens.length;
    const mine = row === undefined ? new Float32Array(m) : weights.subarray(row * m, (row + 1) * m);
    const largest = mine.reduce((most, weight) => Math.max(most, weight), 0);
    spans.keys.forEach((span, key) => {
      const share = shareOf(mine[key], largest, scale === "weight" ? scale : "row");
      const shadeOf = Math.round(share * SHADES);
      if (spans.shades[key] === shadeOf) return;
      spans.shades[key] = shadeOf;
      span.style.background = shadeOf ? `rgb(${colour(shadeOf / SHADES, dark)})` : "";
      span.style.color = shadeOf ? readable(shadeOf / SHADES, dark) : "";
    });
    words.querySelector(".rv-chosen")?.classList.remove("rv-chosen");
    const span = spans.queries[row];
    span?.classList.add("rv-chosen");
    if (span && !isHovered) words.scrollTop = span.offsetTop - words.clientHeight / 2;
  }

  /** “it” looks at: animal 0.43 · street 0.12 */
  function said({ row, column }) {
    const { layer, matrices: [weights], before } = shown;
    const m = layer.key_tokens.length;
    const isRow = row !== undefined;
    if (isRow && column !== undefined) {
      const change = before ? ` (${before.name}: ${before.weights[row * m + column].toFixed(3)})` : "";
      return `“${layer.tokens[row]}” → “${layer.key_tokens[column]}”: ${weights[row * m + column].toFixed(3)}${change}`;
    }
    const [mine, others] = isRow ? [layer.tokens[row], layer.key_tokens] : [layer.key_tokens[column], layer.tokens];
    const all = others.map((token, index) => [isRow ? weights[row * m + index] : weights[index * m + column], token]);
    const best = all.filter(([weight]) => weight >= 0.005).sort((one, two) => two[0] - one[0]).slice(0, TOP)
      .map(([weight, token]) => `${short(token, 20)} ${weight.toFixed(2)}`);
    const rest = 1 - all.reduce((sum, [weight]) => sum + weight, 0);
    if (isRow && layer.sink) best.push(`${t("(sink)")} ${Math.max(0, rest).toFixed(2)}`);
    const what = isRow ? t("“{token}” looks at", { token: mine }) : t("“{token}” is looked at by", { token: mine });
    return `${what}: ${best.join(" · ") || "–"}`;
  }

  /** The numbers: what the pinned token looks at, or the largest weights of every token; a column for each head. */
  function numbers(heads) {
    const { layer, matrices, row } = shown;
    const m = layer.key_tokens.length;
    const of = name ? `${name}: ` : "";
    const order = (weights, from) =>
      layer.key_tokens.map((_, key) => key).sort((one, two) => weights[from + two] - weights[from + one]);
    if (row !== null && row < layer.tokens.length) {
      const cells = (key) => matrices.map((weights) => weights[row * m + key].toFixed(3));
      const caption = t("What “{token}” looks at", { token: layer.tokens[row] });
      return table(`${of}${caption}`, [t("key"), t("position"), ...heads],
        order(matrices[0], row * m).slice(0, ROWS).map((key) => [layer.key_tokens[key], key, ...cells(key)]));
    }
    const best = (weights, from) => order(weights, from).slice(0, 3)
      .map((key) => `${layer.key_tokens[key]} ${weights[from + key].toFixed(3)}`).join(", ");
    return table(`${of}${t("What every token looks at most")}`, [t("query"), t("position"), ...heads],
      layer.tokens.slice(0, ROWS).map((token, at) => [token, at, ...matrices.map((weights) => best(weights, at * m))]));
  }

  return { node, draw, mark, numbers, drawing: () => (shown.view === "map" ? heat : lines).node };
}
