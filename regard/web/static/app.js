// The tabs, and the state of the page in its address: #/tab?name=value&…, so that links and the back button work.

import { curveTab } from "./curve.js";
import { formulaTab } from "./formula.js";
import { imageTab } from "./image.js";
import { element } from "./dom.js";
import "./laboratory_words.js";
import { textTab } from "./texts.js";
import { t } from "./words.js";

const TABS = {
  curve: curveTab,
  formula: formulaTab,
  heads: (root, page) => textTab(root, page, "heads"),
  translate: (root, page) => textTab(root, page, "translate"),
  language: (root, page) => textTab(root, page, "language"),
  image: imageTab,
  model: (root, page) => textTab(root, page, "model"),
};
const error = document.getElementById("error");

let asked = 0;
const main = document.getElementById("tab");

/** Send fields to the server; its answer, or null after an error, which is shown at the top of the page. */
export async function ask(name, fields) {
  asked += 1;
  main.setAttribute("aria-busy", "true"); // style.css shows a mark after 150 ms
  try {
    return await answered(name, fields);
  } finally {
    asked -= 1;
    main.setAttribute("aria-busy", String(asked > 0));
  }
}

async function answered(name, fields) {
  let answer;
  try {
    answer = await fetch(`/api/${name}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(fields),
    });
  } catch {
    return showError(t("The server does not answer. Is `regard explore` still running? Start it and load this page again."));
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({ error: t("the server answered {status}", { status: answer.status }) }));
    return showError(body.error);
  }
  error.hidden = true;
  const binary = answer.headers.get("content-type") === "application/octet-stream";
  return binary ? new Uint8Array(await answer.arrayBuffer()) : answer.json();
}

function showError(text) {
  error.textContent = text;
  error.hidden = false;
  return null;
}

/** A function that sends the newest fields only: while an answer is awaited, newer fields replace those that wait. */
export function latest(name, show) {
  let waiting = null;
  let busy = false;
  return async (fields) => {
    waiting = fields;
    if (busy) return;
    busy = true;
    try {
      while (waiting) {
        const sent = waiting;
        waiting = null;
        const answer = await ask(name, sent);
        if (answer && !waiting) await show(answer, sent);
      }
    } finally {
      busy = false;
    }
  };
}

const readAddress = () => {
  const [name, query = ""] = location.hash.replace(/^#\//, "").split("?");
  return { name: name in TABS ? name : "curve", values: new URLSearchParams(query) };
};

/** What a tab gets of the page: its values in the address, and how to change them. */
const pageOf = (name, values) => ({
  values,
  set(changes, { step = false } = {}) {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) values.delete(key);
      else values.set(key, value);
    }
    const address = `#/${name}${values.size ? `?${values}` : ""}`;
    if (step) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  },
  reload: show,
});

function show() {
  const { name, values } = readAddress();
    error.hidden = true;
  const root = element("div"); // a tab that was left goes on in one that is no longer on the page
  main.replaceChildren(root);
  for (const link of document.querySelectorAll("#rail a[data-place]")) {
    if (link.dataset.place !== name) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "page");
    main.setAttribute("aria-label", link.textContent.trim());
    document.title = `${link.textContent.trim()} · regard`;
    root.append(element("h1", {}, link.textContent.trim()));
  }
  TABS[name](root, pageOf(name, values));
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", show);
addEventListener("popstate", show);
show();
