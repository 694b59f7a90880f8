// Where a trained model is needed and none was given: the offer to train one, with its progress.

import { ask, element } from "./app.js";

const WHAT = {
  translate: ["a translator, English to French, on sentences of a small grammar", "three minutes"],
  language: ["a language model, on Python's own manual", "some minutes"],
  images: ["a ViT and a ResNet, on handwritten digits", "two minutes"],
};

/** Offer to train; `done` is called when it is. */
export function offer(root, kind, done) {
  const [what, long] = WHAT[kind];
  const bar = element("progress", { max: "1", value: "0", hidden: true, "aria-label": "training" });
  const told = element("output", { "aria-live": "polite" });
  const button = element("button", { type: "button", id: "train", onclick: begin }, "train it now");
  const box = element("div", { class: "offer" },
    element("p", {}, "This needs a trained model, and none was given. The page can train one itself, ", what,
      `, on this machine: it takes about ${long}, and is kept for later.`),
    button, bar, told);
  root.append(box);

  async function begin() {
    button.disabled = true;
    bar.hidden = false;
    await ask("train", { kind });
    watch();
  }

  async function watch() {
    if (!box.isConnected) return; // somebody went to another tab; coming back shows where it is
    const found = await ask("training", {});
    if (!found) return;
    if (found.running) {
      button.disabled = true;
      bar.hidden = false;
      if (found.steps) bar.value = found.step / found.steps;
      const loss = found.loss === null ? "" : `, loss ${found.loss.toFixed(3)}`;
      told.textContent = found.steps ? `${found.name}: step ${found.step} of ${found.steps}${loss}` : `${found.name}: reading`;
      setTimeout(watch, 700);
    } else if (found.trouble) {
      told.textContent = found.trouble;
      button.disabled = false;
    } else if (bar.hidden === false) {
      done();
    }
  }
  watch();
}
