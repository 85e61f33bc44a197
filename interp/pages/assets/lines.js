// @ts-check
// Series over an ordered axis, with bands or bars, spans, and tags at their ends.
import { frame, paint } from "./axes.js";
import { el, svg, widthOf } from "./dom.js";
import { spread } from "./layout.js";
import { extent, makeScale } from "./scales.js";
import { drawSeries } from "./series.js";
import { compact, short } from "./text.js";

/** @param {ScaleKind} kind */
function isLogarithmic(kind) {
  return kind === "log" || kind === "log2";
}

/**
 * @param {LinesMark} mark
 * @returns {{x: [number, number], y: [number, number]}}
 */
export function linesExtent(mark) {
  const spans = mark.spans.flatMap((span) => [span.at, span.low ?? NaN, span.high ?? NaN]);
  const x = extent([mark.x, spans], isLogarithmic(mark.x_scale));
  const lists = mark.series.flatMap((one) => [one.values, one.low, one.high]);
  const [low, high] = extent([...lists, mark.zero ? [0] : []], isLogarithmic(mark.y_scale));
  return { x, y: [mark.y_low ?? low, mark.y_high ?? high] };
}

/**
 * Limits with room about the data, but none beyond limits that the mark gives.
 * @param {LinesMark} mark
 * @param {[number, number]} limits
 */
function yScaleOf(mark, [low, high]) {
  const room = isLogarithmic(mark.y_scale) ? 0 : 0.05 * (high - low || Math.abs(high) || 1);
  return makeScale(
    mark.y_scale,
    low - (mark.y_low === null ? room : 0),
    high + (mark.y_high === null ? room : 0),
    0,
    room || mark.y_low !== null || mark.y_high !== null ? 0 : 0.05,
  );
}

/**
 * How far the markers of each series stand beside their places, on the scale of the axis.
 * @param {LinesMark} mark
 * @param {(x: number) => number} X
 */
function besides(mark, X) {
  const marked = mark.series.filter((one) => one.marker);
  const at = [...new Set(Array.from(mark.x, X))].sort((a, b) => a - b);
  const gaps = at.slice(1).map((x, i) => x - at[i]);
  const step = (0.4 * Math.min(60, ...gaps)) / Math.max(marked.length, 4);
  return (/** @type {SeriesMark} */ one) =>
    mark.dodge && one.marker ? step * (marked.indexOf(one) - (marked.length - 1) / 2) : 0;
}

/**
 * @param {HTMLElement} place
 * @param {LinesMark} mark
 * @param {Context} context
 * @param {DrawOptions} options
 */
export function drawLines(place, mark, { colours, selection }, options) {
  const own = linesExtent(mark);
  const [low, high] = options.limits?.x ?? own.x;
  const x = makeScale(mark.x_scale, low, high, 0, 0.03);
  const y = yScaleOf(mark, options.limits?.y ?? own.y);
  const tags = Math.max(0, ...mark.series.map((one) => widthOf(short(one.tag))));
  const width = Math.min(options.width, options.alone ? 680 : 460);
  const label = `${mark.title ? `${mark.title}: ` : ""}${mark.y_label} against ${mark.x_label}`;
  const { root, X, Y, box } = frame({
    width,
    height: options.alone ? 270 : 200,
    right: tags ? tags + 14 : 14,
    x,
    y,
    label,
    xLabel: mark.x_label,
    yLabel: mark.y_label,
    grid: "y",
    ...(mark.ticks.length ? { xTicks: mark.ticks } : {}),
  });
  for (const span of mark.spans) root.append(drawSpan(span, X, box, colours));
  const zero = Y(0);
  if (mark.zero && zero >= box.top && zero <= box.bottom) {
    root.append(
      svg("line", {
        x1: box.left,
        x2: box.right,
        y1: zero,
        y2: zero,
        class: "axis",
      }),
    );
  }
  const beside = besides(mark, X);
  for (const one of mark.series) {
    root.append(drawSeries(one, mark, (v) => X(v) + beside(one), Y, colours, selection));
  }
  drawTags(root, mark, X, Y, box, colours);
  place.append(el("div", { class: "scroll" }, root));
}

/**
 * @param {SpanMark} span
 * @param {(x: number) => number} X
 * @param {Box} box
 * @param {Colours} colours
 */
function drawSpan(span, X, box, colours) {
  const stroke = paint(colours, "for");
  const interval = span.low !== null && span.high !== null;
  const said = `${span.name} ${compact(span.at, 4)}`;
  const ends = interval ? ` [${compact(span.low ?? 0, 4)}, ${compact(span.high ?? 0, 4)}]` : "";
  const group = svg("g", {}, svg("title", { text: said + ends }));
  if (interval) {
    const [left, right] = [X(span.low ?? 0), X(span.high ?? 0)];
    const size = {
      x: left,
      width: Math.max(1, right - left),
      y: box.top,
      height: box.bottom - box.top,
    };
    group.append(svg("rect", { ...size, fill: stroke, "fill-opacity": 0.15 }));
  }
  const at = { x1: X(span.at), x2: X(span.at), y1: box.top, y2: box.bottom };
  group.append(
    svg("line", {
      ...at,
      stroke,
      "stroke-dasharray": "4 3",
      "stroke-width": 1.2,
    }),
  );
  return group;
}

/**
 * @param {any} root
 * @param {LinesMark} mark
 * @param {(x: number) => number} X
 * @param {(y: number) => number} Y
 * @param {Box} box
 * @param {Colours} colours
 */
function drawTags(root, mark, X, Y, box, colours) {
  const tagged = mark.series.flatMap((one) => {
    let i = mark.x.length - 1;
    while (i >= 0 && !Number.isFinite(one.values[i])) i -= 1;
    return one.tag && i >= 0 ? [{ one, x: X(mark.x[i]), y: Y(one.values[i]) }] : [];
  });
  const heights = spread(
    tagged.map(({ y }) => y),
    12,
    box.top + 4,
    box.bottom,
  );
  tagged.forEach(({ one, x }, k) => {
    const place = { x: Math.max(x + 6, box.right - 8), y: heights[k] + 4 };
    root.append(
      svg("text", {
        ...place,
        style: { fill: paint(colours, one.colour) },
        text: short(one.tag),
      }),
    );
  });
}
