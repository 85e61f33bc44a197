// @ts-check
// One series of lines: its line, its band or bars, its markers, and what it says.
import { marker, paint } from "./axes.js";
import { svg } from "./dom.js";
import { compact } from "./text.js";

/**
 * @param {SeriesMark} one
 * @param {LinesMark} mark
 * @param {(x: number) => number} X
 * @param {(y: number) => number} Y
 * @param {Colours} colours
 * @param {Chosen} selection
 */
export function drawSeries(one, mark, X, Y, colours, selection) {
  const stroke = paint(colours, one.colour);
  const group = svg("g", { class: "series", opacity: one.faint ? 0.5 : 1 });
  const at = (/** @type {number} */ i, /** @type {Numbers} */ list) =>
    `${X(mark.x[i]).toFixed(1)},${Y(list[i]).toFixed(1)}`;
  const there = (/** @type {Numbers | null} */ list, /** @type {number} */ i) =>
    list !== null && Number.isFinite(list[i]) && Number.isFinite(Y(list[i]));
  const places = Array.from(mark.x, (_, i) => i).filter((i) => Number.isFinite(X(mark.x[i])));
  const { low, high } = one;
  const ends = low && high ? places.filter((i) => there(low, i) && there(high, i)) : [];
  const bars = !one.line || (mark.dodge && one.marker !== "");
  if (low && high && bars) {
    for (const i of ends) {
      const x = X(mark.x[i]);
      const line = { x1: x, x2: x, y1: Y(low[i]), y2: Y(high[i]) };
      group.append(svg("line", { ...line, stroke, "stroke-width": 1.3 }));
    }
  } else if (low && high) {
    const round = [...ends.map((i) => at(i, high)), ...ends.reverse().map((i) => at(i, low))];
    const band = { fill: stroke, "fill-opacity": one.faint ? 0.12 : 0.2 };
    if (round.length) group.append(svg("path", { d: `M${round.join("L")}Z`, ...band }));
  }
  const seen = places.filter((i) => there(one.values, i));
  if (one.line) {
    const d = seen.map((i, k) => `${k && seen[k - 1] === i - 1 ? "L" : "M"}${at(i, one.values)}`);
    const dash = one.dashed ? { "stroke-dasharray": "5 3" } : {};
    const look = {
      fill: "none",
      stroke,
      "stroke-width": one.faint ? 1 : 1.7,
      ...dash,
    };
    const line = svg("path", { d: d.join(""), ...look });
    group.append(line);
  }
  const alone = one.line && !one.marker && seen.length === 1; // a line through one point is unseen
  for (const i of one.marker || alone ? seen : []) {
    const dot = marker(one.marker || "o", X(mark.x[i]), Y(one.values[i]), {
      fill: stroke,
    });
    dot.append(svg("title", { text: readingOf(one, mark, i) }));
    group.append(dot);
  }
  hover(group, one, mark, seen, selection);
  return group;
}

/**
 * @param {SeriesMark} one
 * @param {LinesMark} mark
 * @param {number} i
 */
function readingOf(one, mark, i) {
  const { low, high } = one;
  const known = low && high && Number.isFinite(low[i]) && Number.isFinite(high[i]);
  const interval = known ? ` [${compact(low[i], 4)}, ${compact(high[i], 4)}]` : "";
  const tick = mark.ticks.find(([place]) => place === mark.x[i]);
  const name = one.name || one.tag;
  const place = `${tick ? tick[1] : compact(mark.x[i], 4)} · ${mark.x_label}`;
  return `${name ? `${name}: ` : ""}${compact(one.values[i], 4)}${interval} · ${mark.y_label}, at ${place}`;
}

/**
 * What a line says of itself; a click on a head's selects it.
 * @param {any} group
 * @param {SeriesMark} one
 * @param {LinesMark} mark
 * @param {number[]} seen
 * @param {Chosen} selection
 */
function hover(group, one, mark, seen, selection) {
  if (!seen.length) return;
  const last = readingOf(one, mark, seen[seen.length - 1]);
  group.prepend(svg("title", { text: one.name || one.tag ? last : "" }));
  const head = [one.tag, one.name].find((name) => selection.heads.includes(name));
  if (!head) return;
  group.classList.add("choose");
  group.addEventListener("click", () => selection.set({ head }));
  selection.on(group, () => group.classList.toggle("selected", selection.head === head));
}
