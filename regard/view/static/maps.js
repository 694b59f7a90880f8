// Attention maps to explore: layers × heads → one head → one token.
//
// A source has `levels`, `layers` ({layer, name, kind, heads, tokens, key_tokens}) and `weights(index, head)`, a promise
// of a Uint8Array with round(√w · levels) for every query and key, row by row. Tokens are text and never markup.

const LIGHT = [[253, 243, 230], [251, 203, 146], [238, 108, 75], [163, 18, 29]];
const DARK = [[43, 43, 54], [122, 44, 76], [228, 88, 75], [255, 214, 129]];
const THUMB = 72; // pixels
const LABELLED = 72; // tokens on an axis that all get labels
const TOP = 12; // keys in the table

/** A text with the values of its braces: "layer {layer}", { layer: 3 }. */
export const filled = (text, values = {}) => text.replace(/{(\w+)}/g, (braces, name) => values[name] ?? braces);

/** The source that a page of one file carries. */
export function fromPage(document) {
  const data = JSON.parse(document.getElementById("data").textContent);
  const cache = new Map();
  return {
    ...data,
    weights(index, head) {
      const name = `${index}.${head}`;
      if (!cache.has(name)) {
        const text = atob(data.layers[index].weights[head]);
        cache.set(name, inflatedBytes(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
      }
      return cache.get(name);
    },
  };
}

/** Bytes that were deflated. */
export async function inflatedBytes(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export const weightOf = (step, levels) => (step / levels) ** 2;

/** The colour of a weight between 0 and 1, on light pages and on dark ones. */
export function colour(weight, dark) {
  const stops = dark ? DARK : LIGHT;
  const position = Math.min(Math.max(weight, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(position), stops.length - 2);
  return stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (position - low)));
}

/** The colour of letters that can be read on it. */
export function readable(weight, dark) {
  const [red, green, blue] = colour(weight, dark);
  return 0.3 * red + 0.59 * green + 0.11 * blue < 140 ? "#fff" : "#111";
}

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** Steps (n × m) as an image, a pixel each. */
export function painted(steps, n, m, levels) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(m, 1);
  canvas.height = Math.max(n, 1);
  if (!n || !m) return canvas;
  const table = Array.from({ length: levels + 1 }, (_, step) => colour(weightOf(step, levels), isDark()));
  const image = new ImageData(m, n);
  for (let index = 0; index < n * m; index += 1) {
    const [red, green, blue] = table[steps[index]];
    image.data.set([red, green, blue, 255], 4 * index);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/**
 * Show a source in an element. `state` is {layer, head, row}, by index; `changed` is called with every new one;
 * `t(text, values)` gives a text in the language of the page.
 */
export function showMaps(root, source, { state = fromHash(), changed = toHash, t = filled } = {}) {
  const view = { layer: 0, head: 0, row: null, ...state };
  const grid = element("div", { class: "maps-grid", role: "group", "aria-label": t("layers and heads") });
  const title = element("h2");
  const canvas = element("canvas", { class: "maps-canvas", tabindex: "0", role: "img" });
  const words = element("div", { class: "maps-words" });
  const table = element("table", { class: "maps-table" });
  const legend = element("div", { class: "maps-legend" });
  const buttons = [];
  root.replaceChildren(grid, element("section", {}, title, canvas, legend, words, table));

  const inside = () => {
    view.layer = Math.min(Math.max(view.layer, 0), source.layers.length - 1);
    const layer = source.layers[view.layer];
    view.head = Math.min(Math.max(view.head, 0), layer.heads.length - 1);
    if (view.row !== null) view.row = Math.min(Math.max(view.row, 0), layer.tokens.length - 1);
    return layer;
  };

  const go = (change) => {
    Object.assign(view, change);
    inside();
    changed({ ...view });
    draw();
  };

  source.layers.forEach((layer, index) => {
    const row = element("div", { class: "maps-row" }, element("span", { title: layer.name }, String(layer.layer)));
    buttons.push(layer.heads.map((head, column) => {
      const small = element("canvas", { width: THUMB, height: THUMB, "aria-hidden": "true" });
      const label = t("layer {layer}, head {head}", { layer: layer.layer, head });
      const button = element("button", { type: "button", "aria-label": label, title: label }, small);
      button.addEventListener("click", () => go({ layer: index, head: column, row: null }));
      row.append(button);
      whenVisible(button, async () => {
        const steps = await source.weights(index, column);
        const image = painted(steps, layer.tokens.length, layer.key_tokens.length, source.levels);
        small.getContext("2d").drawImage(image, 0, 0, THUMB, THUMB);
      });
      return button;
    }));
    grid.append(row);
  });

  const scale = Array.from({ length: 24 }, (_, index) => {
    const box = element("i");
    box.style.background = `rgb(${colour(index / 23, isDark())})`;
    return box;
  });
  legend.append(`${t("weight")} 0 `, element("span", { "aria-hidden": "true" }, ...scale),
    ` 1 · ${t("rows: query (looks) · columns: key (looked at)")}`);

  let turn = 0;
  async function draw() {
    const layer = inside();
    const mine = (turn += 1);
    const steps = await source.weights(view.layer, view.head);
    if (mine !== turn) return; // another head was chosen meanwhile
    buttons.flat().forEach((button) => button.removeAttribute("aria-current"));
    buttons[view.layer][view.head].setAttribute("aria-current", "true");
    const place = t("layer {layer}, head {head}", { layer: layer.layer, head: layer.heads[view.head] });
    title.textContent = `${place} · ${t(layer.kind)} · ${layer.name}`;
    drawHead(canvas, layer, steps, source.levels, view.row);
    canvas.setAttribute("aria-label", t("{title}: queries (look) as rows, keys (looked at) as columns", { title: title.textContent }));
    showRow(words, table, layer, steps, source.levels, view.row, t);
  }

  canvas.addEventListener("click", (event) => {
    const layer = source.layers[view.layer];
    const cell = cellAt(canvas, event, layer);
    if (cell) go({ row: cell.row === view.row ? null : cell.row });
  });
  canvas.addEventListener("mousemove", async (event) => {
    const layer = source.layers[view.layer];
    const cell = cellAt(canvas, event, layer);
    const steps = await source.weights(view.layer, view.head);
    const weight = cell && weightOf(steps[cell.row * layer.key_tokens.length + cell.column], source.levels);
    canvas.title = cell ? `${layer.tokens[cell.row]} → ${layer.key_tokens[cell.column]}: ${weight.toFixed(3)}` : "";
  });
  root.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: { head: view.head - 1 },
      ArrowRight: { head: view.head + 1 },
      ArrowUp: view.row === null ? { layer: view.layer - 1 } : { row: view.row - 1 },
      ArrowDown: view.row === null ? { layer: view.layer + 1 } : { row: view.row + 1 },
      Enter: event.target === canvas && view.row === null ? { row: 0 } : null,
      Escape: { row: null },
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    go(moves[event.key]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  return { go, state: () => ({ ...view }) };
}

function whenVisible(button, work) {
  new IntersectionObserver((entries, observer) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      observer.disconnect();
      work();
    }
  }, { rootMargin: "200px" }).observe(button);
}

/** The layout of a head on its canvas: the size of a cell, and the room for tokens. */
function layout(layer) {
  const n = layer.tokens.length;
  const m = layer.key_tokens.length;
  const cell = Math.max(1, Math.min(26, Math.floor(720 / Math.max(n, m, 1))));
  const named = cell >= 9 && Math.max(n, m) <= LABELLED;
  const room = (tokens) => (named ? 12 + 7 * Math.min(14, Math.max(...tokens.map(widthOf), 1)) : 16);
  return { n, m, cell, named, left: room(layer.tokens), top: room(layer.key_tokens) };
}

const widthOf = (text) => [...text].reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x2e80 ? 2 : 1), 0);
const short = (text) => (widthOf(text) > 14 ? `${[...text].slice(0, 12).join("")}…` : text);

function drawHead(canvas, layer, steps, levels, row) {
  const { n, m, cell, named, left, top } = layout(layer);
  const ratio = devicePixelRatio || 1;
  canvas.width = (left + m * cell + 2) * ratio;
  canvas.height = (top + n * cell + 2) * ratio;
  canvas.style.width = `${left + m * cell + 2}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  const style = getComputedStyle(canvas);
  context.fillStyle = style.color;
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  context.drawImage(painted(steps, n, m, levels), left, top, m * cell, n * cell);
  if (named) {
    context.textAlign = "right";
    layer.tokens.forEach((token, query) => context.fillText(short(token), left - 5, top + (query + 0.5) * cell));
    context.textAlign = "left";
    layer.key_tokens.forEach((token, key) => {
      context.save();
      context.translate(left + (key + 0.5) * cell, top - 5);
      context.rotate(-Math.PI / 2);
      context.fillText(short(token), 0, 0);
      context.restore();
    });
  }
  if (row !== null) {
    context.strokeStyle = style.color;
    context.lineWidth = 2;
    context.strokeRect(left - 1, top + row * cell - 1, m * cell + 2, Math.max(cell, 2) + 2);
  }
}

/** The row and the column that a mouse event is on, or null. */
function cellAt(canvas, event, layer) {
  const { n, m, cell, left, top } = layout(layer);
  const box = canvas.getBoundingClientRect();
  const zoom = (left + m * cell + 2) / box.width;
  const row = Math.floor(((event.clientY - box.top) * zoom - top) / cell);
  const column = Math.floor(((event.clientX - box.left) * zoom - left) / cell);
  return row >= 0 && row < n && column >= 0 && column < m ? { row, column } : null;
}

/** One query: its weights as the colours of the tokens, and the largest as a table. */
function showRow(words, table, layer, steps, levels, row, t) {
  const m = layer.key_tokens.length;
  if (row === null) {
    words.textContent = t("Choose a row to see what one token looks at: click it, or press Enter and the arrow keys.");
    table.replaceChildren();
    return;
  }
  const weights = Array.from({ length: m }, (_, key) => weightOf(steps[row * m + key], levels));
  words.replaceChildren(
    element("b", {}, layer.tokens[row]),
    ` ${t("looks at")} `,
    ...weights.map((weight, key) => {
      const word = element("span", { title: weight.toFixed(3) }, layer.key_tokens[key]);
      word.style.background = `rgb(${colour(weight, isDark())})`;
      word.style.color = readable(weight, isDark());
      return word;
    }),
  );
  const order = weights.map((weight, key) => [weight, key]).sort((one, two) => two[0] - one[0]).slice(0, TOP);
  table.replaceChildren(
    element("caption", {}, t("What “{token}” looks at most", { token: layer.tokens[row] })),
    element("tr", {}, ...["key", "position", "weight"].map((name) => element("th", {}, t(name)))),
    ...order.map(([weight, key]) => element("tr", {}, element("td", {}, layer.key_tokens[key]),
      element("td", {}, String(key)), element("td", {}, weight.toFixed(3)))),
  );
}

function fromHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (given.has(name) ? Number.parseInt(given.get(name), 10) || 0 : null);
  return { layer: number("layer") ?? 0, head: number("head") ?? 0, row: number("row") };
}

function toHash({ layer, head, row }) {
  const given = new URLSearchParams({ layer, head, ...(row === null ? {} : { row }) });
  history.replaceState(null, "", `#${given}`);
}
