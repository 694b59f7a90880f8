// A picture, its class by each model, and where they look: the ViT by layer and head, the ResNet beside it.

import { ask } from "./app.js";
import { element, table } from "./dom.js";
import { offer } from "./offer.js";
import { t } from "./words.js";

const SIDE = 240; // pixels

export async function imageTab(root, page) {
  root.append(element("p", { class: "lead" }, t("Choose a picture, or drop one: its class by each model, and where each looks.")));
  const offered = await ask("models", {});
  if (!offered) return;
  const fitting = offered.models.filter(({ kind }) => kind === "images");
  const larger = fitting.filter(({ name }) => !name.startsWith("small "));
  const models = (larger.length ? larger : fitting).map(({ name }) => name);
  const file = element("input", { type: "file", id: "file", accept: "image/*", onchange: () => take(file.files[0]) });
  const layer = element("select", { id: "layer", onchange: () => go({ layer: layer.value, head: "" }) });
  const head = element("select", { id: "head", onchange: () => go({ head: head.value }) });
  const examples = element("div", { class: "examples", role: "group", "aria-label": t("examples") });
  const results = element("div", { class: "tables", id: "results" });
  root.append(
    element("div", { class: "controls" }, element("label", { for: "file" }, t("picture"), " "), file,
      element("label", { for: "layer" }, t("layer"), " "), layer, element("label", { for: "head" }, t("head"), " "), head),
    examples, results,
  );
  let answers = []; // one for each model

  const offeredPictures = await ask("examples", {});
  if (!offeredPictures) return;
  examples.append(...offeredPictures.pictures.map((url, number) => {
    const button = element("button", { type: "button", "aria-label": t("the digit {number}", { number }), onclick: () => {
      page.set({ example: number }, { step: true });
      look(url);
    } }, element("img", { src: url, alt: "", width: "32", height: "32" }));
    return button;
  }));

  function take(picked) {
    if (!picked) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => { page.set({ example: null }); look(reader.result); });
    reader.readAsDataURL(picked);
  }
  root.addEventListener("dragover", (event) => event.preventDefault());
  root.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });

  async function look(picture) {
    const newer = [];
    for (const model of models) {
      const answer = await ask("picture", { model, picture });
      if (!answer) return;
      newer.push(answer);
    }
    answers = newer;
    options();
    draw();
  }

  function go(changes) {
    page.set(changes);
    options();
    draw();
  }

  function options() {
    const [chosenLayer, chosenHead] = chosen();
    const layers = Math.max(...answers.map((answer) => answer.layers.length));
    layer.replaceChildren(option("", t("all of them"), chosenLayer), ...numbers(layers).map((n) => option(n, n, chosenLayer)));
    const heads = chosenLayer === "" ? 0 : Math.max(...answers.map((answer) => answer.heads[chosenLayer]?.length ?? 0));
    head.replaceChildren(option("", t("their mean"), chosenHead), ...numbers(heads).map((n) => option(n, n, chosenHead)));
    head.disabled = heads === 0;
  }
  const numbers = (count) => Array.from({ length: Math.max(0, count) }, (_, index) => String(index));
  const option = (value, text, selected) => element("option", { value, selected: value === selected }, text);
  const chosen = () => [page.values.get("layer") ?? "", page.values.get("head") ?? ""];

  function draw() {
    const [chosenLayer, chosenHead] = chosen();
    results.replaceChildren(...answers.map(({ all_layers, heads, kind, label, layers, model, picture, probability }) => {
      const whole = chosenLayer === "" || !layers[chosenLayer]; // a ResNet has no layers to choose
      const places = whole ? all_layers : chosenHead === "" ? layers[chosenLayer] : heads[chosenLayer][chosenHead];
      const named = { layer: chosenLayer, head: chosenHead };
      const what = whole ? t(kind) : t(chosenHead === "" ? "layer {layer}" : "layer {layer}, head {head}", named);
      const canvas = element("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": `${model}: ${what}` });
      overlay(canvas, picture, places);
      const rows = places.map((row) => row.map((value) => value.toFixed(3)));
      return element("figure", {}, canvas,
        element("figcaption", {}, element("b", {}, label), ` ${(100 * probability).toFixed(0)} % · ${model} · ${what}`),
        element("details", {}, element("summary", {}, t("the numbers")), table(what, rows[0].map((_, index) => index), rows)));
    }));
  }

  const { pictures } = offeredPictures;
  const first = pictures[Number(page.values.get("example") ?? 3)] ?? pictures[0];
  look(first);
  if (!larger.length) offer(root, "images", page.reload);
}

function overlay(canvas, url, places) {
  const picture = new Image();
  picture.addEventListener("load", () => {
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, SIDE, SIDE);
    const largest = Math.max(...places.flat(), 1e-12);
    const [down, across] = [SIDE / places.length, SIDE / places[0].length];
    places.forEach((row, i) => row.forEach((value, j) => {
      const share = value / largest;
      context.globalAlpha = 0.72 * share;
      context.fillStyle = "#f07818";
      context.fillRect(j * across, i * down, across + 0.5, down + 0.5);
    }));
    context.globalAlpha = 1;
    canvas.dataset.drawn = "1";
  });
  picture.src = url;
}
