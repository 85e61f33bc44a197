// @ts-check
// The report's script: it reads what is embedded in the page, draws it, and fetches nothing.
import { atlas } from "./atlas.js";
import { decodeAll } from "./decode.js";
import { dataButton, el, tableOf } from "./dom.js";
import { explorer } from "./explorer.js";
import { headCard } from "./headcard.js";
import { headFacts } from "./headfacts.js";
import { drawMark } from "./marks.js";
import { makeColours } from "./palette.js";
import { headsOf, readPassage } from "./passage.js";
import { makeSelection } from "./state.js";
import { cellsOf, compact } from "./text.js";

const MOST_ROWS = 30; // of a table without a figure

/**
 * Each place in the page with an attribute, and what the attribute says.
 * @param {string} name
 * @returns {[HTMLElement, string][]}
 */
function placesOf(name) {
  const found = /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll(`[data-${name}]`)
  );
  return Array.from(found, (place) => [place, place.dataset[name] ?? ""]);
}

/**
 * Draws the figures, and again when the reader's scheme or the width of a figure changes.
 * @param {PageDocument} doc
 * @param {Context} context
 */
async function drawFigures(doc, context) {
  const marks = new Map(
    await Promise.all(
      doc.figures.map(
        async ({ name, mark }) => /** @type {const} */ ([name, await decodeAll(mark)]),
      ),
    ),
  );
  const widths = new Map();
  const draw = () => {
    for (const [place, name] of placesOf("figure")) {
      const mark = marks.get(name);
      widths.set(place, place.clientWidth);
      if (mark) drawMark(place, mark, context);
    }
    context.selection.show();
  };
  draw();
  for (const [place, name] of placesOf("mark")) {
    const mark = marks.get(name);
    if (mark?.mark === "HeatMap") place.append(dataButton(name, () => cellsOf(mark)));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("resize", () => {
    if (placesOf("figure").some(([place]) => widths.get(place) !== place.clientWidth)) draw();
  });
}

/** @param {PageDocument} doc */
function addTables(doc) {
  for (const [place, name] of placesOf("table")) {
    const table = doc.tables[name];
    if (table) place.append(dataButton(name, () => table));
  }
  for (const [place, name] of placesOf("shown")) {
    const table = doc.tables[name];
    if (!table) continue;
    const cell = (/** @type {Json} */ x) =>
      typeof x === "number" ? compact(x, 4) : x === null ? "–" : String(x);
    const rows = table.rows.slice(0, MOST_ROWS).map((row) => row.map(cell));
    const more =
      table.rows.length > MOST_ROWS
        ? `The first ${MOST_ROWS} of ${table.rows.length} rows; all of them: `
        : "";
    place.append(
      tableOf("", table.columns, rows),
      el(
        "p",
        { class: "caption" },
        more,
        dataButton(name, () => table),
      ),
    );
  }
}

/** @param {Context} context */
function listen({ selection }) {
  for (const [link, select] of placesOf("select")) {
    const { pos, head } = Object.fromEntries(new URLSearchParams(select));
    const change = {
      ...(pos ? { pos: Number(pos) } : {}),
      ...(head ? { head } : {}),
    };
    link.addEventListener("click", (event) => {
      event.preventDefault(); // the address keeps the selection, not the section
      document.querySelector(link.getAttribute("href") ?? "#")?.scrollIntoView();
      selection.set(change);
    });
  }
  window.addEventListener("hashchange", () => {
    selection.restore();
    selection.show();
  });
}

async function start() {
  const embedded = document.getElementById("results")?.textContent ?? "{}";
  const doc = /** @type {PageDocument} */ (JSON.parse(embedded));
  const colours = makeColours(doc.palette);
  const heads = headsOf(doc);
  const [passage, facts] = await Promise.all([
    readPassage(doc, colours),
    headFacts(doc, colours, heads),
  ]);
  const selection = makeSelection(heads, positionsOf(doc, passage));
  selection.head = facts.best;
  selection.restore();
  const context = { colours, selection };
  addTables(doc);
  for (const [place, view] of placesOf("view")) {
    if (view === "explorer") explorer(place, passage, context);
    if (view === "atlas") atlas(place, passage, facts, context, doc.config.n_heads);
    if (view === "head") headCard(place, passage, facts, context);
  }
  await drawFigures(doc, context);
  listen(context);
}

/**
 * How many positions can be selected: all of the passage, or of the maps over positions.
 * @param {PageDocument} doc
 * @param {Passage} passage
 */
function positionsOf(doc, passage) {
  const marks = doc.figures.flatMap(({ mark }) => (mark.mark === "Panels" ? mark.marks : [mark]));
  const lengths = marks.map((mark) => (mark.columns_are === "positions" ? mark.columns.length : 0));
  return Math.max(passage.tokens.length, 0, ...lengths);
}

start().finally(() => {
  document.documentElement.dataset.ready = "yes";
});
