// @ts-check
// A map of cells on a canvas, with a crosshair that follows the pointer and the arrow keys.
import { crosshair, listenToCanvas } from "./crosshair.js";
import { css, el } from "./dom.js";
import { linesOf, MONO, NAME, isSquare, placeOf, planMap } from "./mapplan.js";
import { inkOn } from "./palette.js";
import { compact, short } from "./text.js";

/** @typedef {import("./mapplan.js").Plan} Plan */

/**
 * Draws names and labels about the cells.
 * @param {CanvasRenderingContext2D} ctx
 * @param {HeatMapMark} mark
 * @param {Plan} plan
 */
function writeNames(ctx, mark, plan) {
  const { cell, left, across, down } = plan;
  ctx.fillStyle = css("--ink");
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  const all = plan.rowNames.length === mark.rows.length;
  ctx.font = `${all ? Math.min(NAME, Math.max(cell.height + 1, 7)) : NAME}px ${MONO}`;
  for (const { i, text } of plan.rowNames) {
    ctx.fillText(short(text), left - 4, down.starts[i] + cell.height / 2);
  }
  for (const { i, text } of plan.columnNames) {
    const bold = mark.strong_columns.includes(i) ? "bold " : "";
    ctx.font = `${bold}${NAME}px ${MONO}`;
    const x = left + across.starts[i] + cell.width / 2;
    ctx.save();
    ctx.translate(x, down.length + 3);
    if (plan.isTurned(text)) {
      ctx.rotate(-Math.PI / 2);
      ctx.textAlign = "right";
      ctx.fillText(linesOf(text).join(" "), 0, 0);
    } else {
      ctx.textAlign = "center";
      linesOf(text).forEach((line, k) => ctx.fillText(line, 0, 7 + 13 * k));
    }
    ctx.restore();
  }
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "center";
  ctx.fillText(mark.column_label, left + across.length / 2, plan.height - 9);
  plan.labels.forEach((line, k) => {
    ctx.save();
    ctx.translate(8 + 13 * k, down.length / 2);
    ctx.rotate(-Math.PI / 2);
    ctx.fillText(line, 0, 0);
    ctx.restore();
  });
}

/**
 * Draws the cells and the texts in them.
 * @param {CanvasRenderingContext2D} ctx
 * @param {HeatMapMark} mark
 * @param {Plan} plan
 * @param {Colours} colours
 */
function fillCells(ctx, mark, plan, colours) {
  const { cell, left, across, down } = plan;
  const place = placeOf(mark);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.font = "10px system-ui, sans-serif";
  mark.rows.forEach((_, r) => {
    mark.columns.forEach((__, c) => {
      const value = mark.values[r * mark.columns.length + c];
      const text = mark.numbers[r]?.[c];
      const x = left + across.starts[c];
      const y = down.starts[r];
      let ink = "";
      if (!Number.isNaN(value)) {
        const rgb = colours.ramp(mark.palette, place(value));
        ctx.fillStyle = `rgb(${rgb})`;
        ctx.fillRect(x, y, cell.width, cell.height);
        ink = inkOn(rgb);
      }
      if (!text) return;
      ctx.fillStyle = ink || css("--ink");
      ctx.fillText(text, x + cell.width / 2, y + cell.height / 2 + 0.5);
    });
  });
}

/**
 * What the line below the map says of a cell.
 * @param {HeatMapMark} mark
 * @param {number} r
 * @param {number} c
 */
function reading(mark, r, c) {
  const value = mark.values[r * mark.columns.length + c];
  const text = mark.numbers[r]?.[c] ?? "";
  const positions = mark.columns_are === "positions";
  const name = (
    /** @type {string[]} */ names,
    /** @type {number} */ i,
    /** @type {boolean} */ at,
  ) => (at ? `position ${i} (${names[i].replace("\n", " ")})` : names[i].replace("\n", " "));
  const row = name(mark.rows, r, positions && isSquare(mark));
  const column = name(mark.columns, c, positions);
  const said = Number.isNaN(value) ? "nothing" : compact(value, 4);
  return `${row}, ${column}: ${said}${text && text !== said ? ` [${text}]` : ""} · ${mark.label}`;
}

/**
 * What a choice of a cell selects, and which row and column the selection marks.
 * @param {HeatMapMark} mark
 * @param {Chosen} selection
 */
function following(mark, selection) {
  const positions = mark.columns_are === "positions";
  const byRow = positions && isSquare(mark); // query by key: the query is what is selected
  const choose = (/** @type {number} */ r, /** @type {number} */ c) => {
    /** @type {{pos?: number, head?: string}} */
    const change = positions ? { pos: byRow ? r : c } : {};
    const head = [mark.rows[r], mark.columns[c]].find((name) => selection.heads.includes(name));
    if (head) change.head = head;
    if (head || positions) selection.set(change);
  };
  const marked = () => {
    const pos = selection.pos < mark.columns.length ? selection.pos : null;
    const row = mark.rows.indexOf(selection.head);
    const column = mark.columns.indexOf(selection.head);
    return /** @type {[number | null, number | null]} */ ([
      byRow ? pos : row < 0 ? null : row,
      positions && !byRow ? pos : column < 0 ? null : column,
    ]);
  };
  return { choose, marked };
}

/**
 * Draws the mark into `place`, and follows the selection.
 * @param {HTMLElement} place
 * @param {HeatMapMark} mark
 * @param {Context} context
 * @param {DrawOptions} options
 */
export function drawHeatMap(place, mark, { colours, selection }, options) {
  const plan = planMap(mark, options.width, options.alone);
  const ratio = window.devicePixelRatio || 1;
  const label =
    `${mark.title ? `${mark.title}: ` : ""}${mark.label}; ${mark.rows.length} rows by ` +
    `${mark.columns.length} columns; arrow keys move the crosshair`;
  const size = { width: plan.width * ratio, height: plan.height * ratio };
  const style = { width: `${plan.width}px`, height: `${plan.height}px` };
  const canvas = el("canvas", {
    ...size,
    style,
    tabindex: "0",
    role: "img",
    "aria-label": label,
  });
  const line = el("output", { class: "readout" });
  place.append(el("div", { class: "scroll" }, canvas), line);

  const base = el("canvas", size); // drawn once; the crosshair lies above
  const ink = base.getContext("2d");
  ink.scale(ratio, ratio);
  fillCells(ink, mark, plan, colours);
  writeNames(ink, mark, plan);
  const { choose, marked } = following(mark, selection);
  const say = options.say ?? ((r, c) => reading(mark, r, c));
  const { draw, moveTo } = crosshair(canvas, base, line, plan, { marked, say });
  listenToCanvas(canvas, plan, { moveTo, choose, marked });
  selection.on(canvas, draw);
  draw();
}
