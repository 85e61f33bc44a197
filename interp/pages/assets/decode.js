// @ts-check
// Arrays as Python wrote them (interp/results/document.py), and the marks that hold them.

/** @type {Record<string, (bytes: ArrayBufferLike) => ArrayLike<number | bigint>>} */
const KINDS = {
  "<f4": (bytes) => new Float32Array(bytes),
  "<f8": (bytes) => new Float64Array(bytes),
  "<i8": (bytes) => new BigInt64Array(bytes),
  "<i4": (bytes) => new Int32Array(bytes),
  "<i2": (bytes) => new Int16Array(bytes),
  "|b1": (bytes) => new Uint8Array(bytes),
};

/**
 * The bytes of numbers, from all first bytes, then all second ones …
 * @param {Uint8Array} planes
 * @param {number} size bytes of a number
 */
export function joinPlanes(planes, size) {
  const n = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let k = 0; k < size; k++) {
    for (let i = 0; i < n; i++) bytes[i * size + k] = planes[k * n + i];
  }
  return bytes;
}

/** @param {string} text zlib data in base64 */
async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Returns an array's numbers, flat; null is NaN, true is 1.
 * @param {Encoded} field
 * @returns {Promise<Float64Array>}
 */
export async function decode(field) {
  if (field.values) {
    return Float64Array.from(field.values, (x) => (x === null ? NaN : Number(x)));
  }
  const bytes = joinPlanes(await inflate(field.zlib ?? ""), field.planes ?? 1);
  const { quantum } = field;
  if (quantum !== undefined) {
    return Float64Array.from(new Int16Array(bytes.buffer), (steps) => steps * quantum);
  }
  return Float64Array.from(KINDS[field.dtype](bytes.buffer), Number);
}

/**
 * Returns a mark's document with every encoded array in it decoded, however deep.
 * @param {any} value
 * @returns {Promise<any>}
 */
export async function decodeAll(value) {
  if (Array.isArray(value)) return Promise.all(value.map(decodeAll));
  if (value === null || typeof value !== "object") return value;
  if ("dtype" in value) return decode(value);
  const names = Object.keys(value);
  const decoded = await Promise.all(names.map((name) => decodeAll(value[name])));
  return Object.fromEntries(names.map((name, i) => [name, decoded[i]]));
}
