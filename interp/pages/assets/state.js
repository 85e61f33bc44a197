// @ts-check
// What is selected, a position and a head: one for all views, and in the address.

/**
 * @param {string[]} heads
 * @param {number} nPos how many positions can be selected
 * @returns {Chosen}
 */
export function makeSelection(heads, nPos) {
  /** @type {Map<Element, () => void>} */
  const views = new Map();
  const show = () => views.forEach((view) => view());
  /** @type {Chosen} */
  const selection = {
    pos: Math.floor(Math.max(0, nPos - 1) / 2),
    head: heads[0] ?? "",
    by: "head",
    colour: "attention",
    heads,
    nPos,
    on: (place, view) => void views.set(place, view), // drawn again, a place has one view still
    set: (change) => {
      Object.assign(selection, change);
      selection.pos = within(selection.pos, nPos);
      history.replaceState(null, "", addressOf(selection));
      show();
    },
    restore: () => void Object.assign(selection, readAddress(location.hash, heads, nPos)),
    show,
  };
  return selection;
}

/**
 * @param {number} pos
 * @param {number} nPos
 */
function within(pos, nPos) {
  return Math.min(Math.max(pos, 0), Math.max(0, nPos - 1));
}

/** @param {{pos: number, head: string, nPos: number}} selection */
export function addressOf({ pos, head, nPos }) {
  const parts = [nPos ? `pos=${pos}` : "", head ? `head=${head}` : ""];
  return `#${parts.filter(Boolean).join("&")}`;
}

/**
 * What an address selects; what it does not say, or wrongly, is left out.
 * @param {string} hash
 * @param {string[]} heads
 * @param {number} nPos
 */
export function readAddress(hash, heads, nPos) {
  const given = new URLSearchParams(hash.slice(1));
  /** @type {{pos?: number, head?: string}} */
  const found = {};
  const pos = given.get("pos");
  if (pos && Number.isInteger(Number(pos))) found.pos = within(Number(pos), nPos);
  const head = given.get("head");
  if (head && heads.includes(head)) found.head = head;
  return found;
}
