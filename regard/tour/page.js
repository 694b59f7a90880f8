// The tour's page: theme, contents, search, copying and saving; and where it is served, controls and sections that arrive.
const root = document.documentElement;
const server = document.querySelector('meta[name="regard-live"]') !== null;
// The key has opened this page, and opens no other: it need not stand in the history.
if (server && location.search.includes("key=")) history.replaceState(null, "", location.pathname + location.hash);
const make = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
};
const chinese = root.lang.startsWith("zh");

// ------------------------------------------------------------------------------------------------------------- theme
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
try { if (localStorage.regardTheme) root.dataset.theme = localStorage.regardTheme; } catch { /* a page from the disk */ }
document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  try { localStorage.regardTheme = root.dataset.theme; } catch { /* then it lasts until the page is left */ }
});

// ----------------------------------------------------------------------------------------------------- contents, search
const rail = document.getElementById("rail");
const menu = document.getElementById("menu");
const openRail = (open) => { rail.classList.toggle("open", open); menu.setAttribute("aria-expanded", String(open)); };
menu.addEventListener("click", () => openRail(!rail.classList.contains("open")));
rail.addEventListener("click", (event) => { if (event.target.closest("a")) openRail(false); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") openRail(false); });
document.getElementById("search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const item of rail.querySelectorAll("li")) {
    const section = document.getElementById(item.firstElementChild.hash.slice(1));
    const text = `${item.textContent} ${section?.querySelector("blockquote")?.textContent ?? ""}`.toLowerCase();
    item.hidden = !text.includes(wanted);
  }
});
if ("IntersectionObserver" in window) {
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const link = rail.querySelector(`a[href$="#${target.id}"]`);
      if (isIntersecting) link?.setAttribute("aria-current", "true"); else link?.removeAttribute("aria-current");
    }
  }, { rootMargin: "-40% 0px -55% 0px" });
  for (const section of document.querySelectorAll("#claims > section")) seen.observe(section);
}

// ------------------------------------------------------------------------------------------------------ copying, saving
const save = (name, content, type) => {
  const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
function standalone(svg) { // the picture with its colours and letters in it
  const copy = svg.cloneNode(true);
  const nodes = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
    const style = getComputedStyle(nodes[index]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font"]) {
      node.style.setProperty(name, style.getPropertyValue(name));
    }
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.style.background = getComputedStyle(root).getPropertyValue("--paper");
  return new XMLSerializer().serializeToString(copy);
}
function savePng(svg, name) {
  const image = new Image();
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  image.onload = () => {
    const canvas = make("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => save(`${name}.png`, blob, "image/png"));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
}
function furnish(place) {
  for (const pre of place.querySelectorAll("pre")) {
    const code = pre.querySelector("code");
    if (pre.classList.contains("plain")) code.innerHTML = code.innerHTML.split("\n").map((line) => `<span class="l">${line}</span>`).join("\n");
    const copy = make("button", { type: "button", class: "copy", onclick: () => navigator.clipboard?.writeText(code.textContent) },
      chinese ? "复制" : "copy");
    pre.append(copy);
  }
  for (const figure of place.querySelectorAll("figure")) {
    const name = figure.closest("section")?.id ?? "picture";
    const svg = () => figure.querySelector("svg");
    figure.prepend(make("div", { class: "saves" },
      make("button", { type: "button", onclick: () => save(`${name}.svg`, standalone(svg()), "image/svg+xml") }, "SVG"),
      make("button", { type: "button", onclick: () => savePng(svg(), name) }, "PNG")));
  }
  for (const cell of server ? place.querySelectorAll(".cell") : []) controls(cell);
}

// ----------------------------------------------------------------------------------------------- what the server computes
async function ask(name, fields) {
  const answer = await fetch(`/api/${name}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fields),
  });
  const body = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(body.error);
  return body;
}
function controls(cell) {
  const parts = [...cell.querySelectorAll("script")].map((script) => JSON.parse(script.textContent));
  if (!parts.length) return;
  const number = Number(cell.dataset.number);
  const values = Object.fromEntries(parts.map((part) => [part.variable, part.value]));
  const defaults = { ...values };
  const message = make("span", { role: "status" });
  const bar = make("div", { class: "controls", "aria-busy": "false" });
  let waiting = false;
  let busy = false;
  async function redraw() { // the last answer wins: what was set meanwhile is asked for again
    waiting = true;
    if (busy) return;
    busy = true;
    const mark = setTimeout(() => bar.setAttribute("aria-busy", "true"), 150);
    while (waiting) {
      waiting = false;
      try {
        const answer = await ask("section", { number, values, language: chinese ? "zh" : "en" });
        cell.querySelector(".frame").innerHTML = answer.svg;
        cell.querySelector(".tables").innerHTML = answer.table;
        message.textContent = "";
      } catch (error) {
        message.textContent = error.message;
      }
    }
    clearTimeout(mark);
    bar.setAttribute("aria-busy", "false");
    busy = false;
  }
  const resets = [];
  for (const part of parts) {
    const set = (value) => { values[part.variable] = value; redraw(); };
    let input;
    if (part.kind === "slider") {
      const to = part.log ? Math.log10 : (value) => value;
      const from = part.log ? (value) => 10 ** value : (value) => value;
      const output = make("output", {}, String(part.value));
      input = make("input", { type: "range", min: to(part.low), max: to(part.high), value: to(part.value),
        step: part.log ? 0.01 : part.step, oninput: () => {
          const value = from(Number(input.value));
          const shown = Math.min(part.high, Math.max(part.low, part.whole ? Math.round(value) : Number(value.toPrecision(3))));
          output.textContent = String(shown);
          set(shown);
        } });
      bar.append(make("label", {}, part.name, input, output));
      resets.push(() => { input.value = to(part.value); output.textContent = String(part.value); });
    } else if (part.kind === "choice") {
      input = make("select", { onchange: () => set(part.values[input.selectedIndex]) },
        ...part.values.map((value) => make("option", { selected: value === part.value }, String(value))));
      bar.append(make("label", {}, part.name, input));
      resets.push(() => { input.selectedIndex = part.values.indexOf(part.value); });
    } else {
      input = make("input", { type: "text", maxlength: part.longest, value: part.value, size: 40, onchange: () => set(input.value) });
      bar.append(make("label", {}, part.name, input));
      resets.push(() => { input.value = part.value; });
    }
  }
  bar.append(
    make("button", { type: "button", onclick: () => { Object.assign(values, defaults); resets.forEach((reset) => reset()); redraw(); } },
      chinese ? "重置" : "reset"),
    make("span", { class: "busy", "aria-hidden": "true" }, "…"), message);
  cell.prepend(bar);
}
async function fill() { // sections that were being run when the page was made
  const pending = [...document.querySelectorAll("[data-pending]")];
  if (!pending.length) return;
  const numbers = pending.map((section) => Number(section.dataset.pending));
  try {
    const { bodies } = await ask("tour", { numbers, language: chinese ? "zh" : "en" });
    for (const section of pending) {
      const body = bodies[section.dataset.pending];
      if (body === undefined) continue;
      section.querySelector(".body").innerHTML = body;
      section.removeAttribute("data-pending");
      furnish(section);
    }
  } catch { /* the server is gone; the page stays as it is */ return; }
  setTimeout(fill, 1500);
}
// A page on the disk is loaded again while sections are being run, unless something would be lost: what a reader has
// opened, looked for, selected or scrolled to in the contents.
function reload() {
  const opened = () => document.querySelectorAll("details[open]").length;
  const before = opened();
  setInterval(() => {
    const used = opened() !== before || document.getElementById("search").value || rail.scrollTop
      || rail.classList.contains("open") || !getSelection().isCollapsed;
    if (!used) location.reload();
  }, 4000);
}
furnish(document);
if (server) fill();
else if (document.querySelector("[data-pending]")) reload();
