// @ts-check
// Of a heat map: how large its cells are, which names have room, and how values become colours.
import { cells, wrap } from "./layout.js";
import { evenly, makeScale, nearZero } from "./scales.js";
import { short } from "./text.js";
import { widthOf } from "./dom.js";

/** @typedef {ReturnType<typeof planMap>} Plan */

export const MONO = "ui-monospace, Consolas, 'DejaVu Sans Mono', monospace";
export const NAME = 11; // CSS pixels
const LINE = 13;

/** @param {string} name */
export function linesOf(name) {
  return name.split("\n").map((line) => short(line));
}

/** @param {string} name */
function nameWidth(name) {
  return Math.max(...linesOf(name).map((line) => widthOf(line, NAME, MONO)));
}

/**
 * Whether rows and columns are the same, so that cells should be squares.
 * @param {HeatMapMark} mark
 */
export function isSquare(mark) {
  return mark.rows.length > 1 && mark.rows.join("\0") === mark.columns.join("\0");
}

/**
 * @param {HeatMapMark} mark
 * @returns {(value: number) => number} the place on the ramp
 */
export function placeOf(mark) {
  const within = mark.scale === "symlog" ? Math.min(nearZero(mark.values), mark.high) : 0;
  return makeScale(mark.scale, mark.low, mark.high, within).at;
}

/**
 * @param {HeatMapMark} mark
 * @param {number} room for the cells, in pixels
 * @param {boolean} alone not one of several panels
 */
function cellSize(mark, room, alone) {
  const n = Math.max(1, mark.columns.length);
  const rows = Math.max(1, mark.rows.length);
  const widths = mark.columns.map(nameWidth).sort((a, b) => a - b);
  const widest = widths[widths.length - 1] ?? 0;
  const numbers = Math.max(0, ...mark.numbers.flat().map((text) => widthOf(text, 10) + 6));
  if (isSquare(mark)) {
    const fitting = Math.floor(Math.min(room, alone ? 560 : room) / n);
    const cell = Math.max(2, Math.ceil(numbers), Math.min(fitting, 26));
    return {
      width: cell,
      height: numbers ? Math.max(20, Math.min(cell, 30)) : cell,
    };
  }
  let width = Math.floor(room / n);
  if (n * (widest + 6) <= room) {
    width = Math.max(widest + 6, Math.min(width, 40, 320 / n));
  } else {
    const mostAreCharacters = (widths[Math.floor(0.9 * (n - 1))] ?? 0) <= 12;
    width = Math.min(Math.max(width, mostAreCharacters ? 8 : 4), 16);
  }
  const height = Math.min(Math.max(Math.floor(600 / rows), 7), rows < 4 ? 22 : 16);
  return { width: Math.round(Math.max(width, numbers)), height: numbers ? 20 : height };
}

/**
 * The names that have room: all, some, or numbers instead.
 * @param {string[]} names
 * @param {number} cell
 * @param {number} needed room of one name
 */
export function namesWithRoom(names, cell, needed) {
  if (cell >= needed) return names.map((name, i) => ({ i, text: name }));
  const repeated = new Set(names).size < names.length;
  if (repeated) {
    const places = evenly(0, names.length - 1, (names.length * cell) / 45);
    return places.filter(Number.isInteger).map((i) => ({ i, text: String(i) }));
  }
  const step = Math.ceil(needed / cell);
  return names.map((name, i) => ({ i, text: name })).filter(({ i }) => i % step === 0);
}

/**
 * @param {HeatMapMark} mark
 * @param {number} width of the whole, in pixels
 * @param {boolean} alone
 */
export function planMap(mark, width, alone) {
  const anyRowNames = Math.max(0, ...mark.rows.map(nameWidth));
  const rowLabel = (/** @type {number} */ height) =>
    wrap(mark.row_label, Math.max(height, 60), widthOf).filter(Boolean);
  const guess = cellSize(mark, width - Math.min(anyRowNames, 180) - 32, alone);
  const rowNames = namesWithRoom(mark.rows, guess.height, 7);
  const labels = rowLabel(guess.height * mark.rows.length);
  const left =
    LINE * labels.length +
    (labels.length ? 5 : 0) +
    8 +
    Math.max(0, ...rowNames.map(({ text }) => nameWidth(text)));
  const cell = cellSize(mark, width - left - 6, alone);
  const across = cells(mark.columns.length, cell.width, mark.column_breaks);
  const down = cells(mark.rows.length, cell.height, mark.row_breaks);
  const wide = mark.columns.filter((name) => nameWidth(name) > cell.width - 1);
  const fewWide = wide.length <= 0.5 * mark.columns.length;
  const needed = wide.length && !fewWide ? LINE - 1 : Math.min(8, cell.width);
  const columnNames = namesWithRoom(mark.columns, cell.width, cell.width < 5 ? 99 : needed);
  const allShown = columnNames.length === mark.columns.length;
  const isTurned = (/** @type {string} */ text) =>
    allShown ? !fewWide || nameWidth(text) > cell.width - 1 : !/^\d+$/.test(text);
  const heights = columnNames.map(({ text }) =>
    isTurned(text) ? nameWidth(text) + 4 : LINE * linesOf(text).length + 2,
  );
  const below = Math.max(4, ...heights);
  return {
    cell,
    left,
    labels,
    across,
    down,
    rowNames,
    columnNames,
    isTurned,
    below,
    width: Math.ceil(left + across.length + 6),
    height: Math.ceil(down.length + 2 + below + (mark.column_label ? 18 : 2)),
  };
}
