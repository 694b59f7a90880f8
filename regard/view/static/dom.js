// Elements, texts with values, and files: what all parts of a view are made with. Tokens are text and never markup.

/** A text with the values of its braces: "layer {layer}", { layer: 3 }. */
export const filled = (text, values = {}) => text.replace(/{(\w+)}/g, (braces, name) => values[name] ?? braces);

/** Set attributes of a node: listeners by names that begin with "on"; null, undefined and false leave one out. */
export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (![null, undefined, false].includes(value)) node.setAttribute(key, value === true ? "" : value);
  }
  return node;
}

function furnished(node, attributes, children) {
  set(node, attributes).append(...children);
  return node;
}

/** An HTML element. */
export const element = (name, attributes = {}, ...children) =>
  furnished(document.createElement(name), attributes, children);

/** An SVG element. */
export const drawn = (name, attributes = {}, ...children) =>
  furnished(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/** Give a drawing its size. */
export const sized = (drawing, width, height) => set(drawing, { viewBox: `0 0 ${width} ${height}`, width, height });

/** A choice of a few, as buttons side by side: `options` are [value, text, hint]; `choose` is called with the value. */
export function segmented(label, options, choose) {
  const buttons = options.map(([value, text, hint]) =>
    element("button", { type: "button", "data-value": value, title: hint, onclick: () => choose(value) }, text));
  const node = element("div", { class: "rv-segmented", role: "group", "aria-label": label }, ...buttons);
  const press = (value) => buttons.forEach((one) => set(one, { "aria-pressed": String(one.dataset.value === value) }));
  return { node, set: press };
}

/** A table from rows of texts; the first row and the first column are heads. */
export function table(caption, heads, rows) {
  const line = (cells, first) => element("tr", {}, ...cells.map((text, index) =>
    element(first || index === 0 ? "th" : "td", { scope: first ? "col" : index === 0 ? "row" : null }, String(text))));
  return element("table", { class: "rv-table" }, element("caption", {}, caption), line(heads, true),
    ...rows.map((cells) => line(cells, false)));
}

/** The width that letters take, in halves of a Chinese character. */
export const widthOf = (text) => [...text].reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x2e80 ? 2 : 1), 0);

/** A text of at most so many letters. */
export function short(text, most) {
  if (widthOf(text) <= most) return text;
  const kept = [];
  let width = 1;
  for (const letter of text) {
    width += widthOf(letter);
    if (width > most) break;
    kept.push(letter);
  }
  return `${kept.join("")}…`;
}

/** Bytes of base64. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "fill-opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "image-rendering", "visibility"];

/** Drawings side by side as one, as text: with the colours and letters that they have on this page. */
export function standalone(drawings) {
  let [width, height] = [0, 0];
  const paper = getComputedStyle(drawings[0]).getPropertyValue("--paper");
  const whole = drawn("svg", { xmlns: "http://www.w3.org/2000/svg" });
  for (const drawing of drawings) {
    const copy = drawing.cloneNode(true);
    const nodes = [drawing, ...drawing.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
      const style = getComputedStyle(nodes[index]);
      for (const name of KEPT) node.setAttribute(name, style.getPropertyValue(name));
      for (const name of ["class", "tabindex", "role"]) node.removeAttribute(name);
    });
    const box = drawing.viewBox.baseVal;
    set(copy, { x: width, y: 0, width: box.width, height: box.height });
    whole.append(copy);
    width += box.width + 24;
    height = Math.max(height, box.height);
  }
  width -= 24;
  set(whole, { viewBox: `-12 -12 ${width + 24} ${height + 24}`, width: width + 24, height: height + 24 });
  whole.prepend(drawn("rect", { x: -12, y: -12, width: width + 24, height: height + 24, fill: paper }));
  return new XMLSerializer().serializeToString(whole);
}

/** Save drawings as a file, by the name's ending: .svg or .png. */
export function saveDrawings(drawings, name) {
  const text = standalone(drawings);
  if (name.endsWith(".svg")) return save(name, new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = element("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, blob));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  return undefined;
}

function save(name, blob) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
