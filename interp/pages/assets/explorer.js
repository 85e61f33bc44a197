// @ts-check
// The passage: choose a position, see what is predicted there and why.
import { el } from "./dom.js";
import { contributions, likeliest, told } from "./explain.js";
import { inkOn } from "./palette.js";

/**
 * @param {HTMLElement} place
 * @param {Passage} passage
 * @param {Context} context
 */
export function explorer(place, passage, context) {
  const { tokens } = passage;
  if (!tokens.length) return;
  const { selection } = context;
  const group = {
    role: "group",
    "aria-label": "the passage; arrow keys move the position",
  };
  const text = el("div", { class: "passage", ...group });
  const buttons = tokens.map((_, i) => character(passage, i, selection));
  buttons.forEach((button, i) => {
    text.append(button);
    if (passage.characters?.[tokens[i]] === "\n") text.append(el("br"));
  });
  text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const to = moved(event.key, buttons, selection);
    if (to === null) return;
    event.preventDefault();
    selection.set({ pos: to });
    buttons[selection.pos].focus();
  });
  place.replaceChildren(controls(passage, selection), text, ...panels(passage, selection));
  selection.on(text, () => colourText(buttons, passage, context));
}

/**
 * @param {Passage} passage
 * @param {number} i
 * @param {Chosen} selection
 * @returns {HTMLButtonElement}
 */
function character({ tokens, characters, glyph }, i, selection) {
  const shown = glyph(tokens[i]);
  const plain = /** @type {Record<string, string>} */ ({
    " ": "space",
    "\n": "newline",
  });
  const said = plain[characters?.[tokens[i]] ?? ""] ?? shown;
  const label = { tabindex: "-1", "aria-label": `position ${i}: ${said}` };
  const onclick = () => selection.set({ pos: i });
  return el("button", {
    type: "button",
    class: "ch",
    text: shown,
    ...label,
    onclick,
  });
}

/**
 * Where a key moves to.
 * @param {string} key
 * @param {HTMLElement[]} buttons
 * @param {Chosen} selection
 */
function moved(key, buttons, { pos, nPos }) {
  if (key === "ArrowLeft") return pos - 1;
  if (key === "ArrowRight") return pos + 1;
  if (key === "Home") return 0;
  if (key === "End") return nPos - 1;
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const here = buttons[pos].getBoundingClientRect();
  let [nearest, to] = [Infinity, pos];
  buttons.slice(0, nPos).forEach((button, i) => {
    const box = button.getBoundingClientRect();
    const down = (box.top - here.top) * (key === "ArrowDown" ? 1 : -1);
    const distance = down * 100 + Math.abs(box.left - here.left);
    if (down > 4 && distance < nearest) [nearest, to] = [distance, i];
  });
  return to;
}

/**
 * @param {Passage} passage
 * @param {Chosen} selection
 */
function controls(passage, selection) {
  const options = [
    ...(passage.patterns ? [["attention", "attention of the selected head"]] : []),
    ...(passage.predictions ? [["foreseen", "how well each character was foreseen"]] : []),
  ];
  if (!options.some(([value]) => value === selection.colour)) {
    selection.colour = options[0]?.[0] ?? "";
  }
  const usesHeads = passage.patterns || passage.parts.source;
  const which = el(
    "select",
    { onchange: () => selection.set({ head: which.value }) },
    ...selection.heads.map((head) => el("option", { value: head, text: head })),
  );
  if (usesHeads) selection.on(which, () => void (which.value = selection.head));
  return el(
    "div",
    { class: "controls" },
    options.length ? choice("colour", "the text is coloured by", options, selection) : null,
    usesHeads && selection.heads.length ? el("label", {}, "head ", which) : null,
  );
}

/**
 * @param {"colour" | "by"} key
 * @param {string} legend
 * @param {string[][]} options
 * @param {Chosen} selection
 */
function choice(key, legend, options, selection) {
  const inputs = options.map(([value, name]) => {
    const onchange = () => selection.set({ [key]: value });
    const chosen = { checked: selection[key] === value, onchange };
    return el(
      "label",
      {},
      el("input", { type: "radio", name: key, value, ...chosen }),
      ` ${name} `,
    );
  });
  return el("fieldset", { class: "choice" }, el("legend", { text: legend }), ...inputs);
}

/**
 * What is predicted, and what made the prediction: each only where there is something to show.
 * @param {Passage} passage
 * @param {Chosen} selection
 */
function panels(passage, selection) {
  const line = el("p", { class: "told", "aria-live": "polite" });
  const top = el("div", { class: "bars" });
  const bars = el("div", { class: "bars" });
  const sum = el("p", { class: "sum" });
  const names = {
    block: "block",
    head: "head",
    source: "source character of the head",
  };
  const there = Object.entries(names).filter(([by]) => passage.parts[by]);
  if (!passage.parts[selection.by]) selection.by = there[0]?.[0] ?? "";
  const columns = el(
    "div",
    { class: "columns" },
    passage.predictions ? el("div", {}, heading("What it predicts next"), top) : null,
    there.length
      ? el(
          "div",
          {},
          heading("What made the prediction"),
          choice("by", "contributions by", there, selection),
          bars,
          sum,
        )
      : null,
  );
  selection.on(columns, () => {
    line.textContent = told(passage, selection.pos);
    top.replaceChildren(...likeliest(passage, selection.pos));
    const found = contributions(passage, selection);
    bars.replaceChildren(...found.bars);
    sum.textContent = found.sum;
  });
  return [line, columns];
}

/** @param {string} text */
function heading(text) {
  return el("h3", { text });
}

/**
 * @param {HTMLButtonElement[]} buttons
 * @param {Passage} passage
 * @param {Context} context
 */
function colourText(buttons, passage, { colours, selection }) {
  const t = selection.pos;
  buttons.forEach((button, i) => {
    const { weight, tip } = weightOf(passage, selection, i);
    const rgb = weight === null ? null : colours.ramp("weight", Math.sqrt(weight));
    button.style.background = rgb ? `rgb(${rgb})` : "";
    button.style.color = rgb ? inkOn(rgb) : "";
    button.title = tip;
    button.setAttribute("aria-pressed", String(i === t));
    button.tabIndex = i === t ? 0 : -1;
    button.classList.toggle("next", i === t + 1);
  });
}

/**
 * What colours a character, and what it says of itself.
 * @param {Passage} passage
 * @param {Chosen} selection
 * @param {number} i
 * @returns {{weight: number | null, tip: string}}
 */
function weightOf({ patterns, predictions, tokens }, { colour, head, heads, pos }, i) {
  const [h, n] = [heads.indexOf(head), tokens.length];
  if (colour === "attention" && patterns && h >= 0 && i <= pos) {
    const weight = patterns[(h * n + pos) * n + i];
    const tip = `${head} gives position ${i} a weight of ${weight.toFixed(4)} from position ${pos}`;
    return { weight, tip };
  }
  if (colour === "foreseen" && predictions && i > 0 && Number.isFinite(predictions.prob[i - 1])) {
    const weight = predictions.prob[i - 1];
    return {
      weight,
      tip: `position ${i} was given a probability of ${weight.toFixed(4)}`,
    };
  }
  return { weight: null, tip: `position ${i}` };
}
