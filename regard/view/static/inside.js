// Inside one head: from queries and keys to scores, by the mask to weights, with the values to the output. Every matrix
// is linked to the others; pointing at a cell shows the products that make it.

import { normalized, pictured, sharesOf } from "./colours.js";
import { drawn, element, set, short, sized, table } from "./dom.js";
import { t } from "./words.js";

const TERMS = 3; // that a sum names
const TOP = 22; // pixels above a matrix
const GAP = 26; // between two

function written(value) {
  if (!Number.isFinite(value)) return "−∞";
  return value.toFixed(Math.abs(value) < 10 ? 3 : 2).replace("-", "−");
}

/** The index below `count` whose value is the largest in size. */
function largestOf(count, value) {
  let best = 0;
  for (let index = 1; index < count; index += 1) if (Math.abs(value(index)) > Math.abs(value(best))) best = index;
  return best;
}

/** What a source knows of a head, with the scores: rows of each matrix one after the other. */
function computed(known) {
  const [size, valueSize] = known.size;
  const [n, m] = [known.rows[1] - known.rows[0], known.keys[1] - known.keys[0]];
  const products = new Float32Array(n * m); // q·k
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j < m; j += 1) {
      for (let d = 0; d < size; d += 1) products[i * m + j] += known.query[i * size + d] * known.key[j * size + d];
    }
  }
  const scores = products.map((product) => product * known.scale);
  const masked = known.weights.map((weight) => (weight === 0 ? 1 : 0));
  return { ...known, n, m, size, valueSize, products, scores, masked };
}

/** The view of one head; `draw(known, layer, dark, width, row)` with what a source's `inside` has. */
export function insideView({ pin }) {
  const node = element("div", { class: "rv-inside" });
  let drawings = [];
  let isOpen = false; // the table of numbers
  let last = null; // what was chosen, and in which head: it stays when the same head is drawn again

  function draw(given, layer, dark, width, row) {
    const head = computed(given);
    const { n, m, size, valueSize, query, key, value, output, weights } = head;
    const queryName = (i) => layer.tokens[head.rows[0] + i];
    const keyName = (j) => layer.key_tokens[head.keys[0] + j];
    // What is chosen: a query, a key, a dimension of both, and one of the values.
    const at = { i: Math.min(Math.max((row ?? head.rows[1] - 1) - head.rows[0], 0), n - 1) };
    const chooseBest = () => {
      at.j = largestOf(m, (j) => weights[at.i * m + j]);
      at.d = largestOf(size, (d) => query[at.i * size + d] * key[at.j * size + d]);
      at.c = largestOf(valueSize, (c) => output[at.i * valueSize + c]);
    };
    const name = JSON.stringify([layer.name, row, head.rows, head.keys, Array.from(query.slice(0, size))]);
    if (last?.name === name) Object.assign(at, last.at);
    else chooseBest();
    last = { name, at };

    const room = Math.min(210, (width - 2 * GAP) / 3);
    const cell = Math.max(2, Math.min(16, room / Math.max(n, m)));
    const framed = []; // the matrices, with the frames of what is chosen
    /** A matrix: its name, numbers as shares, colours, and which of i, j, d and c its rows and its columns are. */
    const matrices = {
      query: [t("queries Q"), normalized(query), "changes", "id"],
      key: [t("keys K"), normalized(key), "changes", "jd"],
      scores: [t("scores"), normalized(head.scores), "changes", "ij"],
      mask: [t("mask (grey: −∞)"), head.masked, "mask", "ij"],
      weights: [t("weights"), sharesOf(weights, n, m, "row"), "weights", "ij"],
      value: [t("values V"), normalized(value), "changes", "jc"],
      output: [t("output"), normalized(output), "changes", "ic"],
    };
    const counts = { i: n, j: m, d: size, c: valueSize };
    const matrix = (x, [name, shares, map, [down, across]]) => {
      const [rows, columns] = [counts[down], counts[across]];
      const wide = across === "j" ? columns * cell : Math.min(room, Math.max(columns * Math.min(cell, 6), 40));
      const box = { x, y: TOP, width: wide, height: rows * cell };
      const frames = [drawn("rect", { class: "rv-frame" }), drawn("rect", { class: "rv-frame rv-faint" })];
      framed.push({ ...box, step: wide / columns, down, across, frames });
      const image = drawn("image", { href: pictured(shares, rows, columns, dark, map), ...box, preserveAspectRatio: "none" });
      const point = (event) => {
        const place = image.getBoundingClientRect();
        const i = Math.floor(((event.clientY - place.top) / place.height) * rows);
        const j = Math.floor(((event.clientX - place.left) / place.width) * columns);
        if (i < 0 || i >= rows || j < 0 || j >= columns || (at[down] === i && at[across] === j)) return;
        Object.assign(at, { [down]: i, [across]: j });
        mark();
      };
      return drawn("g", { onpointermove: point, onclick: () => pin({ row: head.rows[0] + at.i }) },
        drawn("text", { x, y: 10, class: "rv-axis" }, name), image, drawn("rect", { class: "rv-edge", ...box }), ...frames);
    };
    const equation = (label, ...parts) => {
      const drawing = sized(drawn("svg", { role: "img", "aria-label": label }), width, Math.max(n, m) * cell + TOP + 4);
      parts.forEach(([sign, name], index) => {
        const x = index * (room + GAP);
        const middle = { x: x - GAP / 2, y: TOP + (Math.min(n, m) * cell) / 2, "text-anchor": "middle" };
        drawing.append(drawn("text", { ...middle, class: "rv-sign" }, sign), matrix(x, matrices[name]));
      });
      return drawing;
    };
    drawings = [
      equation(t("scores from queries and keys"), ["", "query"], ["·", "key"], ["=", "scores"]),
      equation(t("weights from scores and mask"), ["", "scores"], ["+", "mask"], ["→", "weights"]),
      equation(t("output from weights and values"), ["", "weights"], ["·", "value"], ["=", "output"]),
    ];

    const chooser = (name, label, text) => {
      const options = Array.from({ length: counts[name] }, (_, index) => element("option", { value: index }, text(index)));
      const choose = () => {
        at[name] = select.selectedIndex;
        if (name === "i") chooseBest();
        mark();
      };
      const select = element("select", { "aria-label": label, onchange: choose }, ...options);
      return { name, select, node: element("label", {}, label, " ", select) };
    };
    const choosers = [
      chooser("i", t("query"), (i) => `${head.rows[0] + i} ${queryName(i)}`),
      chooser("j", t("key"), (j) => `${head.keys[0] + j} ${keyName(j)}`),
      chooser("d", t("dimension of q and k"), String), chooser("c", t("dimension of v"), String)];
    const [product, softmax, sum] = [element("p"), element("p"), element("p")];
    const bars = sized(drawn("svg", { class: "rv-products", role: "img" }), width, 74);
    const numbers = element("div");
    const formula = (text) => element("p", { class: "rv-formula" }, text);
    node.replaceChildren(element("div", { class: "rv-controls" }, ...choosers.map((one) => one.node)),
      formula(t("scores = scale · q·k")), drawings[0], bars, product,
      formula(t("weights = softmax(scores + mask)")), drawings[1], softmax,
      formula(t("output = Σ weight · value")), drawings[2], sum,
      element("details", { open: isOpen, ontoggle: (event) => { isOpen = event.target.open; } },
        element("summary", {}, t("the numbers of this query")), numbers));
    if (!head.exact) {
      node.append(element("p", { class: "rv-note" }, t("This model adds something to its scores, such as a position bias: "
        + "the weights are its own, and not the softmax of these scores alone.")));
    }

    function mark() {
      choosers.forEach(({ name, select }) => { select.selectedIndex = at[name]; });
      framed.forEach(({ x, width: wide, height, step, down, across, frames }) => {
        set(frames[0], { x, y: TOP + at[down] * cell, width: wide, height: cell });
        set(frames[1], { x: x + at[across] * step, y: TOP, width: step, height });
      });
      markProducts();
      markSum();
    }

    /** The products of every dimension, the score that they add up to, and its weight. */
    function markProducts() {
      const { i, j, d } = at;
      const names = { query: queryName(i), key: keyName(j) };
      const terms = Array.from({ length: size }, (_, index) => query[i * size + index] * key[j * size + index]);
      const largest = Math.max(...terms.map(Math.abs), 1e-12);
      const step = Math.min(14, (width - 60) / size);
      const bar = (term, index) => drawn("rect", {
        x: index * step + 0.5, y: term < 0 ? 46 : 46 - (26 * term) / largest, width: Math.max(1, step - 1),
        height: Math.max(0.5, (26 * Math.abs(term)) / largest),
        class: `${term < 0 ? "rv-negative" : "rv-positive"}${index === d ? " rv-current" : ""}`,
      });
      const shortened = { query: short(names.query, 16), key: short(names.key, 16) };
      set(bars, { "aria-label": t("the product of query and key in every dimension") });
      bars.replaceChildren(
        drawn("text", { x: 0, y: 10, class: "rv-axis" }, t("q · k by dimension, “{query}” · “{key}”", shortened)),
        drawn("line", { x1: 0, x2: size * step, y1: 46, y2: 46, class: "rv-edge" }), ...terms.map(bar));
      const [whole, score, weight] = [head.products, head.scores, weights].map((numbers_) => numbers_[i * m + j]);
      product.textContent = t("q[{d}] · k[{d}] = {q} · {k} = {term}. Over all dimensions q·k = {product}, "
        + "and the score is {scale} · {product} = {score}.", {
        d, q: written(query[i * size + d]), k: written(key[j * size + d]), term: written(terms[d]),
        product: written(whole), scale: written(head.scale), score: written(score),
      });
      softmax.textContent = weight === 0
        ? t("“{query}” may not look at “{key}”: its score becomes −∞ and its weight 0.", names)
        : t("“{query}” → “{key}”: e^{score} / Σ e^score = {weight}.", { ...names, score: written(score), weight: written(weight) });
    }

    /** One dimension of the output: the largest terms of its sum, and all of them as a table. */
    function markSum() {
      const { i, c } = at;
      const valueOf = (j) => value[j * valueSize + c];
      const terms = Array.from({ length: m }, (_, j) => ({ j, weight: weights[i * m + j], term: weights[i * m + j] * valueOf(j) }));
      const named = [...terms].sort((one, two) => Math.abs(two.term) - Math.abs(one.term)).slice(0, TERMS);
      const total = output[i * valueSize + c];
      const rest = total - named.reduce((all, { term }) => all + term, 0);
      const texts = named.map(({ j, weight }) => `${written(weight)} · ${written(valueOf(j))} (${keyName(j)})`);
      sum.textContent = `${t("output of “{query}”, dimension {c}", { query: queryName(i), c })}: ${texts.join(" + ")} + `
        + `${written(rest)} (${t("others")}) = ${written(total)}`;
      numbers.replaceChildren(table(t("What “{query}” does with every key", { query: queryName(i) }),
        [t("key"), "q·k", t("score"), t("weight"), `v[${c}]`, `${t("weight")} · v[${c}]`],
        terms.map(({ j, weight, term }) => [keyName(j), written(head.products[i * m + j]),
          weight === 0 ? "−∞" : written(head.scores[i * m + j]), written(weight), written(valueOf(j)), written(term)])));
    }
    mark();
  }
  return { node, draw, drawings: () => drawings };
}
