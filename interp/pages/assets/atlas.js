// @ts-check
// All heads side by side: thumbnails of their attention, names, effects; sorted and filtered.
import { el } from "./dom.js";
import { signed } from "./text.js";

/** @typedef {import("./headfacts.js").HeadFacts} HeadFacts */

/**
 * @param {HTMLElement} place
 * @param {Passage} passage
 * @param {HeadFacts} facts
 * @param {Context} context
 * @param {number} perLayer heads in a layer
 */
export function atlas(place, passage, facts, context, perLayer) {
  const { selection } = context;
  if (!selection.heads.length) return;
  const cards = new Map(
    selection.heads.map((head, h) => [head, cardOf(head, h, passage, facts, context)]),
  );
  const grid = el("div", { class: "atlas" });
  const shown = el("p", { class: "sum", "aria-live": "polite" });
  const { order, filter } = choosers(facts, selection.heads, fill);
  place.replaceChildren(
    el(
      "div",
      { class: "controls" },
      el("label", {}, "sort by ", order),
      filter.length > 1 ? el("label", {}, "show ", filter) : null,
      shown,
    ),
    grid,
  );
  function fill() {
    const chosen = sorted(selection.heads, facts, order.value, filter.value);
    grid.replaceChildren(...chosen.map((head) => cards.get(head)));
    const whole = order.value === "place" && !filter.value;
    grid.style.setProperty("--columns", String(whole ? perLayer : 4));
    shown.textContent = `${chosen.length} of ${selection.heads.length} heads`;
  }
  fill();
  selection.on(grid, () => {
    cards.forEach((card, head) =>
      card.setAttribute("aria-pressed", String(head === selection.head)),
    );
  });
}

/**
 * @param {string[]} heads
 * @param {HeadFacts} facts
 * @param {string} order
 * @param {string} filter
 */
export function sorted(heads, facts, order, filter) {
  const by = (/** @type {string} */ head) =>
    order === "effect"
      ? -(facts.effectOf(head) ?? -Infinity)
      : order === "entropy"
        ? (facts.entropyOf(head) ?? Infinity)
        : 0;
  const wanted = heads.filter((head) => {
    const labels = facts.labelsOf(head);
    return !filter || (filter === "*" ? labels.length > 0 : labels.includes(filter));
  });
  const less = (/** @type {number} */ a, /** @type {number} */ b) => (a < b ? -1 : a > b ? 1 : 0);
  return wanted.sort((a, b) => less(by(a), by(b)) || heads.indexOf(a) - heads.indexOf(b));
}

/**
 * @param {HeadFacts} facts
 * @param {string[]} heads
 * @param {() => void} onchange
 */
function choosers(facts, heads, onchange) {
  const option = (/** @type {string} */ value, /** @type {string} */ text) =>
    el("option", { value, text });
  const order = el("select", { onchange }, option("place", "place in the model"));
  if (facts.hasEffects) order.append(option("effect", "effect when removed"));
  if (facts.scores.length) order.append(option("entropy", "entropy, sharpest first"));
  const filter = el("select", { onchange }, option("", "all heads"));
  if (facts.hasLabels) filter.append(option("*", "with a confirmed label"));
  const kinds = new Set(heads.flatMap((head) => facts.labelsOf(head)));
  filter.append(...[...kinds].sort().map((kind) => option(kind, kind)));
  return { order, filter };
}

/**
 * @param {string} head
 * @param {number} h
 * @param {Passage} passage
 * @param {HeadFacts} facts
 * @param {Context} context
 */
function cardOf(head, h, { patterns, tokens }, facts, { colours, selection }) {
  const effect = facts.effectOf(head);
  const chips = facts.labelsOf(head).map((label) => el("span", { class: "chip", text: label }));
  const said = effect === null ? "" : `effect ${signed(effect, 3)} ${facts.unit}`.trimEnd();
  const onclick = () => selection.set({ head });
  return el(
    "button",
    { type: "button", class: "card", "data-head": head, onclick },
    patterns ? thumbnail(patterns, h, tokens.length, colours) : null,
    el("strong", { text: head }),
    chips.length ? el("span", { class: "chips" }, ...chips) : null,
    said ? el("small", { text: said }) : null,
  );
}

/**
 * A head's attention, a pixel per weight, on a square-root scale; masked keys stay empty.
 * @param {Numbers} patterns
 * @param {number} h
 * @param {number} n
 * @param {Colours} colours
 */
function thumbnail(patterns, h, n, colours) {
  const canvas = el("canvas", { width: n, height: n, "aria-hidden": "true" });
  const image = new ImageData(n, n);
  for (let t = 0; t < n; t++) {
    for (let s = 0; s <= t; s++) {
      const rgb = colours.ramp("weight", Math.sqrt(patterns[(h * n + t) * n + s]));
      image.data.set([...rgb, 255], 4 * (t * n + s));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
