// @ts-check
// Every mark by its name, alone or in panels, with its title, its legend or its colour bar.
import { marker, paint } from "./axes.js";
import { colourBar } from "./colourbar.js";
import { el, svg } from "./dom.js";
import { drawHeatMap } from "./heatmap.js";
import { drawLines, linesExtent } from "./lines.js";
import { drawPoints, pointsExtent } from "./points.js";
import { drawBars, drawDots, extentOf, markersOf } from "./rows.js";

const GAP = 24;
const NARROWEST = 220; // pixels of a panel

/** @type {Record<string, (place: HTMLElement, mark: any, c: Context, o: DrawOptions) => void>} */
const DRAWN = {
  HeatMap: drawHeatMap,
  Bars: drawBars,
  Dots: drawDots,
  Points: drawPoints,
  Lines: drawLines,
};

/**
 * Draws a decoded mark into `place`, whatever it is.
 * @param {HTMLElement} place
 * @param {Mark} mark
 * @param {Context} context
 * @param {DrawOptions["say"]} [say] what a heat map's line says of a cell
 */
export function drawMark(place, mark, context, say) {
  const width = Math.max(300, Math.min(place.clientWidth || 1100, 1160));
  place.replaceChildren();
  if (mark.mark === "Panels") drawPanels(place, mark, context, width);
  else {
    drawOne(place, mark, context, {
      width,
      alone: true,
      ...(say ? { say } : {}),
    });
    addLegend(place, [mark], context);
    addBar(place, [mark], context, width);
  }
}

/**
 * @param {HTMLElement} place
 * @param {OneMark} mark
 * @param {Context} context
 * @param {DrawOptions} options
 */
function drawOne(place, mark, context, options) {
  const { selection } = context;
  if (mark.title && selection.heads.includes(mark.title)) {
    const button = el("button", {
      type: "button",
      class: "choose",
      text: mark.title,
    });
    button.addEventListener("click", () => selection.set({ head: mark.title }));
    const pressed = () => String(selection.head === mark.title);
    selection.on(button, () => button.setAttribute("aria-pressed", pressed()));
    place.append(el("p", { class: "mark-title" }, button));
  } else if (mark.title) place.append(el("p", { class: "mark-title", text: mark.title }));
  DRAWN[mark.mark](place, mark, context, options);
}

/**
 * @param {HTMLElement} place
 * @param {PanelsMark} mark
 * @param {Context} context
 * @param {number} width
 */
function drawPanels(place, mark, context, width) {
  const columns = Math.min(mark.columns, mark.marks.length);
  const each = Math.floor((width - GAP * (columns - 1)) / columns);
  const room = Math.min(width, Math.max(each, NARROWEST));
  const grid = el("div", {
    class: "panels",
    style: { "--columns": String(columns) },
  });
  if (mark.title) place.append(el("p", { class: "mark-title", text: mark.title }));
  place.append(grid);
  const limits = mark.share ? shared(mark.marks) : undefined;
  for (const one of mark.marks) {
    const panel = el("div", { class: "panel" });
    grid.append(panel);
    drawOne(panel, one, context, {
      width: room,
      alone: false,
      ...(limits ? { limits } : {}),
    });
    if (mark.share) continue;
    addLegend(panel, [one], context);
    addBar(panel, [one], context, room);
  }
  if (!mark.share) return;
  addLegend(place, mark.marks, context);
  addBar(place, mark.marks, context, width);
}

/**
 * The limits of all marks together.
 * @param {OneMark[]} marks
 * @returns {Limits}
 */
export function shared(marks) {
  /** @type {Limits} */
  const limits = {};
  const wider = (
    /** @type {[number, number]} */ b,
    /** @type {[number, number] | undefined} */ a,
  ) => /** @type {[number, number]} */ (a ? [Math.min(a[0], b[0]), Math.max(a[1], b[1])] : b);
  for (const mark of marks) {
    const own = limitsOf(mark);
    if (own.x) limits.x = wider(own.x, limits.x);
    if (own.y) limits.y = wider(own.y, limits.y);
  }
  return limits;
}

/**
 * @param {OneMark} mark
 * @returns {Limits}
 */
function limitsOf(mark) {
  switch (mark.mark) {
    case "Lines":
      return linesExtent(mark);
    case "Points":
      return pointsExtent(mark);
    case "HeatMap":
      return {};
    default:
      return extentOf(mark);
  }
}

/**
 * @param {HTMLElement} place
 * @param {OneMark[]} marks
 * @param {Context} context
 * @param {number} width
 */
function addBar(place, marks, { colours }, width) {
  const maps = /** @type {HeatMapMark[]} */ (marks.filter((mark) => mark.mark === "HeatMap"));
  if (maps.length) place.append(el("div", { class: "scroll" }, colourBar(maps, colours, width)));
}

/**
 * One entry per name, whatever number of panels has it.
 * @param {HTMLElement} place
 * @param {OneMark[]} marks
 * @param {Context} context
 */
function addLegend(place, marks, { colours }) {
  /** @type {Map<string, Node>} */
  const entries = new Map();
  for (const mark of marks) {
    if (mark.mark === "Dots" && mark.series.length > 1 && mark.names.length) {
      const kinds = markersOf(mark);
      mark.series.forEach((one, k) => {
        if (one.name) entries.set(one.name, swatch(one, kinds[k], false, colours));
      });
    }
    if (mark.mark !== "Lines" || !mark.legend) continue;
    for (const one of mark.series) {
      if (one.name && !entries.has(one.name)) {
        entries.set(one.name, swatch(one, one.marker, one.line, colours));
      }
    }
    for (const { name } of mark.spans) {
      const look = { colour: "for", dashed: true, faint: false };
      if (name) entries.set(name, swatch(look, "", true, colours));
    }
  }
  const lines = [...entries].map(([name, drawn]) => el("span", {}, drawn, name));
  if (lines.length) place.append(el("p", { class: "legend" }, ...lines));
}

/**
 * @param {{colour: string, dashed: boolean, faint: boolean}} look
 * @param {string} kind of the marker
 * @param {boolean} line
 * @param {Colours} colours
 */
function swatch(look, kind, line, colours) {
  const colour = paint(colours, look.colour);
  const root = svg("svg", { width: 22, height: 12, "aria-hidden": "true" });
  if (line) {
    const dash = look.dashed ? { "stroke-dasharray": "5 3" } : {};
    const stroke = {
      stroke: colour,
      "stroke-width": look.faint ? 1 : 1.7,
      ...dash,
    };
    root.append(svg("line", { x1: 0, x2: 22, y1: 6, y2: 6, ...stroke }));
  }
  if (kind) root.append(marker(kind, 11, 6, { fill: colour }));
  return root;
}
