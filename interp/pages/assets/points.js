// @ts-check
// Pairs of numbers on equal axes, with the line y = x.
import { frame, paint } from "./axes.js";
import { el, svg, widthOf } from "./dom.js";
import { placeNames } from "./layout.js";
import { extent, makeScale } from "./scales.js";
import { compact, short } from "./text.js";

const LONGEST = 14; // names are tried for so many points, the largest first

/**
 * @param {PointsMark} mark
 * @returns {{x: [number, number], y: [number, number]}} the same for both axes
 */
export function pointsExtent(mark) {
  const logarithmic = mark.scale === "log" || mark.scale === "log2";
  const lists = [mark.x, mark.y, mark.x_low, mark.x_high, mark.y_low, mark.y_high];
  const both = extent(lists, logarithmic);
  return { x: both, y: both };
}

/**
 * @param {HTMLElement} place
 * @param {PointsMark} mark
 * @param {Context} context
 * @param {DrawOptions} options
 */
export function drawPoints(place, mark, { colours, selection }, options) {
  const side = Math.min(options.width - 60, options.alone ? 480 : 360);
  const [low, high] = options.limits?.x ?? pointsExtent(mark).x;
  const scale = makeScale(mark.scale, low, high, mark.linear_within, 0.05);
  const probe = {
    height: side,
    x: scale,
    y: scale,
    xLabel: mark.x_label,
    yLabel: mark.y_label,
  };
  const label = `${mark.title ? `${mark.title}: ` : ""}${mark.y_label} against ${mark.x_label}`;
  const first = frame({ ...probe, width: side + 60, label, grid: "both" });
  const width = Math.ceil(side + first.box.left + 14); // so that the axes are as long as high
  const { root, X, Y, box } = frame({ ...probe, width, label, grid: "both" });
  const corner = { x1: box.left, y1: box.bottom, x2: box.right, y2: box.top };
  root.append(svg("line", { ...corner, class: "diagonal" }));

  mark.names.forEach((name, i) => {
    if (!Number.isFinite(mark.x[i]) || !Number.isFinite(mark.y[i])) return;
    root.append(point(mark, i, X, Y, colours, selection));
  });
  nameLargest(root, mark, X, Y, box);
  place.append(el("div", { class: "scroll" }, root));
}

/**
 * @param {PointsMark} mark
 * @param {number} i
 * @param {(x: number) => number} X
 * @param {(y: number) => number} Y
 * @param {Colours} colours
 * @param {Chosen} selection
 */
function point(mark, i, X, Y, colours, selection) {
  const name = mark.names[i];
  const blue = paint(colours, "blue");
  const [x, y] = [X(mark.x[i]), Y(mark.y[i])];
  const group = svg("g", { class: "dot" });
  const between = (/** @type {Numbers | null} */ low, /** @type {Numbers | null} */ high) =>
    low && high && Number.isFinite(low[i]) && Number.isFinite(high[i]) ? [low[i], high[i]] : null;
  const [across, up] = [between(mark.x_low, mark.x_high), between(mark.y_low, mark.y_high)];
  const stroke = { stroke: blue, "stroke-opacity": 0.6 };
  if (across) {
    group.append(
      svg("line", {
        x1: X(across[0]),
        x2: X(across[1]),
        y1: y,
        y2: y,
        ...stroke,
      }),
    );
  }
  if (up) group.append(svg("line", { x1: x, x2: x, y1: Y(up[0]), y2: Y(up[1]), ...stroke }));
  const said = (/** @type {number} */ v, /** @type {number[] | null} */ ends) =>
    compact(v, 4) + (ends ? ` [${ends.map((end) => compact(end, 4)).join(", ")}]` : "");
  const ringed = mark.ringed.includes(i);
  const text =
    `${name}: ${said(mark.x[i], across)} · ${mark.x_label}; ` +
    `${said(mark.y[i], up)} · ${mark.y_label}`;
  group.append(svg("title", { text }), svg("circle", { cx: x, cy: y, r: 3.5, fill: blue }));
  if (ringed) {
    const ring = {
      r: 7,
      fill: "none",
      stroke: paint(colours, "against"),
      "stroke-width": 1.5,
    };
    group.append(svg("circle", { cx: x, cy: y, ...ring }));
  }
  if (selection.heads.includes(name)) {
    const halo = svg("circle", { cx: x, cy: y, r: 10, class: "halo" });
    group.append(halo);
    group.classList.add("choose");
    group.addEventListener("click", () => selection.set({ head: name }));
    selection.on(group, () => halo.classList.toggle("selected", selection.head === name));
  }
  return group;
}

/**
 * Names the largest points that have room beside them.
 * @param {any} root
 * @param {PointsMark} mark
 * @param {(x: number) => number} X
 * @param {(y: number) => number} Y
 * @param {Box} box
 */
function nameLargest(root, mark, X, Y, box) {
  const there = mark.names.map((_, i) => i).filter((i) => Number.isFinite(mark.x[i] + mark.y[i]));
  const size = (/** @type {number} */ i) => Math.max(Math.abs(mark.x[i]), Math.abs(mark.y[i]));
  const largest = [...there].sort((a, b) => size(b) - size(a) || a - b).slice(0, LONGEST);
  const places = largest.map((i) => {
    return {
      x: X(mark.x[i]),
      y: Y(mark.y[i]),
      width: widthOf(short(mark.names[i])),
      away: mark.ringed.includes(i) ? 10 : 7,
    };
  });
  const dots = there.map((i) => {
    const [x, y] = [X(mark.x[i]), Y(mark.y[i])];
    const r = mark.ringed.includes(i) ? 8 : 4;
    return { left: x - r, right: x + r, top: y - r, bottom: y + r };
  });
  placeNames(places, dots, box, 11).forEach((at, k) => {
    if (!at) return;
    root.append(
      svg("text", {
        class: "name",
        x: at.x,
        y: at.y + 4,
        text: short(mark.names[largest[k]]),
      }),
    );
  });
}
