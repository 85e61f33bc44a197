// @ts-check
// What the tables of the page say of each head.
import { decode } from "./decode.js";
import { resultOf, tableOfKind } from "./passage.js";
import { records } from "./text.js";

/** @typedef {Awaited<ReturnType<typeof headFacts>>} HeadFacts */

/**
 * What a head attends to most, and what it writes.
 * @typedef {object} Card
 * @property {string} head
 * @property {number} copying
 * @property {{weight: number, back: number, key: string, text: string}[]} examples
 * @property {{token: string, raises: string}[]} writes
 */

/**
 * @param {ResultDocument} found
 * @returns {Promise<Card>}
 */
async function cardFrom(found) {
  const [weights, backs] = [await decode(found.example_weight), await decode(found.example_back)];
  const examples = Array.from(weights, (weight, i) => {
    const [key, text] = [found.example_key[i], found.example_text[i]];
    return { weight, back: backs[i], key, text };
  });
  const writes = found.write_token.map((/** @type {string} */ token, /** @type {number} */ i) => {
    return { token, raises: found.write_raised[i] };
  });
  return { head: found.head, copying: found.copying, examples, writes };
}

/**
 * @param {PageDocument} doc
 * @param {Colours} colours
 * @param {string[]} heads
 */
export async function headFacts(doc, colours, heads) {
  const labels = records(tableOfKind(doc, "HeadLabels"));
  const scores = records(tableOfKind(doc, "HeadScores"));
  const effects = records(tableOfKind(doc, "ComponentEffects"));
  const found = doc.results.filter((result) => result.kind === "HeadCard");
  const cards = await Promise.all(found.map(cardFrom));
  const isOf = (/** @type {string} */ head) => (/** @type {Record<string, any>} */ row) =>
    row.head === head || `L${row.layer}.H${row.head}` === head;
  const labelsOf = (/** @type {string} */ head) =>
    labels.filter((row) => row.confirmed && isOf(head)(row)).map((row) => String(row.label));
  const effectOf = (/** @type {string} */ head) =>
    /** @type {number | null} */ (effects.find((row) => row.component === head)?.total ?? null);
  const entropyOf = (/** @type {string} */ head) => {
    const row = scores.find((one) => one.score === "entropy" && isOf(head)(one));
    return /** @type {number | null} */ (row?.value ?? null);
  };
  const unit = colours.unit(resultOf(doc, "ComponentEffects")?.metric ?? "");
  const hasCard = (/** @type {string} */ head) => Number(cards.some((card) => card.head === head));
  const best = [...heads].sort(
    (a, b) =>
      labelsOf(b).length - labelsOf(a).length ||
      (effectOf(b) ?? 0) - (effectOf(a) ?? 0) ||
      hasCard(b) - hasCard(a),
  )[0];
  return {
    labels,
    scores,
    cards,
    isOf,
    labelsOf,
    effectOf,
    entropyOf,
    unit,
    best: best ?? "",
    hasEffects: effects.length > 0,
    hasLabels: resultOf(doc, "HeadLabels") !== undefined,
  };
}
