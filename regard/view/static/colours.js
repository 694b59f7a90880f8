// Numbers as colours: one map for weights, from paper to ink, and one for differences, both in light and in dark.

import { element } from "./dom.js";

// Stops from 0 to 1; of changes from −1 to 1.
const MAPS = {
  weights: {
    light: [[255, 255, 255], [253, 226, 196], [240, 148, 60], [196, 75, 0], [84, 25, 4]],
    dark: [[30, 33, 40], [92, 44, 18], [206, 95, 20], [255, 170, 100], [255, 243, 224]],
  },
  changes: {
    light: [[0, 68, 122], [86, 160, 214], [255, 255, 255], [240, 148, 60], [150, 50, 0]],
    dark: [[150, 214, 255], [38, 112, 164], [30, 33, 40], [190, 88, 20], [255, 190, 130]],
  },
  mask: { light: [[255, 255, 255], [190, 196, 205]], dark: [[30, 33, 40], [98, 105, 117]] },
};

/** Whether an element stands on a dark page: by the theme that was chosen around it, or by the system's. */
export function isDark(node) {
  const theme = node.closest("[data-theme]")?.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const between = (stops, share) => {
  const position = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(position), stops.length - 2);
  return stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (position - low)));
};

/** The colour of a share between 0 and 1; of a change between −1 and 1. */
export const colour = (share, dark, map = "weights") =>
  between(MAPS[map][dark ? "dark" : "light"], map === "changes" ? (share + 1) / 2 : share);

/** The colour of letters that can be read on it: black or white, whichever has the contrast that WCAG asks for. */
export function readable(share, dark, map = "weights") {
  const linear = colour(share, dark, map).map((part) => part / 255)
    .map((part) => (part <= 0.04 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.179 ? "#fff" : "#000";
}

export const SCALES = ["row", "weight", "log"];
const DECADES = 3; // of the logarithmic scale

/** The share of the darkest colour that a weight gets, where `largest` is that of its row. */
export function shareOf(weight, largest, scale) {
  if (scale === "row") return largest > 0 ? weight / largest : 0;
  if (scale === "log") return weight > 0 ? Math.max(0, 1 + Math.log10(weight) / DECADES) : 0;
  return weight;
}

/** Weights (n × m) as shares. */
export function sharesOf(weights, n, m, scale) {
  const shares = new Float32Array(n * m);
  for (let row = 0; row < n; row += 1) {
    let largest = 0;
    for (let at = row * m; at < (row + 1) * m; at += 1) largest = Math.max(largest, weights[at]);
    for (let at = row * m; at < (row + 1) * m; at += 1) shares[at] = shareOf(weights[at], largest, scale);
  }
  return shares;
}

const ramps = new Map();
function ramp(dark, map) {
  const name = `${dark}${map}`;
  if (!ramps.has(name)) {
    const shareAt = (step) => (map === "changes" ? step / 127.5 - 1 : step / 255);
    const steps = Array.from({ length: 256 }, (_, step) => colour(shareAt(step), dark, map));
    ramps.set(name, Uint8ClampedArray.from(steps.flat()));
  }
  return ramps.get(name);
}

/** Shares (n × m) on a canvas, a pixel each. */
export function painted(shares, n, m, dark, map = "weights", canvas = element("canvas")) {
  canvas.width = Math.max(m, 1);
  canvas.height = Math.max(n, 1);
  if (!n || !m) return canvas;
  const image = new ImageData(m, n);
  const colours = ramp(dark, map);
  for (let index = 0; index < n * m; index += 1) {
    const share = map === "changes" ? (shares[index] + 1) / 2 : shares[index];
    const step = 3 * Math.round(255 * Math.min(Math.max(share, 0), 1));
    image.data[4 * index] = colours[step];
    image.data[4 * index + 1] = colours[step + 1];
    image.data[4 * index + 2] = colours[step + 2];
    image.data[4 * index + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Numbers (n × m) in at most rows × columns cells, each the largest in size of those it stands for. */
export function pooled(numbers, n, m, rows, columns) {
  if (n <= rows && m <= columns) return { numbers, n, m };
  const [height, width] = [Math.min(n, rows), Math.min(m, columns)];
  const cells = new Float32Array(height * width);
  for (let row = 0; row < n; row += 1) {
    const down = Math.floor((row * height) / n) * width;
    for (let column = 0; column < m; column += 1) {
      const at = down + Math.floor((column * width) / m);
      const number = numbers[row * m + column];
      if (Math.abs(number) > Math.abs(cells[at])) cells[at] = number;
    }
  }
  return { numbers: cells, n: height, m: width };
}

/** Numbers (n × m) as the address of a picture, for an <image>; `most` is the largest number of pixels on a side. */
export function pictured(numbers, n, m, dark, map, most = 400) {
  const small = pooled(numbers, n, m, most, most);
  return painted(small.numbers, small.n, small.m, dark, map).toDataURL();
}

/** Numbers divided by the largest of them in size. */
export function normalized(numbers) {
  const largest = numbers.reduce((most, number) => Math.max(most, Math.abs(number)), 1e-12);
  return numbers.map((number) => number / largest);
}
