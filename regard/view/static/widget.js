// The view as a widget for notebooks. A notebook is light or dark by its own choice, which only its background tells.
export default { render({ model, el }) {
  const ground = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255];
  const [red, green, blue] = ground.map(Number);
  el.classList.add("regard-view");
  el.dataset.theme = 0.3 * red + 0.59 * green + 0.11 * blue < 110 ? "dark" : "light";
  words_js.setLanguage(navigator.language ?? "en");
  const root = document.createElement("div");
  el.replaceChildren(root);
  const { other, ...data } = model.get("data");
  const sources = [data, other].map((run) => run && source_js.makeSource(run));
  const changed = (state) => { model.set("state", state); model.save_changes(); };
  view_js.showAttention(root, sources[0], { state: model.get("state"), changed, other: sources[1] });
} };
