// @ts-check
// Marks with a row per name: bars from zero, and dots with intervals.
import { frame, marker, paint } from "./axes.js";
import { el, svg, widthOf } from "./dom.js";
import { extent, makeScale } from "./scales.js";
import { compact, short, signed } from "./text.js";

const ROW = 17;
const MARKERS = ["o", "s", "^", "v", "D", "P"];

/**
 * A name at the left of its row; a click on a head's selects it.
 * @param {any} root
 * @param {string} name
 * @param {number} x
 * @param {number} y
 * @param {Chosen} selection
 * @param {string} look a class
 */
function rowName(root, name, x, y, selection, look = "") {
  const isHead = selection.heads.includes(name);
  const choose = () => selection.set({ head: name });
  const text = svg("text", {
    x,
    y: y + 4,
    "text-anchor": "end",
    text: short(name),
    class: look,
  });
  if (isHead) {
    text.addEventListener("click", choose);
    text.classList.add("choose");
    selection.on(text, () => text.classList.toggle("selected", selection.head === name));
  }
  if (name !== short(name)) text.append(svg("title", { text: name }));
  root.append(text);
}

/** @param {string[]} names */
function roomForNames(names) {
  return 14 + Math.max(30, ...names.map((name) => widthOf(short(name))));
}

/**
 * @param {HTMLElement} place
 * @param {BarsMark} mark
 * @param {Context} context
 * @param {DrawOptions} options
 */
export function drawBars(place, mark, { colours, selection }, options) {
  const texts = Array.from(mark.values, (v) =>
    mark.digits === null || Number.isNaN(v) ? "" : signed(v, mark.digits),
  );
  const left = roomForNames(mark.names);
  const width = Math.min(options.width, 760);
  const [low, high] = options.limits?.x ?? extentOf(mark).x;
  const room = Math.max(0, ...texts.map((text) => widthOf(text))) + 14;
  const inside = Math.max(width - left - 14, 120);
  const free = Math.max(inside - room * ((low < 0 ? 1 : 0) + (high > 0 ? 1 : 0)), 60);
  const perPixel = (high - low || 1) / free;
  const x = makeScale(
    "linear",
    low - (low < 0 ? room * perPixel : 0),
    high + (high > 0 ? room * perPixel : 0),
  );
  const height = ROW * Math.max(1, mark.names.length) + 6;
  const label = `${mark.title ? `${mark.title}: ` : ""}${mark.label} of ${mark.names.length} parts`;
  const { root, X, Y, box } = frame({
    width,
    height,
    left,
    x,
    xLabel: mark.label,
    label,
    grid: "x",
  });
  const zero = X(0);
  mark.names.forEach((name, i) => {
    const value = mark.values[i];
    const y = Y(3 + ROW * (i + 0.5));
    rowName(root, name, left - 8, y, selection);
    if (Number.isNaN(value)) return;
    const end = X(value);
    const size = {
      x: Math.min(zero, end),
      y: y - 6,
      width: Math.abs(end - zero),
      height: 12,
    };
    const fill = paint(colours, value > 0 ? "for" : "against");
    const title = svg("title", {
      text: `${name}: ${compact(value, 5)} · ${mark.label}`,
    });
    root.append(svg("rect", { ...size, fill }, title));
    const anchor = value >= 0 ? "start" : "end";
    const beside = {
      x: end + (value >= 0 ? 4 : -4),
      y: y + 4,
      "text-anchor": anchor,
    };
    root.append(svg("text", { ...beside, class: "soft", text: texts[i] }));
  });
  root.append(
    svg("line", {
      x1: zero,
      x2: zero,
      y1: box.top,
      y2: box.bottom,
      class: "axis",
    }),
  );
  place.append(el("div", { class: "scroll" }, root));
}

/**
 * @param {BarsMark | DotsMark} mark
 * @returns {{x: [number, number]}}
 */
export function extentOf(mark) {
  if (mark.mark === "Bars") {
    const [low, high] = extent([mark.values, [0]]);
    return { x: [low, high] };
  }
  const logarithmic = mark.scale === "log" || mark.scale === "log2";
  const lists = mark.series.flatMap((one) => [one.values, one.low, one.high]);
  const [low, high] = extent(lists, logarithmic);
  const nearby = !logarithmic && low <= high - low && high >= low - high;
  return { x: nearby ? [Math.min(low, 0), Math.max(high, 0)] : [low, high] };
}

/**
 * @param {HTMLElement} place
 * @param {DotsMark} mark
 * @param {Context} context
 * @param {DrawOptions} options
 */
export function drawDots(place, mark, context, options) {
  if (!mark.names.length) {
    place.append(el("p", { class: "empty", text: mark.empty || "nothing to show" }));
    return;
  }
  const left = roomForNames(mark.names);
  const width = Math.min(options.width, 760);
  const [low, high] = options.limits?.x ?? extentOf(mark).x;
  const x = makeScale(mark.scale, low, high, mark.linear_within, 0.03);
  const step = ROW + Math.max(0, mark.series.length - 2) * 5;
  const height = step * mark.names.length + 6;
  const label = `${mark.title ? `${mark.title}: ` : ""}${mark.label}, for ${mark.names.length} names`;
  const frameOf = { width, height, left, x, xLabel: mark.label, label };
  const { root, X, Y, box } = frame({ ...frameOf, grid: "x" });
  const start = X(0);
  if (start >= box.left && start <= box.right) {
    root.append(
      svg("line", {
        x1: start,
        x2: start,
        y1: box.top,
        y2: box.bottom,
        class: "axis",
      }),
    );
  }
  const apart = mark.series.length > 1 ? Math.min(6, (step - 5) / mark.series.length) : 0;
  mark.names.forEach((name, i) => {
    const middle = Y(3 + step * (i + 0.5));
    const look = mark.strong === null ? "" : mark.strong.includes(i) ? "strong" : "soft";
    rowName(root, name, left - 8, middle, context.selection, look);
    mark.series.forEach((one, k) => {
      const y = middle + apart * (k - (mark.series.length - 1) / 2);
      root.append(dot(one, k, i, name, X, y, mark.label, context.colours));
    });
  });
  place.append(el("div", { class: "scroll" }, root));
}

/**
 * @param {SeriesMark} one
 * @param {number} k its number
 * @param {number} i the name's
 * @param {string} name
 * @param {(x: number) => number} X
 * @param {number} y
 * @param {string} label
 * @param {Colours} colours
 */
function dot(one, k, i, name, X, y, label, colours) {
  const value = one.values[i];
  const [low, high] = [one.low ? one.low[i] : NaN, one.high ? one.high[i] : NaN];
  const known = Number.isFinite(low) && Number.isFinite(high);
  const group = svg("g", { class: "dot", opacity: one.faint ? 0.5 : 1 });
  if (Number.isNaN(value)) return group;
  const fill = paint(colours, one.colour);
  const interval = known ? ` [${compact(low, 4)}, ${compact(high, 4)}]` : "";
  const said = `${name}: ${one.name ? `${one.name} ` : ""}${compact(value, 4)}${interval} · ${label}`;
  group.append(svg("title", { text: said }));
  if (known) {
    const line = { x1: X(low), x2: X(high), y1: y, y2: y };
    group.append(svg("line", { ...line, stroke: fill, "stroke-width": 1.6 }));
  }
  group.append(marker(one.marker || MARKERS[k % MARKERS.length], X(value), y, { fill }));
  return group;
}

/** @param {DotsMark} mark the marker of each series, for a legend */
export function markersOf(mark) {
  return mark.series.map((one, k) => one.marker || MARKERS[k % MARKERS.length]);
}
