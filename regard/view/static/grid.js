// All heads as small pictures: layers below each other, or in the order of a score. One stop of the tab key, then
// arrows.

import { isDark, painted, sharesOf } from "./colours.js";
import { element } from "./dom.js";
import { t } from "./words.js";

/** Arrows, Home and End between the cells of a grid; `act(cell, key)` for Enter, Space and Escape. */
export function roving(grid, act) {
  const cellsOf = (row) => [...row.querySelectorAll("[role=gridcell]")];
  const rows = () => [...grid.querySelectorAll("[role=row]")].map(cellsOf).filter((row) => row.length);
  grid.addEventListener("keydown", (event) => {
    const cells = rows();
    const down = cells.findIndex((row) => row.includes(event.target));
    if (down < 0) return;
    const across = cells[down].indexOf(event.target);
    const at = (row, column) => cells[row]?.[Math.min(column, cells[row].length - 1)];
    const next = {
      ArrowLeft: () => at(down, Math.max(across - 1, 0)),
      ArrowRight: () => at(down, across + 1),
      ArrowUp: () => at(down - 1, across),
      ArrowDown: () => at(down + 1, across),
      Home: () => at(down, 0),
      End: () => at(down, cells[down].length - 1),
    }[event.key]?.();
    if (next) focusCell(grid, next, true);
    else if (["Enter", " ", "Escape"].includes(event.key)) act(event.target, event.key);
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  });
}

/** The cell that the tab key stops at. */
export function focusCell(grid, cell, moved = false) {
  grid.querySelectorAll("[role=gridcell][tabindex='0']").forEach((other) => other.setAttribute("tabindex", "-1"));
  cell.setAttribute("tabindex", "0");
  if (moved) cell.focus();
}

/** What is known of a head by its scores, the largest first: [[name, value], …]. */
export const scoresOf = (source, index, head) => Object.entries(source.scores)
  .map(([name, layers]) => [name, layers[index]?.[head]])
  .filter(([, value]) => value !== null && value !== undefined)
  .sort((one, two) => two[1] - one[1]);

/** The grid of a source's heads. `choose(index, head, adds)` is called for a click, Enter (opens) and Space (adds). */
export function headGrid(source, { choose, leave, small = source.small, map = "weights" }) {
  const named = { "aria-label": t("layers and heads"), "aria-multiselectable": "true" };
  const node = element("div", { class: "rv-grid", role: "grid", ...named });
  const columns = Math.max(...source.layers.map((layer) => layer.heads.length));
  node.style.setProperty("--columns", columns);
  const cells = new Map();
  source.layers.forEach((layer, index) => layer.heads.forEach((number, head) => {
    const [best] = scoresOf(source, index, head);
    const name = t("layer {layer}, head {head}", { layer: layer.layer, head: number });
    const label = best ? `${name}: ${t(best[0])} ${best[1].toFixed(2)}` : name;
    const canvas = element("canvas", { "aria-hidden": "true" });
    const caption = element("small", { "aria-hidden": "true" });
    const place = `${index}.${head}`;
    const onclick = (event) => choose(index, head, event.shiftKey || event.ctrlKey || event.metaKey);
    const named = { "aria-label": label, title: label, "data-head": place };
    const cell = element("div", { role: "gridcell", tabindex: "-1", ...named, onclick }, canvas, caption);
    cells.set(place, { cell, canvas, caption, index, head });
  }));
  roving(node, (cell, key) => {
    const [index, head] = cell.dataset.head.split(".").map(Number);
    if (key === "Escape") leave();
    else choose(index, head, key === " ");
  });

  function arrange(sort) {
    const row = (name, members) =>
      element("div", { role: "row" }, element("span", { role: "rowheader" }, name), ...members.map(({ cell }) => cell));
    const all = [...cells.values()];
    if (!source.scores[sort]) {
      const numbers = source.layers.find((layer) => layer.heads.length === columns).heads;
      const corner = element("span", { role: "columnheader", class: "rv-corner" }, t("layer ↓ head →"));
      node.replaceChildren(
        element("div", { role: "row" }, corner,
          ...numbers.map((number) => element("span", { role: "columnheader" }, String(number)))),
        ...source.layers.map((layer, index) => row(String(layer.layer), all.filter((one) => one.index === index))));
      all.forEach(({ caption }) => { caption.textContent = ""; });
      return;
    }
    const value = ({ index, head }) => source.scores[sort][index]?.[head] ?? -1;
    all.sort((one, two) => value(two) - value(one));
    all.forEach((one) => {
      const place = `${source.layers[one.index].layer}·${source.layers[one.index].heads[one.head]}`;
      one.caption.textContent = value(one) < 0 ? place : `${place}\n${value(one).toFixed(2)}`;
    });
    const starts = all.map((_, number) => number).filter((number) => number % columns === 0);
    node.replaceChildren(...starts.map((start) => row(String(start + 1), all.slice(start, start + columns))));
  }

  async function paint(scale) {
    const dark = isDark(node);
    await Promise.all(source.layers.map(async (layer, index) => {
      const numbers = await small(index);
      const [n, m] = layer.side;
      layer.heads.forEach((_, head) => {
        const part = numbers.subarray(head * n * m, (head + 1) * n * m);
        const shares = map === "changes" ? part : sharesOf(part, n, m, scale);
        painted(shares, n, m, dark, map, cells.get(`${index}.${head}`).canvas);
      });
    }));
    node.dataset.painted = scale;
  }

  /** Mark the heads that are open: a frame in the colour of each. */
  function mark(heads) {
    cells.forEach(({ cell }, name) => {
      const place = heads.indexOf(name);
      cell.setAttribute("aria-selected", String(place >= 0));
      cell.className = place >= 0 ? `c${place}` : "";
    });
    const first = cells.get(heads[0]);
    if (!first || node.contains(document.activeElement)) return;
    focusCell(node, first.cell);
    const below = first.cell.offsetTop + first.cell.offsetHeight - node.scrollTop - node.clientHeight;
    if (below > 0 || first.cell.offsetTop < node.scrollTop) node.scrollTop += below + node.clientHeight / 2;
  }
  return { node, arrange, paint, mark };
}
