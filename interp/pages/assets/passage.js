// @ts-check
// What the instruments can use among the results: all of it may be missing.
import { decode } from "./decode.js";

/**
 * @param {PageDocument} doc
 * @param {string} kind
 * @param {(result: ResultDocument) => boolean} [test]
 */
export function resultOf(doc, kind, test = () => true) {
  return doc.results.find((result) => result.kind === kind && test(result));
}

/**
 * The table in the page of the first result of a kind.
 * @param {PageDocument} doc
 * @param {string} kind
 * @returns {Table | null}
 */
export function tableOfKind(doc, kind) {
  return doc.tables[resultOf(doc, kind)?.table ?? ""] ?? null;
}

/**
 * The names of the model's heads.
 * @param {PageDocument} doc
 */
export function headsOf({ config }) {
  const layers = Array.from({ length: config.n_layers }, (_, layer) => layer);
  const heads = Array.from({ length: config.n_heads }, (_, head) => head);
  return layers.flatMap((layer) => heads.map((head) => `L${layer}.H${head}`));
}

/**
 * One sequence of an array [batch, …].
 * @param {Encoded} field
 * @param {number} batchAxis
 */
async function firstOf(field, batchAxis) {
  const all = await decode(field);
  const inner = field.shape.slice(batchAxis + 1).reduce((a, b) => a * b, 1);
  const outer = field.shape.slice(0, batchAxis).reduce((a, b) => a * b, 1);
  const batch = field.shape[batchAxis];
  const out = new Float64Array(outer * inner);
  for (let i = 0; i < outer; i++) {
    out.set(all.subarray(i * batch * inner, i * batch * inner + inner), i * inner);
  }
  return out;
}

/**
 * @param {PageDocument} doc
 * @param {Colours} colours
 * @param {string} by
 * @returns {Promise<Part | null>}
 */
async function partOf(doc, colours, by) {
  const found = resultOf(doc, "LogitAttribution", (result) => result.by === by);
  if (!found) return null;
  return {
    by,
    components: found.components,
    n: found.values.shape[2],
    values: await firstOf(found.values, 1),
    total: await firstOf(found.total, 0),
    targets: await firstOf(found.targets, 0),
    unit: colours.unit(found.metric) || "logits",
  };
}

/**
 * @param {ResultDocument | undefined} found
 * @returns {Promise<Passage["predictions"]>}
 */
async function predictionsOf(found) {
  if (!found) return null;
  const [, n, k] = found.top.shape;
  return {
    n,
    k,
    top: await firstOf(found.top, 0),
    topProb: await firstOf(found.top_prob, 0),
    prob: await firstOf(found.prob, 0),
    rank: await firstOf(found.rank, 0),
  };
}

/**
 * The passage that the page is about, and what is known of it.
 * @param {PageDocument} doc
 * @param {Colours} colours
 * @returns {Promise<Passage>}
 */
export async function readPassage(doc, colours) {
  const found = resultOf(doc, "Predictions");
  const patterns = resultOf(doc, "AttentionPatterns");
  const attribution = resultOf(doc, "LogitAttribution");
  const source = found ?? patterns ?? attribution;
  const characters = source?.characters ?? null;
  const given = source?.tokens;
  const tokens = !given
    ? []
    : Array.from(given.shape.length > 1 ? await firstOf(given, 0) : await decode(given));
  /** @type {Record<string, Part>} */
  const parts = {};
  for (const by of ["block", "head", "source"]) {
    const part = await partOf(doc, colours, by);
    if (part) parts[by] = part;
  }
  const fits = patterns && patterns.patterns.shape[2] === tokens.length;
  return {
    tokens,
    characters,
    glyph: (token) => (characters ? colours.visible(characters[token]) : String(token)),
    patterns: fits ? await decode(patterns.patterns) : null,
    parts,
    predictions: await predictionsOf(found),
  };
}
