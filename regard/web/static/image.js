// A picture, what the models take it for, and where they look: the ViT by layer and head, the ResNet beside it.

import { ask, element } from "./app.js";
import { colour } from "./maps.js";
import { table } from "./charts.js";
import { offer } from "./offer.js";

const SIDE = 240; // pixels

export async function imageTab(root, page) {
  root.append(element("p", { class: "lead" }, "Choose a picture, or drop one: what each model takes it for, and where it looks."));
  const offered = await ask("models", {});
  if (!offered) return;
  const models = offered.models.filter((own) => own.kind === "images").map((own) => own.name);
  if (!models.length) {
    offer(root, "images", () => { root.replaceChildren(); imageTab(root, page); });
    return;
  }
  const file = element("input", { type: "file", id: "file", accept: "image/*", onchange: () => take(file.files[0]) });
  const layer = element("select", { id: "layer", onchange: () => go({ layer: layer.value, head: "" }) });
  const head = element("select", { id: "head", onchange: () => go({ head: head.value }) });
  const examples = element("div", { class: "examples", role: "group", "aria-label": "examples" });
  const results = element("div", { class: "tables", id: "results" });
  root.append(
    element("div", { class: "controls" }, element("label", { for: "file" }, "picture "), file,
      element("label", { for: "layer" }, "layer "), layer, element("label", { for: "head" }, "head "), head),
    examples, results,
  );
  let found = [];

  const shown = await ask("examples", {});
  if (!shown) return;
  examples.append(...shown.pictures.map((url, number) => {
    const button = element("button", { type: "button", "aria-label": `the digit ${number}`, onclick: () => {
      page.set({ example: number }, { step: true });
      look(url);
    } }, element("img", { src: url, alt: "", width: "32", height: "32" }));
    return button;
  }));

  function take(chosen) {
    if (!chosen) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => { page.set({ example: null }); look(reader.result); });
    reader.readAsDataURL(chosen);
  }
  root.addEventListener("dragover", (event) => event.preventDefault());
  root.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer.files[0]); });

  async function look(picture) {
    const answers = [];
    for (const model of models) {
      const answer = await ask("picture", { model, picture });
      if (!answer) return;
      answers.push(answer);
    }
    found = answers;
    options();
    draw();
  }

  function go(changes) {
    page.set(changes);
    options();
    draw();
  }

  function options() {
    const layers = Math.max(...found.map((own) => own.layers.length));
    const at = page.values.get("layer") ?? "";
    layer.replaceChildren(option("", "all of them", at), ...numbers(layers).map((own) => option(own, own, at)));
    const heads = at === "" ? 0 : Math.max(...found.map((own) => own.heads[Number(at)]?.length ?? 0));
    const head_at = page.values.get("head") ?? "";
    head.replaceChildren(option("", "their mean", head_at), ...numbers(heads).map((own) => option(own, own, head_at)));
    head.disabled = heads === 0;
  }
  const numbers = (count) => Array.from({ length: Math.max(0, count) }, (_, index) => String(index));
  const option = (value, text, at) => element("option", { value, selected: value === at }, text);

  function draw() {
    const [at, of] = [page.values.get("layer") ?? "", page.values.get("head") ?? ""];
    results.replaceChildren(...found.map((own) => {
      const places = at === "" || !own.layers[Number(at)] ? own.whole
        : of === "" ? own.layers[Number(at)] : own.heads[Number(at)][Number(of)];
      const what = at === "" || !own.layers.length ? own.kind : `layer ${at}${of === "" ? "" : `, head ${of}`}`;
      const canvas = element("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": `${own.model}: ${what}` });
      overlay(canvas, own.picture, places);
      const rows = places.map((row) => row.map((value) => value.toFixed(3)));
      return element("figure", {}, canvas,
        element("figcaption", {}, element("b", {}, own.label), ` ${(100 * own.probability).toFixed(0)} % · ${own.model} · ${what}`),
        element("details", {}, element("summary", {}, "the numbers"), table(what, rows[0].map((_, index) => index), rows)));
    }));
  }

  const first = shown.pictures[Number(page.values.get("example") ?? 3)] ?? shown.pictures[0];
  look(first);
}

function overlay(canvas, url, places) {
  const picture = new Image();
  picture.addEventListener("load", () => {
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, SIDE, SIDE);
    const most = Math.max(...places.flat(), 1e-12);
    const [down, across] = [SIDE / places.length, SIDE / places[0].length];
    places.forEach((row, i) => row.forEach((value, j) => {
      const share = value / most;
      context.globalAlpha = 0.2 + 0.55 * share;
      context.fillStyle = `rgb(${colour(share, false)})`;
      context.fillRect(j * across, i * down, across + 0.5, down + 0.5);
    }));
    context.globalAlpha = 1;
    canvas.dataset.drawn = "1";
  });
  picture.src = url;
}
