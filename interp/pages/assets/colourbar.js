// @ts-check
// The colour bar below heat maps: limits, numbers where they stand on the ramp, and what they are.
import { svg, widthOf } from "./dom.js";
import { thin, wrap } from "./layout.js";
import { placeOf } from "./mapplan.js";
import { makeScale, nearZero } from "./scales.js";
import { compact } from "./text.js";

const LENGTH = 240;
const STEPS = 80;

/**
 * @param {HeatMapMark[]} marks that share their limits
 * @param {Colours} colours
 * @param {number} width at most
 */
export function colourBar(marks, colours, width) {
  const [mark] = marks;
  const place = placeOf(mark);
  const length = Math.min(LENGTH, width - 70);
  const left = 36;
  const root = svg("svg", {
    class: "colour-bar",
    role: "img",
    "aria-label": mark.label,
  });
  for (let i = 0; i < STEPS; i++) {
    const fill = `rgb(${colours.ramp(mark.palette, (i + 0.5) / STEPS)})`;
    const x = left + (i * length) / STEPS;
    root.append(svg("rect", { x, y: 4, width: length / STEPS + 0.5, height: 10, fill }));
  }
  const within = mark.scale === "symlog" ? nearZero(mark.values) : 0;
  const between = makeScale(mark.scale, mark.low, mark.high, within).ticks(4);
  const ticks = [...new Set([mark.low, ...between, mark.high])].sort((a, b) => a - b);
  const at = ticks.map((x) => left + length * place(x));
  const texts = ticks.map((x) => compact(x, 3));
  const { under, over } = beyond(marks);
  if (under) texts[0] = `≤ ${texts[0]}`;
  if (over) texts[texts.length - 1] = `≥ ${texts[texts.length - 1]}`;
  for (const i of thin(
    ticks,
    at,
    texts.map((text) => widthOf(text)),
  )) {
    root.append(svg("line", { x1: at[i], x2: at[i], y1: 14, y2: 18, class: "axis" }));
    root.append(svg("text", { x: at[i], y: 29, "text-anchor": "middle", text: texts[i] }));
  }
  const lines = wrap(`${mark.label}${scaleName(mark)}`, Math.max(width - 8, 120), widthOf);
  lines.forEach((text, k) => root.append(svg("text", { x: 4, y: 44 + 14 * k, text })));
  const most = Math.max(length + 72, ...lines.map((line) => widthOf(line) + 10));
  root.setAttribute("width", String(Math.ceil(most)));
  root.setAttribute("height", String(34 + 14 * lines.length));
  return root;
}

/** @param {HeatMapMark} mark */
function scaleName(mark) {
  return {
    linear: "",
    root: " (square-root scale)",
    log: " (logarithmic scale)",
    log2: " (logarithmic scale)",
    symlog: " (symmetric logarithmic scale)",
  }[mark.scale];
}

/** @param {HeatMapMark[]} marks */
function beyond(marks) {
  const values = marks.map((mark) => mark.values);
  return {
    under: values.some((list) => list.some((x) => x < marks[0].low)),
    over: values.some((list) => list.some((x) => x > marks[0].high)),
  };
}
