// @ts-check
// Of one position: what is predicted next, and which parts made the prediction.
import { el } from "./dom.js";
import { signed } from "./text.js";

const SHOWN = 14; // sources of a head

/** @typedef {{name: string, value: number, pos?: number}} Row */

/**
 * @param {string} name
 * @param {number} value
 * @param {number} limit
 * @param {string} text
 * @param {boolean} isTrue the true next character
 */
function plainBar(name, value, limit, text, isTrue) {
  const filled = el("i", { style: { width: `${(100 * value) / limit}%` } });
  return el(
    "div",
    {
      class: isTrue ? "bar true" : "bar",
      title: isTrue ? "the true next character" : null,
    },
    el("span", { class: "name", text: name }),
    el("span", { class: "track" }, filled),
    el("span", { class: "value", text }),
  );
}

/**
 * @param {Row} row
 * @param {number} limit
 * @param {Chosen} selection
 */
function signedBar({ name, value }, limit, selection) {
  const half = `${(Math.abs(value) / limit) * 50}%`;
  const style = { width: half, [value >= 0 ? "left" : "right"]: "50%" };
  const isHead = selection.heads.includes(name);
  const marked = name === selection.head;
  const choose = () => selection.set({ head: name });
  const pressed = {
    type: "button",
    onclick: choose,
    "aria-pressed": String(marked),
  };
  return el(
    "div",
    { class: isHead && marked ? "bar marked" : "bar" },
    el(isHead ? "button" : "span", {
      class: "name",
      text: name,
      ...(isHead ? pressed : {}),
    }),
    el(
      "span",
      { class: "track signed" },
      el("i", { class: value >= 0 ? "for" : "against", style }),
    ),
    el("span", { class: "value", text: signed(value, 3) }),
  );
}

/**
 * The likeliest next characters, and the true one if it is not among them.
 * @param {Passage} passage
 * @param {number} t
 * @returns {Node[]}
 */
export function likeliest(passage, t) {
  const found = passage.predictions;
  if (!found || t >= found.n) return [];
  const next = passage.tokens[t + 1];
  const bars = Array.from({ length: found.k }, (_, j) => {
    const [token, p] = [found.top[t * found.k + j], found.topProb[t * found.k + j]];
    return plainBar(passage.glyph(token), p, 1, p.toFixed(4), token === next);
  });
  if (next !== undefined && found.rank[t] >= found.k) {
    const p = found.prob[t];
    bars.push(plainBar(passage.glyph(next), p, 1, p.toFixed(4), true));
  }
  return bars;
}

/**
 * Which position is read, and what it predicts.
 * @param {Passage} passage
 * @param {number} t
 */
export function told({ tokens, glyph }, t) {
  const next = tokens[t + 1];
  const what =
    next === undefined
      ? "what comes after the passage"
      : `position ${t + 1}, which is ${glyph(next)}`;
  return `The query at position ${t} (${glyph(tokens[t])}) predicts ${what}.`;
}

/**
 * What a head took from each position; small ones together.
 * @param {Passage} passage
 * @param {Part} part by source
 * @param {string} head
 * @param {number} t
 * @returns {Row[]}
 */
function sources({ tokens, glyph }, part, head, t) {
  const rows = part.components.flatMap((name, i) => {
    const pos = name.startsWith(`${head}.S`) ? Number(name.slice(head.length + 2)) : Infinity;
    const value = part.values[i * part.n + t];
    return pos <= t ? [{ name: `${glyph(tokens[pos])} at ${pos}`, value, pos }] : [];
  });
  if (rows.length <= SHOWN) return rows;
  const size = (/** @type {Row} */ row) => Math.abs(row.value);
  const kept = new Set([...rows].sort((a, b) => size(b) - size(a)).slice(0, SHOWN - 1));
  const others = rows.filter((row) => !kept.has(row));
  const rest = others.reduce((sum, row) => sum + row.value, 0);
  return [...rows.filter((row) => kept.has(row)), { name: `${others.length} others`, value: rest }];
}

/**
 * The bars of a position's attribution, and what they sum to.
 * @param {Passage} passage
 * @param {Chosen} selection
 * @returns {{bars: Node[], sum: string}}
 */
export function contributions(passage, selection) {
  const { parts, tokens, glyph } = passage;
  const t = selection.pos;
  const part = parts[selection.by] ?? parts.block ?? parts.head ?? parts.source;
  if (!part || t >= part.n) return { bars: [], sum: "" };
  const all = part.components.map((name, i) => ({
    name,
    value: part.values[i * part.n + t],
  }));
  const bySource = part.by === "source";
  const rows = bySource ? sources(passage, part, selection.head, t) : all;
  const limit = Math.max(...rows.map((row) => Math.abs(row.value)), 1e-9);
  const added = rows.reduce((sum, row) => sum + row.value, 0);
  const head = parts.head?.components.indexOf(selection.head) ?? -1;
  let beside = `; the model's own logit, less the mean over all characters: ${signed(part.total[t], 3)}`;
  if (bySource) {
    const own = head >= 0 && t < parts.head.n ? parts.head.values[head * parts.head.n + t] : null;
    beside = own === null ? "" : `; all of ${selection.head}: ${signed(own, 3)}`;
  }
  const target = part.targets[t];
  const whose = target === tokens[t + 1] ? "" : " (the model's first choice)";
  return {
    bars: rows.map((row) => signedBar(row, limit, selection)),
    sum:
      `Towards ${glyph(target)}${tokens[t + 1] === undefined ? whose : ""} they sum to ` +
      `${signed(added, 3)} ${part.unit}${beside}.`,
  };
}
