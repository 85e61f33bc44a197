// @ts-check
// The selected head: its attention on the passage, its labels, scores, examples and what it writes.
import { el, tableOf } from "./dom.js";
import { drawMark } from "./marks.js";
import { number, signed } from "./text.js";

/** @typedef {import("./headfacts.js").HeadFacts} HeadFacts */

/**
 * @param {HTMLElement} place
 * @param {Passage} passage
 * @param {HeadFacts} facts
 * @param {Context} context
 */
export function headCard(place, passage, facts, context) {
  const { selection } = context;
  const known = facts.labels.length + facts.scores.length + facts.cards.length;
  if (!selection.heads.length || !(known || passage.patterns)) return;
  const title = el("h3");
  const map = el("div");
  const words = el("div", { class: "words" });
  const columns = el("div", { class: "columns" }, passage.patterns ? map : null, words);
  place.replaceChildren(title, columns);
  let [last, width] = ["", 0];
  selection.on(place, () => {
    const { head } = selection;
    if (head === last && width === place.clientWidth) return;
    [last, width] = [head, place.clientWidth];
    const named = facts.labelsOf(head).join(", ");
    title.textContent = facts.hasLabels ? `${head}: ${named || "no confirmed label"}` : head;
    if (passage.patterns) drawPattern(map, passage, context);
    words.replaceChildren(...tablesOf(head, facts));
  });
}

/**
 * @param {HTMLElement} map
 * @param {Passage} passage
 * @param {Context} context
 */
function drawPattern(map, passage, context) {
  const { patterns, tokens, glyph } = passage;
  const { head, heads } = context.selection;
  if (!patterns) return;
  const n = tokens.length;
  const names = tokens.map(glyph);
  const h = heads.indexOf(head);
  const values = Float64Array.from({ length: n * n }, (_, i) =>
    i % n > Math.floor(i / n) ? NaN : patterns[h * n * n + i],
  );
  /** @type {HeatMapMark} */
  const mark = {
    mark: "HeatMap",
    title: "",
    values,
    rows: names,
    columns: names,
    label: "attention weight",
    low: 0,
    high: 1,
    row_label: "query",
    column_label: "key",
    palette: "weight",
    scale: "root",
    numbers: [],
    strong_columns: [],
    row_breaks: [],
    column_breaks: [],
    columns_are: "positions",
  };
  const say = (/** @type {number} */ t, /** @type {number} */ s) =>
    s > t
      ? `query ${t}: key ${s} is later, so masked`
      : `query ${t} (${names[t]}) gives key ${s} (${names[s]}) a weight of ` +
        `${values[t * n + s].toFixed(4)}`;
  drawMark(map, mark, context, say);
}

/**
 * @param {string} head
 * @param {HeadFacts} facts
 */
function tablesOf(head, facts) {
  const own = facts.isOf(head);
  return [
    labelsTable(facts.labels.filter(own)),
    scoresTable(facts.scores.filter(own)),
    ...facts.cards.filter((card) => card.head === head).flatMap(cardTables),
  ].filter((table) => table);
}

/**
 * @param {Record<string, any>} row
 * @param {string} name
 */
function ends(row, name, digits = 3) {
  return `[${number(row[`${name}_low`], digits)}, ${number(row[`${name}_high`], digits)}]`;
}

/** @param {Record<string, any>[]} rows */
function labelsTable(rows) {
  if (!rows.length) return null;
  const columns = ["label", "score", "null", "effect (nats)", "control", "outcome"];
  const cells = rows.map((row) => [
    row.label,
    number(row.score, 2),
    number(row.null, 2),
    `${number(row.effect)} ${ends(row, "effect")}`,
    number(row.control),
    row.confirmed ? "confirmed" : "not confirmed",
  ]);
  return tableOf("Labels tried", columns, cells);
}

/** @param {Record<string, any>[]} rows */
function scoresTable(rows) {
  const away = (/** @type {Record<string, any>} */ row) =>
    Math.abs(row.value - row.null) / Math.max(Math.abs(row.null), 0.02);
  const furthest = rows.filter((row) => row.null !== null).sort((a, b) => away(b) - away(a));
  if (!furthest.length) return null;
  const units = /** @type {Record<string, string>} */ ({
    span: " (keys)",
    distance: " (positions)",
  });
  const columns = ["score", "value", "95 %", "uniform", "permuted", "untrained", "q"];
  const cells = furthest
    .slice(0, 10)
    .map((row) => [
      row.score + (units[row.score] ?? ""),
      number(row.value),
      `[${number(row.low)}, ${number(row.high)}]`,
      number(row.null),
      number(row.null_permuted),
      number(row.null_untrained),
      row.q_value !== null && row.q_value < 0.001 ? "<0.001" : number(row.q_value),
    ]);
  return tableOf("Scores furthest from uniform attention", columns, cells);
}

/** @param {import("./headfacts.js").Card} card */
function cardTables({ copying, examples, writes }) {
  const attends = examples.map((e) => [e.weight.toFixed(2), `${e.key} at −${e.back}`, e.text]);
  const written = writes.map(({ token, raises }) => [token, raises]);
  const heading = `Writes, on attending to a token (copying ${signed(copying)})`;
  return [
    examples.length
      ? tableOf("Attends most, in context", ["weight", "key", "text up to the query"], attends)
      : null,
    writes.length
      ? tableOf(heading, ["token", "raises (logits, before LayerNorm's scales)"], written)
      : null,
  ];
}
