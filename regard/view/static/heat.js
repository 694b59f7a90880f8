// A head as a map: a row for each token that looks, a column for each that is looked at. Of a long text a window,
// beside an overview of the whole in which the largest weights stay visible.

import { pictured } from "./colours.js";
import { drawn, set, short, sized, widthOf } from "./dom.js";
import { t } from "./words.js";

const LETTER = 12; // pixels that a label needs

const stretched = { preserveAspectRatio: "none" };

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
    drawn("image", { href: pictured(steps, 1, 64, dark, map), x: x + 34, y, width, height: 10, ...stretched }),
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
    sized(root, width, height);
    const every = Math.ceil(LETTER / cell);
    const labels = [];
    for (let row = 0; row < n; row += every) {
      const y = top + (row + 0.5) * cell;
      labels.push(drawn("text", { x: left - 6, y, "text-anchor": "end", "data-row": rows[0] + row },
        short(layer.tokens[rows[0] + row], Math.floor(left / 7.2) - 1)));
    }
    for (let key = 0; key < m; key += every) {
      const x = left + (key + 0.5) * cell;
      const transform = `rotate(-90 ${x} ${top - 6})`;
      labels.push(drawn("text", { x, y: top - 6, transform, "data-column": keys[0] + key },
        short(layer.key_tokens[keys[0] + key], 9)));
    }
    frames = { row: drawn("rect", { class: "rv-frame" }), column: drawn("rect", { class: "rv-frame" }) };
    const size = { x: left, y: top, width: across, height: down };
    const cells = part(shares, layer.key_tokens.length, rows, keys);
    root.replaceChildren(
      drawn("image", { href: pictured(cells, n, m, dark, map), ...size, ...stretched }),
      drawn("rect", { class: "rv-edge", ...size }),
      drawn("text", { class: "rv-axis", x: left, y: 10 }, t("key (is looked at) →")),
      drawn("text", { class: "rv-axis", x: left - 6, y: top - 8, "text-anchor": "end" }, t("query (looks) ↓")),
      ...labels, frames.row, frames.column, legend(left, top + down + 16, 120, dark, map, ends));
    mark(shown.chosen ?? null);
  }

  function mark(chosen) {
    if (!frames) return;
    const { rows, keys } = shown;
    const { left, top, cell } = place;
    const inRows = chosen?.row >= rows[0] && chosen?.row < rows[1];
    const inKeys = chosen?.column >= keys[0] && chosen?.column < keys[1];
    const nothing = { width: 0, height: 0 };
    const [across, down] = [(keys[1] - keys[0]) * cell, (rows[1] - rows[0]) * cell];
    const y = top + (chosen?.row - rows[0]) * cell;
    const x = left + (chosen?.column - keys[0]) * cell;
    set(frames.row, inRows ? { x: left, y, width: across, height: cell } : nothing);
    set(frames.column, inKeys ? { x, y: top, width: cell, height: down } : nothing);
    root.querySelectorAll("[data-row], [data-column]").forEach((label) => {
      const { row, column } = label.dataset;
      label.classList.toggle("rv-chosen", Number(row) === chosen?.row || Number(column) === chosen?.column);
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
    sized(root, width, top + n * scale + 2);
    const most = Math.round((devicePixelRatio || 1) * Math.min(400, Math.max(m, n) * scale));
    frame = drawn("rect", { class: "rv-window" });
    root.replaceChildren(
      drawn("image", { href: pictured(shares, n, m, dark, map, most), ...size, ...stretched }),
      drawn("rect", { class: "rv-edge", ...size }),
      drawn("text", { class: "rv-axis", x: left, y: 9 }, t("key (is looked at) →")),
      drawn("text", { class: "rv-axis", x: 8, y: top, transform: `rotate(-90 8 ${top})`, "text-anchor": "end" },
        t("← query (looks)")),
      frame);
    root.setAttribute("aria-label", t("the whole text, {n} tokens, and the window on it", { n }));
    frame.toggleAttribute("hidden", !shown.isLong);
    const { rows, keys } = shown;
    const spans = { width: (keys[1] - keys[0]) * scale, height: (rows[1] - rows[0]) * scale };
    set(frame, { x: left + keys[0] * scale, y: top + rows[0] * scale, ...spans });
  }
  const drag = (event) => {
    if (!shown.isLong || (!event.buttons && event.type === "pointermove")) return;
    const box = root.getBoundingClientRect();
    const zoom = root.viewBox.baseVal.width / box.width;
    const [down, across] = [(event.clientY - box.top) * zoom - top, (event.clientX - box.left) * zoom - left];
    move(down / shown.scale, across / shown.scale);
  };
  root.addEventListener("pointerdown", (event) => { root.setPointerCapture(event.pointerId); drag(event); });
  root.addEventListener("pointermove", drag);
  return { node: root, draw };
}
