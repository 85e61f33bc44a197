// @ts-check
// The crosshair on a map of cells, moved by the pointer and by the arrow keys.
import { css } from "./dom.js";

/** @typedef {import("./mapplan.js").Plan} Plan */
/** @typedef {[number | null, number | null]} Place row and column */

/**
 * Which cell a point of the canvas is in.
 * @param {number[]} starts
 * @param {number} size
 * @param {number} at
 */
function indexAt(starts, size, at) {
  return starts.findIndex((start) => at >= start && at < start + size);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLCanvasElement} base
 * @param {HTMLElement} line
 * @param {Plan} plan
 * @param {{marked: () => Place, say: (r: number, c: number) => string}} about
 */
export function crosshair(canvas, base, line, plan, { marked, say }) {
  /** @type {[number, number] | null} */
  let at = null;
  const { cell, left, across, down } = plan;
  const draw = () => {
    const ctx = canvas.getContext("2d");
    if (!ctx) return;
    const ratio = canvas.width / plan.width;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    ctx.drawImage(base, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const stroke = (/** @type {Place} */ [r, c], /** @type {string} */ style) => {
      ctx.strokeStyle = style;
      if (c !== null)
        ctx.strokeRect(left + across.starts[c] - 0.5, 0.5, cell.width + 1, down.length - 1);
      if (r !== null)
        ctx.strokeRect(left + 0.5, down.starts[r] - 0.5, across.length - 1, cell.height + 1);
    };
    const mark = marked();
    stroke(mark, css("--mark"));
    if (at) stroke(at, css("--ink"));
    const [r, c] = at ?? mark;
    line.textContent = r !== null && c !== null ? say(r, c) : "";
  };
  const moveTo = (/** @type {[number, number] | null} */ to) => {
    at = to;
    draw();
    return at;
  };
  return { draw, moveTo };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Plan} plan
 * @param {{moveTo: Function, choose: (r: number, c: number) => void, marked: () => Place}} actions
 */
export function listenToCanvas(canvas, { cell, left, across, down }, { moveTo, choose, marked }) {
  /** @type {[number, number] | null} */
  let at = null;
  const go = (/** @type {[number, number] | null} */ to) => void (at = moveTo(to));
  const hit = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const c = indexAt(across.starts, cell.width, event.clientX - box.left - left);
    const r = indexAt(down.starts, cell.height, event.clientY - box.top);
    return /** @type {[number, number] | null} */ (r < 0 || c < 0 ? null : [r, c]);
  };
  canvas.addEventListener("pointermove", (event) => go(hit(event)));
  canvas.addEventListener("pointerleave", () => go(null));
  canvas.addEventListener("blur", () => go(null));
  canvas.addEventListener("click", (event) => {
    const cellHit = hit(event);
    if (cellHit) choose(...cellHit);
  });
  const moves = {
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
  };
  canvas.addEventListener("keydown", (event) => {
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (move) {
      const [r, c] = at ?? marked();
      const to = (
        /** @type {number | null} */ from,
        /** @type {number} */ by,
        /** @type {number} */ n,
      ) => Math.min(Math.max((from ?? 0) + by, 0), n - 1);
      go([to(r, move[0], down.starts.length), to(c, move[1], across.starts.length)]);
    } else if ((event.key === "Enter" || event.key === " ") && at) choose(...at);
    else return;
    event.preventDefault();
  });
}
