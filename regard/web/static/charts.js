// Lines, dots and bands on a canvas, in the colours of the page.

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "faint", "samples", "truth", "attention", "pooled"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A chart over a canvas: x and y are ranges; the functions it returns draw in them. */
export function chart(canvas, { x, y, left = 44, bottom = 26, label = "" }) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth || 640;
  const height = canvas.clientHeight || 320;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  const ink = colours();
  context.scale(ratio, ratio);
  context.font = "12px system-ui, sans-serif";
  const toX = (value) => left + ((value - x[0]) / (x[1] - x[0] || 1)) * (width - left - 8);
  const toY = (value) => height - bottom - ((value - y[0]) / (y[1] - y[0] || 1)) * (height - bottom - 8);
  const fromX = (pixel) => x[0] + ((pixel - left) / (width - left - 8)) * (x[1] - x[0]);
  const fromY = (pixel) => y[0] + ((height - bottom - pixel) / (height - bottom - 8)) * (y[1] - y[0]);

  context.strokeStyle = ink.faint;
  context.fillStyle = ink.ink;
  for (const value of ticks(x)) {
    line([[value, y[0]], [value, y[1]]], ink.faint, 1);
    context.textAlign = "center";
    context.fillText(String(value), toX(value), height - 8);
  }
  for (const value of ticks(y)) {
    line([[x[0], value], [x[1], value]], ink.faint, 1);
    context.textAlign = "right";
    context.fillText(String(value), left - 6, toY(value) + 4);
  }
  if (label) {
    context.textAlign = "right";
    context.fillText(label, width - 10, height - bottom - 6);
  }

  function line(points, colour, width = 2, dash = []) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([px, py], index) => context[index ? "lineTo" : "moveTo"](toX(px), toY(py)));
    context.stroke();
    context.setLineDash([]);
  }

  function dots(points, colour, size = 3.5, chosen = -1) {
    context.fillStyle = colour;
    context.beginPath(); // one for all of them: hundreds of paths take longer than a frame
    points.forEach(([px, py], index) => {
      const [across, down, radius] = [toX(px), toY(py), index === chosen ? size * 1.8 : size];
      context.moveTo(across + radius, down);
      context.arc(across, down, radius, 0, 2 * Math.PI);
    });
    context.fill();
  }

  return { line, dots, toX, toY, fromX, fromY, context, ink };
}

/** Round numbers in a range, four to eight of them. */
export function ticks([low, high]) {
  const span = high - low || 1;
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= rough);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    values.push(Number(value.toPrecision(6)));
  }
  return values;
}
