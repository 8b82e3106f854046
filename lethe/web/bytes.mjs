// Bytes, their spellings, and SHA-256. Each parser accepts exactly one spelling of a value.

const encoder = new TextEncoder();

export function utf8(text) {
  return encoder.encode(text);
}

export function concat(...parts) {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

export function equal(left, right) {
  if (left.length !== right.length) return false;
  for (let at = 0; at < left.length; at += 1) {
    if (left[at] !== right[at]) return false;
  }
  return true;
}

// The order of Python's `bytes`: the first difference decides, then the length.
export function compare(left, right) {
  const shared = Math.min(left.length, right.length);
  for (let at = 0; at < shared; at += 1) {
    if (left[at] !== right[at]) return left[at] - right[at];
  }
  return left.length - right.length;
}

export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function toBase64(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    binary += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(binary);
}

// Standard padded base64 (RFC 4648 section 4), null for any other spelling.
export function fromBase64(text) {
  let binary;
  try {
    binary = atob(text);
  } catch {
    return null;
  }
  if (btoa(binary) !== text) return null;
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

// A decimal below `limit` as a BigInt, null for signs, spaces, leading zeros or anything else.
export function decimal(text, limit) {
  if (!/^(0|[1-9][0-9]{0,18})$/.test(text)) return null;
  const value = BigInt(text);
  return value < limit ? value : null;
}

export function uint(value, size) {
  const bytes = new Uint8Array(size);
  let rest = BigInt(value);
  for (let at = size - 1; at >= 0; at -= 1) {
    bytes[at] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  return bytes;
}

// False for a lone surrogate, which UTF-8 cannot carry.
export function isUnicode(text) {
  return !/[\ud800-\udfff]/u.test(text);
}

// --- SHA-256 (FIPS 180-4) ---------------------------------------------------------------
// Synchronous, because a removal of many records has a hundred thousand short messages; and
// independent of WebCrypto, which pages over plain HTTP do not have.

const PRIMES = [];
for (let candidate = 2; PRIMES.length < 64; candidate += 1) {
  if (PRIMES.every((prime) => candidate % prime)) PRIMES.push(candidate);
}

// The first 32 bits of the fractional part of the root, in integers, to avoid rounding.
function fraction(value, degree) {
  const power = BigInt(degree);
  const scaled = BigInt(value) << (32n * power);
  let low = 0n;
  let high = 1n << 40n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** power <= scaled) low = middle;
    else high = middle;
  }
  return Number(low & 0xffffffffn) | 0;
}

const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(prime, 2));
const ROUND = Int32Array.from(PRIMES, (prime) => fraction(prime, 3));
const schedule = new Int32Array(64);

function turn(word, by) {
  return (word >>> by) | (word << (32 - by));
}

function block(state, bytes, at) {
  const w = schedule;
  for (let t = 0; t < 16; t += 1) {
    const p = at + 4 * t;
    w[t] = (bytes[p] << 24) | (bytes[p + 1] << 16) | (bytes[p + 2] << 8) | bytes[p + 3];
  }
  for (let t = 16; t < 64; t += 1) {
    const s0 = turn(w[t - 15], 7) ^ turn(w[t - 15], 18) ^ (w[t - 15] >>> 3);
    const s1 = turn(w[t - 2], 17) ^ turn(w[t - 2], 19) ^ (w[t - 2] >>> 10);
    w[t] = (w[t - 16] + s0 + w[t - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let t = 0; t < 64; t += 1) {
    const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + ROUND[t] + w[t]) | 0;
    const s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  const out = [a, b, c, d, e, f, g, h];
  for (let i = 0; i < 8; i += 1) state[i] = (state[i] + out[i]) | 0;
}

export function sha256(...parts) {
  const data = parts.length === 1 ? parts[0] : concat(...parts);
  const state = Int32Array.from(START);
  const whole = data.length - (data.length % 64);
  for (let at = 0; at < whole; at += 64) block(state, data, at);
  const rest = data.length - whole;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(data.subarray(whole));
  tail[rest] = 0x80;
  tail.set(uint(BigInt(data.length) * 8n, 8), tail.length - 8);
  for (let at = 0; at < tail.length; at += 64) block(state, tail, at);
  const digest = new Uint8Array(32);
  const view = new DataView(digest.buffer);
  state.forEach((word, i) => view.setInt32(4 * i, word));
  return digest;
}

// SHA-256 by WebCrypto if available: for files of hundreds of megabytes.
export async function sha256OfFile(data) {
  const subtle = globalThis.crypto?.subtle;
  return subtle ? new Uint8Array(await subtle.digest("SHA-256", data)) : sha256(data);
}
