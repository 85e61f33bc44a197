// @ts-check
// Numbers as text, and tables as CSV.

/**
 * A number with its sign.
 * @param {number} x
 */
export function signed(x, digits = 2) {
  return (x < 0 ? "−" : "+") + Math.abs(x).toFixed(digits);
}

/**
 * A number of so many digits; a dash for what is not known.
 * @param {Json | undefined} x
 */
export function number(x, digits = 3) {
  if (typeof x !== "number" || Number.isNaN(x)) return "–";
  return (x < 0 ? "−" : "") + Math.abs(x).toFixed(digits);
}

/**
 * A number as short as its first digits allow.
 * @param {number} x
 */
export function compact(x, digits = 6) {
  if (Number.isNaN(x)) return "–";
  return String(Number(x.toPrecision(digits))).replaceAll("-", "−");
}

/**
 * Numbers on an axis, with as many digits as tell them apart.
 * @param {number[]} numbers in order, each once
 */
export function distinct(numbers) {
  for (let digits = 3; digits < 15; digits++) {
    const texts = numbers.map((x) => compact(x, digits));
    const exact = numbers.every(
      (x) => Math.abs(Number(x.toPrecision(digits)) - x) <= 1e-9 * Math.abs(x),
    );
    if (exact && new Set(texts).size === texts.length) return texts;
  }
  return numbers.map((x) => compact(x, 15));
}

/**
 * A name, cut if it is very long.
 * @param {string} name
 */
export function short(name, longest = 28) {
  return name.length <= longest ? name : `${name.slice(0, longest - 1)}…`;
}

/** @param {Table} table */
export function csvOf(table) {
  const cell = (/** @type {Json} */ x) => {
    const text = x === null ? "" : String(x);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [table.columns, ...table.rows].map((row) => `${row.map(cell).join(",")}\n`).join("");
}

/**
 * The cells of a map as a table; columns may have equal names, so they are numbered too.
 * @param {HeatMapMark} mark
 * @returns {Table}
 */
export function cellsOf(mark) {
  const n = mark.columns.length;
  const rows = mark.rows.flatMap((row, i) =>
    mark.columns.map((column, j) => {
      const value = mark.values[i * n + j];
      return [row, j, column, Number.isNaN(value) ? null : value];
    }),
  );
  return { columns: ["row", "number", "column", mark.label || "value"], rows };
}

/**
 * A table's rows as objects.
 * @param {Table | null | undefined} table
 * @returns {Record<string, any>[]}
 */
export function records(table) {
  if (!table) return [];
  return table.rows.map((row) => Object.fromEntries(table.columns.map((c, i) => [c, row[i]])));
}
