// A head as lines: the tokens that look at the left, those that are looked at on the right, and lines between them.

import { drawn, set, short, sized, widthOf } from "./dom.js";
import { t } from "./words.js";

export const DASHES = ["", "7 3", "2 3", "10 3 2 3", "1 4", "14 4"]; // a line style for each colour
const TOP = 30; // pixels above the first token
const OUTSIDE = 3; // tokens outside the window, above it and below it, that get a line
const LEAST = 0.01; // weight that is worth a line
const MOST_LINES = 360; // when no token is chosen
const PER_ROW = 4;

/**
 * Two strips of tokens. `hover` and `pin` are called with { row } or { column }, or null. `draw(shown, width)` draws
 * { layer, heads: [{ weights }], rows: [from, to], keys: [from, to] }, and `mark(chosen)` one token's lines.
 */
export function strips({ hover, pin }) {
  const root = drawn("svg", { class: "rv-strips", role: "img" });
  let shown = null;
  let place = null; // the geometry
  let parts = null;

  const lineTo = (start, end, weight, head, strong) => {
    const aside = 2.4 * (head - (shown.heads.length - 1) / 2); // heads that look at the same token lie side by side
    const [from, to] = [start + aside, end + aside];
    return drawn("path", {
      d: `M${place.left} ${from}C${place.middle} ${from} ${place.middle} ${to} ${place.right} ${to}`,
      class: `c${head}`, "stroke-dasharray": DASHES[head],
      "stroke-width": (strong ? 1.2 : 0.8) + (strong ? 3.5 : 2.2) * weight,
      "stroke-opacity": Math.min(1, (strong ? 0.3 : 0.1) + (strong ? 0.7 : 0.75) * Math.sqrt(weight)),
    });
  };

  function draw(what, width) {
    shown = what;
    const { layer, rows, keys, heads } = shown;
    const count = Math.max(rows[1] - rows[0], keys[1] - keys[0]);
    const isLong = layer.tokens.length > rows[1] - rows[0] || layer.key_tokens.length > keys[1] - keys[0];
    const names = [...layer.tokens.slice(...rows), ...layer.key_tokens.slice(...keys)];
    const longest = Math.max(...names.map(widthOf), isLong ? 12 : 6);
    const label = Math.max(64, Math.min(24 + 7.6 * longest, width * 0.26));
    const bars = Math.max(48, Math.min(130, width * 0.18));
    const height = Math.max(15, Math.min(24, 600 / count));
    const extra = isLong ? OUTSIDE : 0;
    place = { label, bars, height, extra, left: label, right: width - label - bars, middle: (width - bars) / 2, width };
    place.y = (index) => TOP + (index + extra + 0.5) * height;
    const total = TOP + (count + 2 * extra) * height + 6;
    sized(root, width, total);
    const letters = Math.floor(label / 7.4) - 1;
    const token = (text, index, side, from) => {
      const y = place.y(index - from);
      const isQuery = side === "row";
      const x = isQuery ? 0 : place.right + 4;
      const at = isQuery ? { x: label - 10, "text-anchor": "end" } : { x: x + 6 };
      return drawn("g", { "data-side": side, "data-index": index },
        drawn("rect", { x, y: y - height / 2 + 0.5, width: label - 4, height: height - 1, rx: 3, class: "rv-box" }),
        drawn("text", { ...at, y }, short(text, letters)));
    };
    const thin = (height - 5) / heads.length;
    const bar = (index) => (_, head) => drawn("rect", { class: `rv-bar c${head}`, x: width - bars + 2, width: bars - 38,
      y: place.y(index - keys[0]) - (height - 5) / 2 + head * thin, height: Math.max(1.5, thin - 0.5) });
    const atEnd = { class: "rv-number", x: width - 2, "text-anchor": "end" };
    const number = (index) => drawn("text", { ...atEnd, y: place.y(index - keys[0]) });
    const range = ([from, to]) => Array.from({ length: to - from }, (_, index) => from + index);
    parts = {
      lines: drawn("g", { class: "rv-lines" }),
      queries: range(rows).map((index) => token(layer.tokens[index], index, "row", rows[0])),
      keys: range(keys).map((index) => token(layer.key_tokens[index], index, "column", keys[0])),
      bars: range(keys).map((index) => heads.map(bar(index))),
      numbers: range(keys).map(number),
      outside: drawn("g", { class: "rv-outside" }),
    };
    parts.title = drawn("text", { x: width - 2, y: 12, "text-anchor": "end", class: "rv-axis" });
    const title = (x, anchor, text) => drawn("text", { x, y: 12, "text-anchor": anchor, class: "rv-axis" }, text);
    root.replaceChildren(parts.lines,
      title(label - 10, "end", t("looks")), title(place.right + 10, "start", t("is looked at")), parts.title,
      ...parts.queries, ...parts.keys, ...parts.bars.flat(), ...parts.numbers, parts.outside);
    mark(shown.chosen ?? null);
  }

  /** The lines, boxes and bars of one token; of all of them where none is chosen. */
  function mark(chosen) {
    if (!parts) return;
    const { heads, rows, keys, layer } = shown;
    const m = layer.key_tokens.length;
    const lines = [];
    const weightOf = (head, row, key) => heads[head].weights[row * m + key];
    const inKeys = (key) => key >= keys[0] && key < keys[1];
    const outside = [];
    let weightOfKey = () => 0; // by head and key: of the bars
    if (chosen?.row !== undefined) {
      weightOfKey = (head, key) => weightOf(head, chosen.row, key);
      if (chosen.row >= rows[0] && chosen.row < rows[1]) {
        const from = place.y(chosen.row - rows[0]);
        heads.forEach((_, head) => {
          for (let key = keys[0]; key < keys[1]; key += 1) {
            const weight = weightOf(head, chosen.row, key);
            if (weight >= LEAST) lines.push(lineTo(from, place.y(key - keys[0]), weight, head, true));
          }
        });
        outside.push(...outsideOf(chosen.row, lines, from));
      }
    } else if (chosen?.column !== undefined && inKeys(chosen.column)) {
      const to = place.y(chosen.column - keys[0]);
      heads.forEach((_, head) => {
        for (let row = rows[0]; row < rows[1]; row += 1) {
          const weight = weightOf(head, row, chosen.column);
          if (weight >= LEAST) lines.push(lineTo(place.y(row - rows[0]), to, weight, head, true));
        }
      });
    } else {
      lines.push(...strongest());
      const count = rows[1] - rows[0];
      weightOfKey = (head, key) => {
        let sum = 0;
        for (let row = rows[0]; row < rows[1]; row += 1) sum += weightOf(head, row, key);
        return sum / Math.max(1, count);
      };
    }
    parts.title.textContent = t(chosen?.row === undefined ? "mean" : "weight");
    parts.lines.replaceChildren(...lines);
    parts.outside.replaceChildren(...outside);
    const room = place.bars - 38;
    parts.bars.forEach((bars, index) => {
      const weights = bars.map((_, head) => weightOfKey(head, keys[0] + index));
      bars.forEach((bar, head) => bar.setAttribute("width", Math.max(0, room * Math.min(1, weights[head]))));
      const largest = Math.max(...weights);
      parts.numbers[index].textContent = largest >= 0.005 ? largest.toFixed(2) : "";
    });
    const boxed = (tokens, side, from) => tokens.forEach((group, index) => {
      const number = from + index;
      const isChosen = chosen?.[side] === number;
      let weight = 0;
      const most = (row, key) => Math.max(...heads.map((_, head) => weightOf(head, row, key)));
      if (side === "column" && chosen?.row !== undefined) weight = most(chosen.row, number);
      if (side === "row" && chosen?.column !== undefined) weight = most(number, chosen.column);
      set(group, { class: isChosen ? "rv-chosen" : "" });
      set(group.firstChild, { "fill-opacity": isChosen ? 1 : 0.7 * Math.sqrt(weight) });
    });
    boxed(parts.queries, "row", rows[0]);
    boxed(parts.keys, "column", keys[0]);
  }

  /** The largest weights of the window, a few for each row. */
  function strongest() {
    const { heads, rows, keys, layer } = shown;
    const all = [];
    heads.forEach(({ weights }, head) => {
      for (let row = rows[0]; row < rows[1]; row += 1) {
        const best = [];
        for (let key = keys[0]; key < keys[1]; key += 1) {
          const weight = weights[row * layer.key_tokens.length + key];
          if (weight >= 0.04 && (best.length < PER_ROW || weight > best[best.length - 1][0])) {
            best.push([weight, row, key, head]);
            best.sort((one, two) => two[0] - one[0]).splice(PER_ROW);
          }
        }
        all.push(...best);
      }
    });
    return all.sort((one, two) => two[0] - one[0]).slice(0, MOST_LINES).reverse()
      .map(([weight, row, key, head]) => lineTo(place.y(row - rows[0]), place.y(key - keys[0]), weight, head, false));
  }

  /** The tokens outside the window at which a row looks most, in the room above the keys and below them. */
  function outsideOf(row, lines, from) {
    if (!place.extra) return [];
    const { heads, keys, layer } = shown;
    const m = layer.key_tokens.length;
    const ranked = (low, high) => {
      const found = [];
      for (let key = low; key < high; key += 1) {
        const weight = Math.max(...heads.map((head) => head.weights[row * m + key]));
        if (weight >= LEAST) found.push([weight, key]);
      }
      return found.sort((one, two) => two[0] - one[0]).slice(0, OUTSIDE).sort((one, two) => one[1] - two[1]);
    };
    const count = keys[1] - keys[0];
    const above = ranked(0, keys[0]);
    const slots = [
      ...above.map((one, index) => [...one, index - above.length]),
      ...ranked(keys[1], m).map((one, index) => [...one, count + index]),
    ];
    return slots.map(([largest, key, slot]) => {
      const y = place.y(slot);
      heads.forEach((head, number) => {
        const weight = head.weights[row * m + key];
        if (weight >= LEAST) lines.push(lineTo(from, y, weight, number, true));
      });
      const name = short(layer.key_tokens[key], Math.floor(place.label / 7.4) - 6);
      return drawn("g", { "data-side": "column", "data-index": key },
        drawn("text", { x: place.right + 10, y }, `${slot < 0 ? "↑" : "↓"} ${name} ${key}`),
        drawn("text", { class: "rv-number", x: place.width - 2, y, "text-anchor": "end" }, largest.toFixed(2)));
    });
  }

  /** The token under the mouse. */
  function at(event) {
    if (!shown) return null;
    const { rows, keys } = shown;
    const box = root.getBoundingClientRect();
    const zoom = place.width / box.width;
    const x = (event.clientX - box.left) * zoom;
    const index = Math.floor(((event.clientY - box.top) * zoom - TOP) / place.height) - place.extra;
    if (x < place.left + 8 && index >= 0 && index < rows[1] - rows[0]) return { row: rows[0] + index };
    if (x > place.right - 8 && index >= 0 && index < keys[1] - keys[0]) return { column: keys[0] + index };
    return null;
  }
  root.addEventListener("pointermove", (event) => hover(at(event)));
  root.addEventListener("pointerleave", () => hover(null));
  root.addEventListener("click", (event) => {
    const outside = event.target.closest(".rv-outside g");
    pin(outside ? { column: Number(outside.dataset.index) } : at(event));
  });
  return { node: root, draw, mark };
}
