// Inside one head: from queries and keys to scores, by the mask to weights, with the values to the output. Every matrix is
// linked to the others; pointing at a cell shows the products that make it.

import { normalized, pictured, sharesOf } from "./colours.js";
import { drawn, element, short, table } from "./dom.js";
import { t } from "./words.js";

const TERMS = 3; // that a sum names
const number = (value) => (Number.isFinite(value) ? value.toFixed(Math.abs(value) < 10 ? 3 : 2).replace("-", "−") : value < 0 ? "−∞" : "");

/** The view of one head; `draw(known, layer, dark, width, row)` with what a source's `inside` has. */
export function insideView({ pin }) {
  const node = element("div", { class: "rv-inside" });
  let drawings = [];
  let draw = () => {};

  function show(known, layer, dark, width, row) {
    const [size, valueSize] = known.size;
    const [n, m] = [known.rows[1] - known.rows[0], known.keys[1] - known.keys[0]];
    const { query, key, value, output, weights } = known;
    const products = new Float32Array(n * m); // q·k
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < m; j += 1) {
        let sum = 0;
        for (let d = 0; d < size; d += 1) sum += query[i * size + d] * key[j * size + d];
        products[i * m + j] = sum;
      }
    }
    const scores = products.map((product) => product * known.scale);
    const masked = weights.map((weight) => (weight === 0 ? 1 : 0));
    const at = { i: Math.min(Math.max((row ?? known.rows[1] - 1) - known.rows[0], 0), n - 1), j: 0, d: 0, c: 0 };
    const best = () => {
      for (let j = 0; j < m; j += 1) if (weights[at.i * m + j] > weights[at.i * m + at.j]) at.j = j;
    };
    best();
    const largestOf = (count, value_) => Array.from({ length: count }, (_, index) => index).reduce((most, index) => (Math.abs(value_(index)) > Math.abs(value_(most)) ? index : most), 0);
    at.d = largestOf(size, (d) => query[at.i * size + d] * key[at.j * size + d]);
    at.c = largestOf(valueSize, (c) => output[at.i * valueSize + c]);

    const queryName = (i) => layer.tokens[known.rows[0] + i];
    const keyName = (j) => layer.key_tokens[known.keys[0] + j];
    const gap = 26;
    const room = Math.min(210, (width - 2 * gap) / 3);
    const cell = Math.max(2, Math.min(16, room / Math.max(n, m)));
    const boxes = [];
    /** A matrix at x: its name, its picture, and a frame for the row and the column that are chosen. */
    const matrix = (x, name, numbers, [rows, columns], map, [down, across]) => {
      const wide = columns === size || columns === valueSize ? Math.min(room, Math.max(columns * Math.min(cell, 6), 40)) : columns * cell;
      const frames = [drawn("rect", { class: "rv-frame" }), drawn("rect", { class: "rv-frame rv-faint" })];
      const [stepX, stepY] = [wide / columns, cell];
      boxes.push({ x, stepX, stepY, rows, columns, down, across, frames });
      const image = drawn("image", { href: pictured(numbers, rows, columns, dark, map), x, y: 22, width: wide, height: rows * stepY, preserveAspectRatio: "none" });
      const node = drawn("g", {}, drawn("text", { x, y: 10, class: "rv-axis" }, name), image,
        drawn("rect", { class: "rv-edge", x, y: 22, width: wide, height: rows * stepY }), ...frames);
      node.addEventListener("pointermove", (event) => {
        const box = image.getBoundingClientRect();
        const place = [Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns)];
        if (place[0] < 0 || place[0] >= rows || place[1] < 0 || place[1] >= columns) return;
        if (at[down] === place[0] && at[across] === place[1]) return;
        [at[down], at[across]] = place;
        mark();
      });
      node.addEventListener("click", () => pin({ row: known.rows[0] + at.i }));
      return node;
    };
    const line = (label, ...parts) => {
      const drawing = drawn("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${Math.max(n, m) * cell + 26}`, width, height: Math.max(n, m) * cell + 26 });
      const step = room + gap;
      parts.forEach(([sign, ...rest], index) => {
        if (sign) drawing.append(drawn("text", { x: index * step - gap / 2, y: 22 + (Math.min(n, m) * cell) / 2, "text-anchor": "middle", class: "rv-sign" }, sign));
        drawing.append(matrix(index * step, ...rest));
      });
      return drawing;
    };
    const signed = (numbers) => normalized(numbers);
    const weightShares = sharesOf(weights, n, m, "row");
    drawings = [
      line(t("scores from queries and keys"), ["", t("queries Q"), signed(query), [n, size], "changes", ["i", "d"]],
        ["·", t("keys K"), signed(key), [m, size], "changes", ["j", "d"]], ["=", t("scores"), signed(scores), [n, m], "changes", ["i", "j"]]),
      line(t("weights from scores and mask"), ["", t("scores"), signed(scores), [n, m], "changes", ["i", "j"]],
        ["+", t("mask (grey: −∞)"), masked, [n, m], "mask", ["i", "j"]], ["→", t("weights"), weightShares, [n, m], "weights", ["i", "j"]]),
      line(t("output from weights and values"), ["", t("weights"), weightShares, [n, m], "weights", ["i", "j"]],
        ["·", t("values V"), signed(value), [m, valueSize], "changes", ["j", "c"]], ["=", t("output"), signed(output), [n, valueSize], "changes", ["i", "c"]]),
    ];

    const chooser = (name, label, options) => {
      const select = element("select", { "aria-label": label, onchange: () => { at[name] = select.selectedIndex; if (name === "i") best(); mark(); } },
        ...options.map((text, index) => element("option", { value: index }, text)));
      return { name, select, node: element("label", {}, label, " ", select) };
    };
    const numbered = (count) => Array.from({ length: count }, (_, index) => String(index));
    const choosers = [
      chooser("i", t("query"), numbered(n).map((i) => `${known.rows[0] + Number(i)} ${queryName(Number(i))}`)),
      chooser("j", t("key"), numbered(m).map((j) => `${known.keys[0] + Number(j)} ${keyName(Number(j))}`)),
      chooser("d", t("dimension of q and k"), numbered(size)), chooser("c", t("dimension of v"), numbered(valueSize))];
    const [sumText, softText, outText] = [element("p"), element("p"), element("p")];
    const bars = drawn("svg", { class: "rv-products", role: "img", viewBox: `0 0 ${width} 74`, width, height: 74 });
    const rest = element("div");
    node.replaceChildren(element("div", { class: "rv-controls" }, ...choosers.map((one) => one.node)),
      element("p", { class: "rv-formula" }, t("scores = scale · q·k")), drawings[0], bars, sumText,
      element("p", { class: "rv-formula" }, t("weights = softmax(scores + mask)")), drawings[1], softText,
      element("p", { class: "rv-formula" }, t("output = Σ weight · value")), drawings[2], outText,
      element("details", {}, element("summary", {}, t("the numbers of this query")), rest));
    if (!known.exact) node.append(element("p", { class: "rv-note" }, t("This model adds something to its scores, such as a position bias: the weights are its own, and not the softmax of these scores alone.")));

    function mark() {
      const { i, j, d, c } = at;
      choosers.forEach(({ name, select }) => { select.selectedIndex = at[name]; });
      boxes.forEach(({ x, stepX, stepY, rows, columns, down, across, frames }) => {
        const set = (frame, box) => Object.entries(box).forEach(([name, value]) => frame.setAttribute(name, value));
        set(frames[0], { x, y: 22 + at[down] * stepY, width: columns * stepX, height: stepY });
        set(frames[1], { x: x + at[across] * stepX, y: 22, width: stepX, height: rows * stepY });
      });
      const terms = Array.from({ length: size }, (_, index) => query[i * size + index] * key[j * size + index]);
      const largest = Math.max(...terms.map(Math.abs), 1e-12);
      const step = Math.min(14, (width - 60) / size);
      bars.setAttribute("aria-label", t("the product of query and key in every dimension"));
      bars.replaceChildren(drawn("text", { x: 0, y: 10, class: "rv-axis" }, t("q · k by dimension, “{query}” · “{key}”", { query: short(queryName(i), 16), key: short(keyName(j), 16) })),
        drawn("line", { x1: 0, x2: size * step, y1: 46, y2: 46, class: "rv-edge" }),
        ...terms.map((term, index) => drawn("rect", { x: index * step + 0.5, y: term < 0 ? 46 : 46 - (26 * term) / largest, width: Math.max(1, step - 1),
          height: Math.max(0.5, (26 * Math.abs(term)) / largest), class: `${term < 0 ? "rv-negative" : "rv-positive"}${index === d ? " rv-current" : ""}` })));
      const product = products[i * m + j];
      sumText.textContent = t("q[{d}] · k[{d}] = {q} · {k} = {term}. Over all dimensions q·k = {product}, and the score is {scale} · {product} = {score}.", {
        d, q: number(query[i * size + d]), k: number(key[j * size + d]), term: number(terms[d]), product: number(product),
        scale: number(known.scale), score: number(scores[i * m + j]) });
      const weight = weights[i * m + j];
      softText.textContent = weight === 0
        ? t("“{query}” may not look at “{key}”: its score becomes −∞ and its weight 0.", { query: queryName(i), key: keyName(j) })
        : t("“{query}” → “{key}”: e^{score} / Σ e^score = {weight}.", { query: queryName(i), key: keyName(j), score: number(scores[i * m + j]), weight: number(weight) });
      const shares = Array.from({ length: m }, (_, index) => [weights[i * m + index] * value[index * valueSize + c], index]);
      const named = [...shares].sort((one, two) => Math.abs(two[0]) - Math.abs(one[0])).slice(0, TERMS);
      const left = output[i * valueSize + c] - named.reduce((sum, [share]) => sum + share, 0);
      outText.textContent = `${t("output of “{query}”, dimension {c}", { query: queryName(i), c })}: ${named.map(([, index]) =>
        `${number(weights[i * m + index])} · ${number(value[index * valueSize + c])} (${keyName(index)})`).join(" + ")} + ${number(left)} (${t("others")}) = ${number(output[i * valueSize + c])}`;
      rest.replaceChildren(table(t("What “{query}” does with every key", { query: queryName(i) }),
        [t("key"), "q·k", t("score"), t("weight"), `v[${c}]`, `${t("weight")} · v[${c}]`],
        shares.map(([share, index]) => [keyName(index), number(products[i * m + index]), masked[i * m + index] ? "−∞" : number(scores[i * m + index]),
          number(weights[i * m + index]), number(value[index * valueSize + c]), number(share)])));
    }
    draw = mark;
    mark();
  }
  return { node, draw: show, mark: () => draw(), drawings: () => drawings };
}
