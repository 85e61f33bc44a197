// @ts-check
// From numbers to places between 0 and 1, and which numbers are written on an axis.

const LINEAR_PART = 0.5 / 0.9; // of a symmetric logarithm: half a decade, as matplotlib draws it

/**
 * @param {ScaleKind} kind
 * @param {number} within where a symmetric logarithm is linear
 * @returns {(x: number) => number}
 */
function transformOf(kind, within) {
  switch (kind) {
    case "root":
      return (x) => Math.sign(x) * Math.sqrt(Math.abs(x));
    case "log":
    case "log2":
      return (x) => (x > 0 ? Math.log10(x) : NaN);
    case "symlog":
      return (x) => {
        const size = Math.abs(x) / within;
        return size <= 1
          ? (x / within) * LINEAR_PART
          : Math.sign(x) * (LINEAR_PART + Math.log10(size));
      };
    default:
      return (x) => x;
  }
}

/**
 * Returns a scale. One that cannot be (a logarithm without a positive number, a symmetric one
 * without its linear part) is linear.
 * @param {ScaleKind} kind
 * @param {number} low
 * @param {number} high
 * @param {number} [within] where "symlog" is linear
 * @param {number} [padding] room before and behind, as a share of the whole
 * @returns {Scale}
 */
export function makeScale(kind, low, high, within = 0, padding = 0) {
  const logarithmic = kind === "log" || kind === "log2";
  if ((logarithmic && !(low > 0)) || (kind === "symlog" && !(within > 0))) kind = "linear";
  const f = transformOf(kind, within);
  const length = f(high) - f(low) || Math.abs(f(high)) || 1;
  const start = f(low) === f(high) ? f(low) - length / 2 : f(low) - padding * length;
  const whole = length * (f(low) === f(high) ? 1 : 1 + 2 * padding);
  const at = (/** @type {number} */ x) => (f(x) - start) / whole;
  const inside = (/** @type {number} */ x) => at(x) >= -1e-9 && at(x) <= 1 + 1e-9;
  const farther = (/** @type {number} */ x, /** @type {number} */ sign) =>
    kind === "log" || kind === "log2"
      ? x * 10 ** (sign * padding * length)
      : x + sign * padding * (high - low);
  const edges = { low: farther(low, -1), high: farther(high, 1) };
  const ticks = (/** @type {number} */ n) => candidates(kind, edges, within, n).filter(inside);
  return { kind, low, high, at, ticks };
}

/**
 * @param {ScaleKind} kind
 * @param {{low: number, high: number}} edges
 * @param {number} within
 * @param {number} n
 */
function candidates(kind, { low, high }, within, n) {
  const largest = Math.max(Math.abs(low), Math.abs(high));
  switch (kind) {
    case "root":
      return bothSides(powers(largest / 1000, largest, [1, 2.5, 5]));
    case "log":
      if (high < 4 * low) return evenly(low, high, n);
      return powers(low / 2, high * 2, high < 1000 * low ? [1, 2, 5] : [1]);
    case "log2": {
      const first = Math.floor(Math.log2(low));
      const count = Math.max(0, Math.ceil(Math.log2(high)) - first + 1);
      return Array.from({ length: count }, (_, i) => 2 ** (first + i));
    }
    case "symlog":
      return bothSides(powers(within, largest * (1 + 1e-9), [1]));
    default:
      return evenly(low, high, n);
  }
}

/** @param {number[]} positive */
function bothSides(positive) {
  return [...positive.map((x) => -x).reverse(), 0, ...positive];
}

/**
 * Round numbers at equal distances, about n of them.
 * @param {number} low
 * @param {number} high
 * @param {number} n
 */
export function evenly(low, high, n) {
  const raw = (high - low) / Math.max(n, 1);
  if (!(raw > 0)) return [low];
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * ([1, 2, 2.5, 5].find((m) => m * unit >= raw * (1 - 1e-9)) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/**
 * Multiples of powers of ten between two positive numbers.
 * @param {number} low
 * @param {number} high
 * @param {number[]} multiples
 */
function powers(low, high, multiples) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); 10 ** p <= high; p++) {
    for (const m of multiples) {
      const x = Number((m * 10 ** p).toPrecision(12));
      if (x >= low * (1 - 1e-9) && x <= high) out.push(x);
    }
  }
  return out;
}

/**
 * Smallest and largest finite number of several lists; only positive ones where asked.
 * @param {(ArrayLike<number> | null)[]} lists
 * @returns {[number, number]}
 */
export function extent(lists, positive = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (let i = 0; list && i < list.length; i++) {
      const x = list[i];
      if (!Number.isFinite(x) || (positive && x <= 0)) continue;
      low = Math.min(low, x);
      high = Math.max(high, x);
    }
  }
  return low <= high ? [low, high] : positive ? [1, 10] : [0, 1];
}

/**
 * Within which distance of zero a symmetric logarithmic scale is linear; 0 where linear serves.
 * @param {ArrayLike<number>} values
 */
export function nearZero(values) {
  const sizes = Array.from(values, Math.abs).filter((x) => Number.isFinite(x) && x > 0);
  sizes.sort((a, b) => a - b);
  const quantile = (/** @type {number} */ q) => {
    const place = q * (sizes.length - 1);
    const i = Math.floor(place);
    return sizes[i] + (place - i) * ((sizes[i + 1] ?? sizes[i]) - sizes[i]);
  };
  if (!sizes.length || sizes[sizes.length - 1] < 30 * quantile(0.5)) return 0;
  return 10 ** Math.floor(Math.log10(quantile(0.25)));
}
