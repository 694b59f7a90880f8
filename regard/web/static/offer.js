// Below what the small models show: the offer to train a larger one, with its progress.

import { ask } from "./app.js";
import { element } from "./dom.js";
import { t } from "./words.js";

const WHAT = {
  translate: ["a translator, English to French, on sentences of a small grammar", "three minutes"],
  language: ["a language model, on Python's own manual", "some minutes"],
  images: ["a ViT and a ResNet, on handwritten digits", "two minutes"],
};

const OFFER = "The small models come with regard. The page can train a larger one itself, {what}, on this machine: "
  + "it takes about {duration}, and the model is kept for later.";

/** Offer to train a model; `done` is called when there is one. */
export function offer(root, kind, done) {
  const [what, duration] = WHAT[kind].map((text) => t(text));
  const bar = element("progress", { max: "1", value: "0", hidden: true, "aria-label": t("training") });
  const status = element("output", { "aria-live": "polite" });
  const button = element("button", { type: "button", id: "train", onclick: begin }, t("train it now"));
  const box = element("div", { class: "offer" },
    element("p", {}, t(OFFER, { what, duration })),
    button, bar, status);
  root.append(box);

  async function begin() {
    button.disabled = true;
    bar.hidden = false;
    await ask("train", { kind });
    watch();
  }

  async function watch() {
    if (!box.isConnected) return; // another tab is open; coming back calls `watch` again
    const run = await ask("training", {});
    if (!run) return;
    if (run.running) {
      button.disabled = true;
      bar.hidden = false;
      if (run.steps) bar.value = run.step / run.steps;
      const loss = run.loss === null ? "" : t(", loss {loss}", { loss: run.loss.toFixed(3) });
      status.textContent = run.steps ? t("{name}: step {step} of {steps}", run) + loss : t("{name}: reading", run);
      setTimeout(watch, 700);
    } else if (run.error) {
      status.textContent = run.error;
      button.disabled = false;
    } else if (bar.hidden === false) {
      done();
    }
  }
  watch();
}
