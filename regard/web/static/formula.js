// The formula, step by step, on tables that can be edited.

import { latest } from "./app.js";
import { element } from "./dom.js";
import { colour, readable, isDark } from "./colours.js";
import { t } from "./words.js";

const SCORES = ["scaled dot", "dot", "cosine", "additive", "gaussian"];
const MASKS = ["none", "causal", "lengths"];
const START = {
  q: [[1, 0], [0, 1], [1, 1]],
  k: [[1, 0], [0, 1], [1, 1], [-1, 0]],
  v: [[1, 0], [0, 1], [0.5, 0.5], [0, 0]],
};
const NAMES = { q: "queries", k: "keys", v: "values" };

const written = (rows) => rows.map((row) => row.join(",")).join(";");
const read = (text) => text.split(";").map((row) => row.split(",").map(Number));

export function formulaTab(root, page) {
  const get = (name, fallback) => page.values.get(name) ?? fallback;
  const tables = Object.fromEntries(Object.entries(START).map(([name, rows]) => {
    const given = page.values.has(name) ? read(page.values.get(name)) : rows;
    return [name, given.flat().every(Number.isFinite) && given.length <= 12 ? given : rows];
  }));
  const select = (id, choices, value) => element("select", { id, onchange: request },
    ...choices.map((name) => element("option", { value: name, selected: name === value }, t(name))));
  const score = select("score", SCORES, get("score", "scaled dot"));
  const mask = select("mask", MASKS, get("mask", "none"));
  const temperature = element("input", {
    id: "temperature", type: "range", min: "-1", max: "1", step: "0.02", oninput: request,
    value: String(Math.log10(Number(get("temperature", 1)) || 1)),
  });
  const length = element("input", { id: "length", type: "number", min: "0", max: "12", value: get("length", "2"),
    oninput: request });
  const shownTemperature = element("output", { id: "temperature-value", for: "temperature" });
  const given = element("div", { class: "tables" });
  const results = element("div", { class: "tables", id: "results" });
  root.append(
    element("p", { class: "lead" }, t("output = Σ softmax( score(query, key) restricted by mask ) · value. Change any number.")),
    element("div", { class: "controls" },
      element("label", { for: "score" }, t("score"), " "), score,
      element("label", { for: "temperature" }, t("temperature"), " "), temperature, shownTemperature,
      element("label", { for: "mask" }, t("mask"), " "), mask,
      element("label", { for: "length" }, t("keys that count"), " "), length),
    given, results,
  );

  const ask = latest("formula", (answer, sent) => {
    const keys = sent.k.map((_, index) => t("key {index}", { index }));
    const queries = sent.q.map((_, index) => t("query {index}", { index }));
    const restricted = answer.scores.map((row, i) => row.map((value, j) => (answer.visible[i][j] ? value : null)));
    results.replaceChildren(
      shown("scores", queries, keys, answer.scores),
      shown("restricted by the mask", queries, keys, restricted),
      shown("weights", queries, keys, answer.weights, true),
      shown("output", queries, sent.v[0].map((_, index) => t("value {index}", { index })), answer.output),
    );
  });

  function request() {
    const fields = {
      ...tables, score: score.value, mask: mask.value, temperature: 10 ** Number(temperature.value),
      length: Math.min(tables.k.length, Math.max(0, Math.round(Number(length.value)) || 0)),
    };
    shownTemperature.textContent = fields.temperature.toFixed(2);
    length.disabled = mask.value !== "lengths";
    page.set({
      score: score.value, mask: mask.value, temperature: fields.temperature.toPrecision(3),
      length: mask.value === "lengths" ? fields.length : null,
      ...Object.fromEntries(Object.entries(tables).map(([name, rows]) => [name, written(rows)])),
    });
    ask(fields);
  }

  function edit() {
    given.replaceChildren(...Object.keys(tables).map(edited));
  }

  function edited(name) {
    const button = (sign, word, by) => element("button", {
      type: "button", title: t(word), "aria-label": `${t(NAMES[name])}: ${t(word)}`,
      onclick: () => resize(name, by),
    }, sign);
    const caption = element("caption", {}, t(NAMES[name]), " ", button("−", "one row less", -1),
      button("+", "one row more", 1));
    const rows = tables[name].map((row, i) => element("tr", {}, ...row.map((_, j) => cell(name, i, j))));
    return element("table", { class: "edited" }, caption, ...rows);
  }

  function cell(name, i, j) {
    const input = element("input", {
      type: "number", step: "0.1", value: String(tables[name][i][j]), "aria-label": `${t(NAMES[name])} ${i}, ${j}`,
      oninput: () => {
        const number = Number(input.value);
        if (input.value === "" || !Number.isFinite(number)) return;
        tables[name][i][j] = number;
        request();
      },
    });
    return element("td", {}, input);
  }

  function resize(name, by) {
    for (const table of name === "q" ? ["q"] : ["k", "v"]) { // a key has a value
      const rows = tables[table];
      if (by > 0 && rows.length < 12) rows.push(rows[0].map(() => 0));
      if (by < 0 && rows.length > 1) rows.pop();
    }
    edit();
    request();
  }

  edit();
  request();
}

function shown(title, rows, columns, numbers, coloured = false) {
  const dark = isDark(document.body);
  return element("table", { class: "shown", id: title.split(" ")[0] },
    element("caption", {}, t(title)),
    element("tr", {}, element("td"), ...columns.map((name) => element("th", { scope: "col" }, name))),
    ...numbers.map((row, i) => element("tr", {}, element("th", { scope: "row" }, rows[i]),
      ...row.map((value) => {
        const cell = element("td", {}, value === null ? "−∞" : value.toFixed(3));
        if (coloured) {
          cell.style.background = `rgb(${colour(value, dark)})`;
          cell.style.color = readable(value, dark);
        }
        return cell;
      }))));
}
