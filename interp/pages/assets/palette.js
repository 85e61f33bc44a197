// @ts-check
// The one table of colours and glyphs (interp/figures/palette.py), as the page carries it.

/**
 * @param {Palette} table
 * @returns {Colours}
 */
export function makeColours(table) {
  return {
    ramp: (name, x) => {
      const stops = table.ramps[name];
      const at = Math.min(Math.max(x, 0), 1) * (stops.length - 1);
      const i = Math.min(Math.floor(at), stops.length - 2);
      return stops[i].map((low, k) => Math.round(low + (stops[i + 1][k] - low) * (at - i)));
    },
    colour: (name) => table.colours[name] ?? name,
    visible: (character) => {
      const known = table.glyphs[character] ?? character;
      const code = known.codePointAt(0) ?? 32;
      const printable = !/[\p{C}\p{Z}]/u.test(known);
      return printable ? known : `\\u${code.toString(16).padStart(4, "0")}`;
    },
    unit: (metric) => table.units[metric] ?? "",
  };
}

/** @param {string} hex `#rrggbb` */
export function rgbOf(hex) {
  return [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));
}

/**
 * Relative luminance (WCAG).
 * @param {number[]} rgb
 */
export function luminance(rgb) {
  const [r, g, b] = rgb.map((c) =>
    c <= 10.31 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * @param {number[]} one
 * @param {number[]} other
 */
export function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/**
 * Black or white, whichever stands out more.
 * @param {number[]} rgb
 */
export function inkOn(rgb) {
  return luminance(rgb) > 0.179 ? "#000" : "#fff";
}

/**
 * A colour made lighter until it stands out from a dark background.
 * @param {string} hex
 * @param {number[]} paper
 */
export function lighter(hex, paper, least = 3.5) {
  const rgb = rgbOf(hex);
  for (let share = 0; share < 1; share += 0.05) {
    const mixed = rgb.map((c) => Math.round(c + (255 - c) * share));
    if (contrast(mixed, paper) >= least) return `rgb(${mixed})`;
  }
  return "#fff";
}
