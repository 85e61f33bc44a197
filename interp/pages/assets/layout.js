// @ts-check
// Where texts have room.

/**
 * @param {Box} a
 * @param {Box} b
 */
export function overlaps(a, b, gap = 0) {
  return (
    a.left < b.right + gap &&
    b.left < a.right + gap &&
    a.top < b.bottom + gap &&
    b.top < a.bottom + gap
  );
}

/**
 * Which of the texts on an axis have room: zero first, then the outermost.
 * @param {number[]} values
 * @param {number[]} at their places
 * @param {number[]} sizes along the axis
 * @returns {number[]} indices, in order
 */
export function thin(values, at, sizes, gap = 6) {
  const order = values.map((_, i) => i);
  const rank = (/** @type {number} */ i) =>
    values[i] === 0 ? -1 : Math.min(i, values.length - 1 - i);
  order.sort((i, j) => rank(i) - rank(j) || i - j);
  /** @type {number[]} */
  const kept = [];
  for (const i of order) {
    const free = kept.every((j) => Math.abs(at[i] - at[j]) >= (sizes[i] + sizes[j]) / 2 + gap);
    if (free) kept.push(i);
  }
  return kept.sort((i, j) => i - j);
}

/**
 * Moves places apart, in their order, until each is `gap` from the next, within limits if it can.
 * @param {number[]} places
 * @param {number} gap
 * @param {number} low
 * @param {number} high
 */
export function spread(places, gap, low, high) {
  const order = places.map((_, i) => i).sort((i, j) => places[i] - places[j] || i - j);
  const out = [...places];
  order.forEach((i, k) => {
    out[i] = Math.max(out[i], k ? out[order[k - 1]] + gap : low);
  });
  let most = high;
  for (const i of [...order].reverse()) {
    out[i] = Math.min(out[i], most);
    most = out[i] - gap;
  }
  return out;
}

/**
 * Where names stand beside their points; null where there is no room. The first ones choose first.
 * @param {{x: number, y: number, width: number, away?: number}[]} points the names' widths, and how far away they begin
 * @param {Box[]} taken boxes that no name may cover
 * @param {Box} room
 * @param {number} height of a name
 * @returns {(null | {x: number, y: number})[]} the left end and the middle of each name
 */
export function placeNames(points, taken, room, height) {
  const boxes = [...taken];
  return points.map(({ x, y, width, away = 7 }) => {
    for (const [dx, dy] of around(width, height, away)) {
      const box = {
        left: x + dx,
        right: x + dx + width,
        top: y + dy - height / 2,
        bottom: y + dy + height / 2,
      };
      const inside =
        box.left >= room.left &&
        box.right <= room.right &&
        box.top >= room.top &&
        box.bottom <= room.bottom;
      if (inside && !boxes.some((other) => overlaps(box, other))) {
        boxes.push(box);
        return { x: box.left, y: y + dy };
      }
    }
    return null;
  });
}

/**
 * Right and left of a point, above and below.
 * @param {number} width
 * @param {number} height
 * @param {number} away
 */
function around(width, height, away) {
  const up = height / 2 + away - 2;
  return [
    [away, 0],
    [-away - width, 0],
    [away - 2, -up],
    [away - 2, up],
    [2 - away - width, -up],
    [2 - away - width, up],
    [-width / 2, -up],
    [-width / 2, up],
  ];
}

/**
 * A text in lines that are not wider than they may be; a word that is too wide stays whole.
 * @param {string} text
 * @param {number} width
 * @param {(text: string) => number} widthOf
 */
export function wrap(text, width, widthOf) {
  /** @type {string[]} */
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
    if (lines.length && widthOf(longer) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/**
 * Starts and ends of n cells, with a gap before some of them.
 * @param {number} n
 * @param {number} size
 * @param {number[]} breaks
 */
export function cells(n, size, breaks, gap = 5) {
  const starts = [];
  let at = 0;
  for (let i = 0; i < n; i++) {
    if (i && breaks.includes(i)) at += gap;
    starts.push(at);
    at += size;
  }
  return { starts, length: at };
}
