// @ts-check
// Axes: a frame with ticks that have room, labels, and the shapes that are drawn on it.
import { css, isDark, svg, widthOf } from "./dom.js";
import { thin, wrap } from "./layout.js";
import { lighter, rgbOf } from "./palette.js";
import { distinct } from "./text.js";

const TEXT_LINE = 13;

/**
 * @typedef {object} Frame
 * @property {any} root the svg
 * @property {(x: number) => number} X
 * @property {(y: number) => number} Y
 * @property {Box} box within the axes
 */

/**
 * @param {object} given
 * @param {number} given.width of the whole
 * @param {number} given.height within the axes
 * @param {number} [given.left] room for names at the left, instead of numbers
 * @param {number} [given.right]
 * @param {Scale} given.x
 * @param {Scale} [given.y] without it, rows: `Y` takes pixels below the top
 * @param {string} given.xLabel
 * @param {string} [given.yLabel]
 * @param {[number, string][]} [given.xTicks]
 * @param {string} given.label
 * @param {"x" | "y" | "both"} given.grid
 * @returns {Frame}
 */
export function frame({ width, height, left, right = 14, x, y, ...rest }) {
  const yTicks = y ? y.ticks(Math.max(2, height / 45)) : [];
  const yTexts = distinct(yTicks);
  const labels = wrap(rest.yLabel ?? "", height, widthOf).filter(Boolean);
  const numbers = Math.max(0, ...yTexts.map((text) => widthOf(text)));
  const start = left ?? numbers + 12 + TEXT_LINE * labels.length + (labels.length ? 4 : 0);
  const box = { left: start, right: width - right, top: 8, bottom: 8 + height };
  const X = (/** @type {number} */ v) => box.left + x.at(v) * (box.right - box.left);
  const Y = (/** @type {number} */ v) =>
    y ? box.bottom - y.at(v) * (box.bottom - box.top) : box.top + v;

  const xLines = wrap(rest.xLabel, box.right - box.left, widthOf);
  const whole = box.bottom + 22 + TEXT_LINE * xLines.length + 2;
  const viewBox = `0 0 ${width} ${whole}`;
  const size = { width, height: whole, viewBox };
  const root = svg("svg", { ...size, role: "img", "aria-label": rest.label });
  const grid = (/** @type {object} */ at) => root.append(svg("line", { ...at, class: "grid" }));
  yTicks.forEach((t, i) => {
    if (rest.grid !== "x") grid({ x1: box.left, x2: box.right, y1: Y(t), y2: Y(t) });
    const place = { x: box.left - 6, y: Y(t) + 4, "text-anchor": "end" };
    root.append(svg("text", { ...place, text: yTexts[i] }));
  });
  drawXTicks(root, rest.xTicks ?? x.ticks(Math.max(2, (box.right - box.left) / 80)), X, box, grid, {
    lines: rest.grid !== "y",
  });
  root.append(
    svg("line", {
      x1: box.left,
      x2: box.right,
      y1: box.bottom,
      y2: box.bottom,
      class: "axis",
    }),
    svg("line", {
      x1: box.left,
      x2: box.left,
      y1: box.top,
      y2: box.bottom,
      class: "axis",
    }),
  );
  const middle = (box.left + box.right) / 2;
  const centred = { "text-anchor": "middle" };
  xLines.forEach((text, k) =>
    root.append(
      svg("text", {
        ...centred,
        x: middle,
        y: box.bottom + 33 + TEXT_LINE * k,
        text,
      }),
    ),
  );
  labels.forEach((text, k) => {
    const transform = `translate(${11 + TEXT_LINE * k} ${(box.top + box.bottom) / 2}) rotate(-90)`;
    root.append(svg("text", { ...centred, transform, text }));
  });
  return { root, X, Y, box };
}

/**
 * @param {any} root
 * @param {number[] | [number, string][]} given
 * @param {(x: number) => number} X
 * @param {Box} box
 * @param {(at: object) => void} grid
 * @param {{lines: boolean}} options
 */
function drawXTicks(root, given, X, box, grid, { lines }) {
  const ticks = given.map((t) => (typeof t === "number" ? t : t[0]));
  const named = given.some((t) => typeof t !== "number");
  const texts = named ? given.map((t) => (typeof t === "number" ? "" : t[1])) : distinct(ticks);
  const at = ticks.map(X);
  const kept = thin(
    ticks,
    at,
    texts.map((text) => widthOf(text)),
  );
  for (const i of kept) {
    if (lines) grid({ x1: at[i], x2: at[i], y1: box.top, y2: box.bottom });
    root.append(
      svg("line", {
        x1: at[i],
        x2: at[i],
        y1: box.bottom,
        y2: box.bottom + 4,
        class: "axis",
      }),
      svg("text", {
        x: at[i],
        y: box.bottom + 16,
        "text-anchor": "middle",
        text: texts[i],
      }),
    );
  }
}

/**
 * A colour that stands out in the reader's scheme.
 * @param {Colours} colours
 * @param {string} name
 */
export function paint(colours, name) {
  const hex = colours.colour(name);
  return isDark() ? lighter(hex, rgbOf(css("--paper"))) : hex;
}

/**
 * @param {string} kind one of "o s ^ v D P"
 * @param {number} x
 * @param {number} y
 * @param {Record<string, any>} attributes
 */
export function marker(kind, x, y, attributes, r = 3.5) {
  const shapes = /** @type {Record<string, number[][]>} */ ({
    s: [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ],
    "^": [
      [0, -1.2],
      [1.2, 1],
      [-1.2, 1],
    ],
    v: [
      [0, 1.2],
      [1.2, -1],
      [-1.2, -1],
    ],
    D: [
      [0, -1.4],
      [1.4, 0],
      [0, 1.4],
      [-1.4, 0],
    ],
    P: [
      [-0.5, -1.3],
      [0.5, -1.3],
      [0.5, -0.5],
      [1.3, -0.5],
      [1.3, 0.5],
      [0.5, 0.5],
      [0.5, 1.3],
      [-0.5, 1.3],
      [-0.5, 0.5],
      [-1.3, 0.5],
      [-1.3, -0.5],
      [-0.5, -0.5],
    ],
  });
  if (!shapes[kind]) return svg("circle", { cx: x, cy: y, r, ...attributes });
  const corners = shapes[kind].map(
    ([dx, dy]) => `${(x + r * dx).toFixed(1)},${(y + r * dy).toFixed(1)}`,
  );
  return svg("path", { d: `M${corners.join("L")}Z`, ...attributes });
}
