// A head as a map: a row for each token that looks, a column for each that is looked at. Of a long text a window, beside an
// overview of the whole in which the largest weights stay visible.

import { pictured } from "./colours.js";
import { drawn, short, widthOf } from "./dom.js";
import { t } from "./words.js";

const LETTER = 12; // pixels that a label needs

const part = (numbers, m, rows, keys) => {
  const [n, width] = [rows[1] - rows[0], keys[1] - keys[0]];
  const cells = new Float32Array(n * width);
  for (let row = 0; row < n; row += 1) {
    cells.set(numbers.subarray((rows[0] + row) * m + keys[0], (rows[0] + row) * m + keys[1]), row * width);
  }
  return cells;
};

/** The colours from the least to the largest, with what they stand for. */
function legend(x, y, width, dark, map, [low, high]) {
  const steps = Float32Array.from({ length: 64 }, (_, step) => (map === "changes" ? step / 31.5 - 1 : step / 63));
  return drawn("g", { class: "rv-legend" }, drawn("text", { x, y: y + 5 }, low),
    drawn("image", { href: pictured(steps, 1, 64, dark, map), x: x + 34, y, width, height: 10, preserveAspectRatio: "none" }),
    drawn("text", { x: x + width + 40, y: y + 5 }, high));
}

/** The map of a window. `draw({ layer, shares, rows, keys, map, dark, ends }, width)`, `mark(chosen)` as for strips. */
export function heatMap({ hover, pin }) {
  const root = drawn("svg", { class: "rv-heat", role: "img" });
  let shown = null;
  let place = null;
  let frames = null;

  function draw(what, width) {
    shown = what;
    const { layer, shares, rows, keys, map, dark, ends } = shown;
    const [n, m] = [rows[1] - rows[0], keys[1] - keys[0]];
    const left = Math.max(64, Math.min(140, width * 0.2));
    const top = 32 + 7.2 * Math.min(9, Math.max(...layer.key_tokens.slice(...keys).map(widthOf), 1));
    const cell = Math.max(2, Math.min(30, (width - left - 4) / Math.max(m, 1), 560 / Math.max(n, 1)));
    place = { left, top, cell, width };
    const [across, down] = [m * cell, n * cell];
    const height = top + down + 34;
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("width", width);
    root.setAttribute("height", height);
    const every = Math.ceil(LETTER / cell);
    const labels = [];
    for (let row = 0; row < n; row += every) {
      labels.push(drawn("text", { x: left - 6, y: top + (row + 0.5) * cell, "text-anchor": "end", "data-row": rows[0] + row },
        short(layer.tokens[rows[0] + row], Math.floor(left / 7.2) - 1)));
    }
    for (let key = 0; key < m; key += every) {
      const x = left + (key + 0.5) * cell;
      labels.push(drawn("text", { x, y: top - 6, transform: `rotate(-90 ${x} ${top - 6})`, "data-column": keys[0] + key },
        short(layer.key_tokens[keys[0] + key], 9)));
    }
    frames = { row: drawn("rect", { class: "rv-frame" }), column: drawn("rect", { class: "rv-frame" }) };
    root.replaceChildren(
      drawn("image", { href: pictured(part(shares, layer.key_tokens.length, rows, keys), n, m, dark, map), x: left, y: top, width: across, height: down,
        preserveAspectRatio: "none" }),
      drawn("rect", { class: "rv-edge", x: left, y: top, width: across, height: down }),
      drawn("text", { class: "rv-axis", x: left, y: 10 }, t("key (is looked at) →")),
      drawn("text", { class: "rv-axis", x: left - 6, y: top - 8, "text-anchor": "end" }, t("query (looks) ↓")),
      ...labels, frames.row, frames.column, legend(left, top + down + 16, 120, dark, map, ends));
    mark(shown.chosen ?? null);
  }

  function mark(chosen) {
    if (!frames) return;
    const { rows, keys } = shown;
    const { left, top, cell } = place;
    const frame = (node, is, box) => Object.entries(is ? box : { width: 0, height: 0 }).forEach(([name, value]) => node.setAttribute(name, value));
    const inRows = chosen?.row >= rows[0] && chosen?.row < rows[1];
    const inKeys = chosen?.column >= keys[0] && chosen?.column < keys[1];
    frame(frames.row, inRows, { x: left, y: top + (chosen?.row - rows[0]) * cell, width: (keys[1] - keys[0]) * cell, height: cell });
    frame(frames.column, inKeys, { x: left + (chosen?.column - keys[0]) * cell, y: top, width: cell, height: (rows[1] - rows[0]) * cell });
    root.querySelectorAll("[data-row], [data-column]").forEach((label) => {
      label.classList.toggle("rv-chosen", Number(label.dataset.row) === chosen?.row || Number(label.dataset.column) === chosen?.column);
    });
  }

  function at(event) {
    if (!shown) return null;
    const box = root.getBoundingClientRect();
    const zoom = place.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * zoom - place.left) / place.cell) + shown.keys[0];
    const row = Math.floor(((event.clientY - box.top) * zoom - place.top) / place.cell) + shown.rows[0];
    const inRows = row >= shown.rows[0] && row < shown.rows[1];
    const inKeys = column >= shown.keys[0] && column < shown.keys[1];
    if (inRows && inKeys) return { row, column };
    if (inRows && column < shown.keys[0]) return { row };
    return inKeys && row < shown.rows[0] ? { column } : null;
  }
  root.addEventListener("pointermove", (event) => hover(at(event)));
  root.addEventListener("pointerleave", () => hover(null));
  root.addEventListener("click", (event) => {
    const cell = at(event);
    pin(cell?.row === undefined ? cell : { row: cell.row });
  });
  return { node: root, draw, mark };
}

/** The whole map, small, with the window in it; `move(row, key)` when it is dragged: the middle of the new one. */
export function overview({ move }) {
  const root = drawn("svg", { class: "rv-overview", role: "img" });
  let shown = null;
  let frame = null;
  const [left, top] = [18, 18];
  function draw(what, width) {
    shown = what;
    const { layer, shares, map, dark } = shown;
    const [n, m] = [layer.tokens.length, layer.key_tokens.length];
    const scale = Math.min((width - left - 2) / m, (width - left) / n);
    shown.scale = scale;
    const size = { x: left, y: top, width: m * scale, height: n * scale };
    root.setAttribute("viewBox", `0 0 ${width} ${top + n * scale + 2}`);
    root.setAttribute("width", width);
    root.setAttribute("height", top + n * scale + 2);
    frame = drawn("rect", { class: "rv-window" });
    root.replaceChildren(
      drawn("image", { href: pictured(shares, n, m, dark, map, Math.round((devicePixelRatio || 1) * Math.min(400, Math.max(m, n) * scale))), ...size,
        preserveAspectRatio: "none" }),
      drawn("rect", { class: "rv-edge", ...size }),
      drawn("text", { class: "rv-axis", x: left, y: 9 }, t("key (is looked at) →")),
      drawn("text", { class: "rv-axis", x: 8, y: top, transform: `rotate(-90 8 ${top})`, "text-anchor": "end" }, t("← query (looks)")), frame);
    root.setAttribute("aria-label", t("the whole text, {n} tokens, and the window on it", { n }));
    frame.toggleAttribute("hidden", !shown.isLong);
    set(shown);
  }
  function set({ rows, keys }) {
    Object.assign(shown, { rows, keys });
    const box = { x: left + keys[0] * shown.scale, y: top + rows[0] * shown.scale, width: (keys[1] - keys[0]) * shown.scale, height: (rows[1] - rows[0]) * shown.scale };
    Object.entries(box).forEach(([name, value]) => frame.setAttribute(name, value));
  }
  const drag = (event) => {
    if (!shown.isLong || (!event.buttons && event.type === "pointermove")) return;
    const box = root.getBoundingClientRect();
    const zoom = root.viewBox.baseVal.width / box.width;
    move(((event.clientY - box.top) * zoom - top) / shown.scale, ((event.clientX - box.left) * zoom - left) / shown.scale);
  };
  root.addEventListener("pointerdown", (event) => { root.setPointerCapture(event.pointerId); drag(event); });
  root.addEventListener("pointermove", drag);
  return { node: root, draw, set };
}
