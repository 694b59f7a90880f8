// Nadaraya–Watson regression: drag samples, choose the kernel, slide the bandwidth or let it be learned.

import { latest } from "./app.js";
import { element, table } from "./dom.js";
import { chart } from "./charts.js";
import { colour, isDark } from "./colours.js";
import { t } from "./words.js";

const KERNELS = ["gaussian", "laplace", "constant", "boxcar", "triangular", "epanechnikov", "biweight", "triweight",
  "tricube", "cosine"];
const SHADES = 64; // of the weight map
const truth = (x) => 2 * Math.sin(x) + x ** 0.8; // the course notes' example

function random(seed) { // mulberry32
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

const fixed = (value, digits) => value === null ? "–" : value.toFixed(digits);

function sampled(count, seed, noise = 0.5) {
  const uniform = random(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return Array.from({ length: count }, () => {
    const x = 5 * uniform();
    return [x, truth(x) + noise * normal()];
  });
}

export function curveTab(root, page) {
  const get = (name, fallback) => page.values.get(name) ?? fallback;
  const state = {
    kernel: KERNELS.includes(get("kernel")) ? get("kernel") : "gaussian",
    bandwidth: Math.min(10, Math.max(0.01, Number(get("bandwidth", 0.4)) || 0.4)),
    count: Math.min(2000, Math.max(2, Math.round(Number(get("samples", 50))) || 50)),
    seed: Math.round(Number(get("seed", 0))) || 0,
    chosen: -1,
  };
  let samples = sampled(state.count, state.seed);
  for (const moved of (get("moved", "") || "").split(";").filter(Boolean)) {
    const [index, x, y] = moved.split(",").map(Number);
    if (samples[index] && Number.isFinite(x) && Number.isFinite(y)) samples[index] = [x, y];
  }
  let answer = null; // of the server, to the newest request

  const bandwidth = element("input", {
    id: "bandwidth", type: "range", min: "-2", max: "1", step: "0.01", value: String(Math.log10(state.bandwidth)),
    oninput: () => { state.bandwidth = 10 ** Number(bandwidth.value); changed(); },
  });
  const kernel = element("select", { id: "kernel", onchange: () => { state.kernel = kernel.value; changed(); } },
    ...KERNELS.map((name) => element("option", { value: name, selected: name === state.kernel }, name)));
  const count = element("input", {
    id: "count", type: "number", min: "2", max: "2000", value: String(state.count),
    onchange: () => resample({ count: Math.min(2000, Math.max(2, Math.round(Number(count.value)) || 50)) }),
  });
  const learn = element("button", { type: "button", onclick: () => request({ bandwidth_by: "gradient" }) }, t("learn w"));
  const other = element("button", { type: "button", onclick: () => resample({ seed: state.seed + 1 }) }, t("other samples"));
  const numbers = element("output", { id: "numbers", "aria-live": "polite" });
  const picture = element("canvas", { class: "wide", id: "curve", tabindex: "0", role: "img", "aria-label": t(
    "Samples, the curve through them and its window. Arrow keys: left and right choose a sample, with Shift they move it.",
  ) });
  const axes = t("Weight map: rows are queries (look), columns are samples (looked at)");
  const weights = element("canvas", { class: "square", id: "weights", role: "img", "aria-label": axes });
  const data = element("details", {}, element("summary", {}, t("the numbers behind the pictures")), element("div"));
  root.append(
    element("p", { class: "lead" },
      t("The curve is a weighted average of the samples: near ones count more. Drag a sample, or slide the bandwidth.")),
    element("div", { class: "controls" },
      element("label", { for: "kernel" }, t("kernel"), " "), kernel,
      element("label", { for: "bandwidth" }, t("bandwidth"), " "), bandwidth, learn,
      element("label", { for: "count" }, t("samples"), " "), count, other),
    numbers,
    element("div", { class: "side" }, picture, element("div", {}, weights, element("p", { class: "note" }, axes))),
    element("p", { class: "legend" }, element("b", { "aria-hidden": "true" }, "● "), t("samples"), element("i", { class: "truth" }), t("truth"),
      element("i", { class: "attention" }), t("curve"), element("i", { class: "window" }), t("holds 90 % of the weight")),
    data,
  );

  const ask = latest("curve", (newest) => {
    answer = newest;
    answer.bandwidth ??= Infinity; // which JSON does not have
    if (Number.isFinite(answer.bandwidth)) state.bandwidth = answer.bandwidth;
    bandwidth.value = String(Math.log10(state.bandwidth));
    page.set({ kernel: state.kernel, bandwidth: state.bandwidth.toPrecision(4), samples: state.count, seed: state.seed });
    draw();
  });
  const request = (more = {}) => ask({ samples, kernel: state.kernel, bandwidth: state.bandwidth, ...more });
  const changed = () => request();

  function resample(change) {
    Object.assign(state, change);
    samples = sampled(state.count, state.seed);
    count.value = String(state.count);
    page.set({ moved: null });
    request();
  }

  function draw() {
    if (!answer) return;
    const ys = [...samples.map(([, y]) => y), ...answer.y];
    const reach = { x: [Math.min(...answer.x), Math.max(...answer.x)], y: [Math.min(...ys) - 0.3, Math.max(...ys) + 0.3] };
    view = chart(picture, reach);
    // What holds 90 % of the weight of the query in the middle, as a band.
    const middle = Math.floor(answer.x.length / 2);
    view.context.fillStyle = view.ink.attention;
    view.context.globalAlpha = 0.12;
    if (answer.low[middle] !== null) { // else no sample is within reach
      const from = view.toX(answer.low[middle]);
      view.context.fillRect(from, 8, view.toX(answer.high[middle]) - from, picture.clientHeight - 34);
    }
    view.context.globalAlpha = 1;
    view.line([[answer.x[middle], reach.y[0]], [answer.x[middle], reach.y[1]]], view.ink.attention, 1, [3, 3]);
    view.line(answer.x.map((x) => [x, truth(x)]), view.ink.truth, 1.5);
    view.dots(samples, view.ink.samples, samples.length > 300 ? 2 : 3.5, state.chosen);
    view.line(answer.x.map((x, index) => [x, answer.y[index]]), view.ink.attention, 2.5);
    drawWeights();
    numbers.textContent = t(
      "bandwidth {bandwidth} (w = {w}) · {count} samples count for the middle · error {error} on the samples, "
      + "{left} on samples left out",
      {
        bandwidth: answer.bandwidth.toPrecision(3), w: (1 / answer.bandwidth).toPrecision(3),
        count: fixed(answer.effective[middle], 1), error: answer.error.toFixed(3), left: answer.loo_error.toFixed(3),
      },
    );
    numbers.dataset.bandwidth = String(answer.bandwidth);
    if (data.open) fill();
    picture.dataset.drawn = String(Number(picture.dataset.drawn || 0) + 1);
  }
  let view = null;

  function drawWeights() {
    const side = weights.clientWidth || 260;
    weights.width = answer.keys.length;
    weights.height = answer.queries.length;
    weights.style.height = `${side}px`;
    const all = answer.weights.flat();
    const largest = all.reduce((one, two) => Math.max(one, two), 1e-12);
    const dark = isDark(document.body);
    const shades = Array.from({ length: SHADES }, (_, step) => [...colour(step / (SHADES - 1), dark), 255]);
    const image = new ImageData(answer.keys.length, answer.queries.length);
    all.forEach((weight, index) => image.data.set(shades[Math.round(Math.sqrt(weight / largest) * (SHADES - 1))], 4 * index));
    weights.getContext("2d").putImageData(image, 0, 0);
  }

  function fill() {
    const every = Math.ceil(answer.x.length / 20);
    const rows = answer.x.filter((_, index) => index % every === 0).map((x, index) => {
      const at = index * every;
      return [x, answer.y[at], answer.low[at], answer.high[at], answer.effective[at]].map((value) => fixed(value, 2));
    });
    data.lastChild.replaceChildren(
      table(t("The curve and its window"), ["x", t("curve"), t("90 % from"), t("to"), t("samples that count")], rows),
    );
  }
  data.addEventListener("toggle", () => data.open && answer && fill());

  const nearest = (event) => {
    const box = picture.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1;
    let least = 18 ** 2;
    samples.forEach((sample, index) => {
      const distance = (view.toX(sample[0]) - x) ** 2 + (view.toY(sample[1]) - y) ** 2;
      if (distance < least) [best, least] = [index, distance];
    });
    return best;
  };
  const move = (index, x, y) => {
    samples[index] = [x, y];
    const moved = (page.values.get("moved") ?? "").split(";").filter((entry) => entry && !entry.startsWith(`${index},`));
    page.set({ moved: [...moved, `${index},${x.toFixed(3)},${y.toFixed(3)}`].slice(-40).join(";") });
    request();
  };
  picture.addEventListener("pointerdown", (event) => {
    if (!view) return;
    state.chosen = nearest(event);
    if (state.chosen >= 0) picture.setPointerCapture(event.pointerId);
    draw();
  });
  picture.addEventListener("pointermove", (event) => {
    if (state.chosen < 0 || !picture.hasPointerCapture(event.pointerId)) return;
    const box = picture.getBoundingClientRect();
    move(state.chosen, view.fromX(event.clientX - box.left), view.fromY(event.clientY - box.top));
  });
  picture.addEventListener("keydown", (event) => {
    const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const up = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Escape") state.chosen = -1;
    else if (event.shiftKey && state.chosen >= 0 && (along || up)) {
      const [x, y] = samples[state.chosen];
      move(state.chosen, x + 0.1 * (along ?? 0), y + 0.1 * (up ?? 0));
    } else if (along) {
      const order = samples.map((_, index) => index).sort((one, two) => samples[one][0] - samples[two][0]);
      const at = order.indexOf(state.chosen);
      state.chosen = order[(at + along + order.length) % order.length];
    } else return;
    event.preventDefault();
    draw();
  });
  new ResizeObserver(draw).observe(picture);
  request();
}
