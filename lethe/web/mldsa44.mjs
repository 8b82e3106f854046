// ML-DSA-44 (FIPS 204): verification of a signature with an empty context.
//
// Witnesses sign with it, and not all browsers and Node.js versions offer it yet. Only public
// values are handled, so nothing here has to run in constant time.

import { concat, equal } from "./bytes.mjs";

const Q = 8380417;
const N = 256;
const K = 4; // rows and columns of the matrix are both 4
const TAU = 39;
const GAMMA1 = 1 << 17;
const GAMMA2 = (Q - 1) / 88;
const BETA = 78;
const OMEGA = 80;
const PUBLIC_SIZE = 1312;
const SIGNATURE_SIZE = 2420;

// --- SHAKE (FIPS 202) -------------------------------------------------------------------

const MASK = (1n << 64n) - 1n;

function rotated(lane, by) {
  return ((lane << by) | (lane >> (64n - by))) & MASK;
}

function roundConstants() {
  const constants = [];
  let register = 1;
  for (let round = 0; round < 24; round += 1) {
    let constant = 0n;
    for (let j = 0n; j < 7n; j += 1n) {
      if (register & 1) constant |= 1n << ((1n << j) - 1n);
      register <<= 1;
      if (register & 0x100) register ^= 0x171;
    }
    constants.push(constant);
  }
  return constants;
}

// The target of each lane in ρ and π, from lane 1 on: [target, rotation].
function walk() {
  const steps = [];
  let [x, y] = [1, 0];
  for (let t = 0; t < 24; t += 1) {
    [x, y] = [y, (2 * x + 3 * y) % 5];
    steps.push([x + 5 * y, BigInt((((t + 1) * (t + 2)) / 2) % 64)]);
  }
  return steps;
}

const CONSTANTS = roundConstants();
const WALK = walk();

function permute(a) {
  for (const constant of CONSTANTS) {
    const c = [0, 1, 2, 3, 4].map((x) => a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20]);
    const d = c.map((_, x) => c[(x + 4) % 5] ^ rotated(c[(x + 1) % 5], 1n));
    for (let i = 0; i < 25; i += 1) a[i] ^= d[i % 5];
    let carried = a[1];
    for (const [target, by] of WALK) {
      const next = a[target];
      a[target] = rotated(carried, by);
      carried = next;
    }
    for (let y = 0; y < 25; y += 5) {
      const row = a.slice(y, y + 5);
      for (let x = 0; x < 5; x += 1) {
        a[y + x] = row[x] ^ (~row[(x + 1) % 5] & MASK & row[(x + 2) % 5]);
      }
    }
    a[0] ^= constant;
  }
}

// Returns a function that gives the next byte of the output.
function shake(rate, message) {
  const padded = new Uint8Array(message.length + rate - (message.length % rate));
  padded.set(message);
  padded[message.length] = 0x1f;
  padded[padded.length - 1] |= 0x80;
  const state = new Array(25).fill(0n);
  const view = new DataView(padded.buffer);
  for (let at = 0; at < padded.length; at += rate) {
    for (let i = 0; i < rate / 8; i += 1) state[i] ^= view.getBigUint64(at + 8 * i, true);
    permute(state);
  }
  let used = 0;
  return () => {
    if (used === rate) {
      permute(state);
      used = 0;
    }
    const byte = Number((state[used >> 3] >> BigInt(8 * (used & 7))) & 0xffn);
    used += 1;
    return byte;
  };
}

function shake256(size, ...parts) {
  return Uint8Array.from({ length: size }, shake(136, concat(...parts)));
}

// --- polynomials: arrays of 256 integers modulo Q ---------------------------------------

function mod(value) {
  const rest = value % Q;
  return rest < 0 ? rest + Q : rest;
}

const ZETAS = Array.from({ length: N }, (_, k) => {
  const exponent = parseInt(k.toString(2).padStart(8, "0").split("").reverse().join(""), 2);
  let power = 1;
  for (let i = 0; i < exponent; i += 1) power = (power * 1753) % Q;
  return power;
});

function ntt(polynomial) {
  const w = polynomial.map(mod);
  let m = 0;
  for (let size = 128; size >= 1; size /= 2) {
    for (let start = 0; start < N; start += 2 * size) {
      m += 1;
      for (let j = start; j < start + size; j += 1) {
        const t = (ZETAS[m] * w[j + size]) % Q;
        w[j + size] = mod(w[j] - t);
        w[j] = mod(w[j] + t);
      }
    }
  }
  return w;
}

function inverseNtt(polynomial) {
  const w = [...polynomial];
  let m = N;
  for (let size = 1; size < N; size *= 2) {
    for (let start = 0; start < N; start += 2 * size) {
      m -= 1;
      for (let j = start; j < start + size; j += 1) {
        const t = w[j];
        w[j] = mod(t + w[j + size]);
        w[j + size] = (mod(w[j + size] - t) * ZETAS[m]) % Q;
      }
    }
  }
  return w.map((value) => (value * 8347681) % Q); // 256^-1 modulo Q
}

// Integers of `width` bits each, lowest bit first.
function unpack(bytes, width) {
  const found = [];
  let [bits, held] = [0, 0];
  for (const byte of bytes) {
    bits |= byte << held;
    held += 8;
    while (held >= width) {
      found.push(bits & ((1 << width) - 1));
      bits >>>= width;
      held -= width;
    }
  }
  return found;
}

function pack6(values) {
  const bytes = new Uint8Array((values.length * 6) / 8);
  values.forEach((value, i) => {
    const at = 6 * i;
    bytes[at >> 3] |= value << (at & 7);
    if ((at & 7) > 2) bytes[(at >> 3) + 1] |= value >> (8 - (at & 7));
  });
  return bytes;
}

// --- FIPS 204, algorithms 8, 21, 29, 30, 36 and 40 --------------------------------------

function matrixEntry(rho, row, column) {
  const next = shake(168, concat(rho, Uint8Array.of(column, row)));
  const polynomial = [];
  while (polynomial.length < N) {
    const value = next() | (next() << 8) | ((next() & 0x7f) << 16);
    if (value < Q) polynomial.push(value);
  }
  return polynomial;
}

function challenge(seed) {
  const next = shake(136, seed);
  const signs = Array.from({ length: 8 }, next);
  const polynomial = new Array(N).fill(0);
  for (let i = N - TAU; i < N; i += 1) {
    let j = next();
    while (j > i) j = next();
    polynomial[i] = polynomial[j];
    const bit = i + TAU - N;
    polynomial[j] = (signs[bit >> 3] >> (bit & 7)) & 1 ? -1 : 1;
  }
  return polynomial;
}

// The positions of ones in each polynomial, null unless they are in canonical form.
function hints(bytes) {
  const found = [];
  let index = 0;
  for (let i = 0; i < K; i += 1) {
    const end = bytes[OMEGA + i];
    if (end < index || end > OMEGA) return null;
    const own = bytes.subarray(index, end);
    if (own.some((value, at) => at > 0 && own[at - 1] >= value)) return null;
    found.push(new Set(own));
    index = end;
  }
  return bytes.subarray(index, OMEGA).some((value) => value) ? null : found;
}

function useHint(hinted, value) {
  let low = value % (2 * GAMMA2);
  if (low > GAMMA2) low -= 2 * GAMMA2;
  const top = value - low === Q - 1;
  const high = top ? 0 : (value - low) / (2 * GAMMA2);
  if (!hinted) return high;
  return (high + ((top ? low - 1 : low) > 0 ? 1 : 43)) % 44;
}

export function verifyMlDsa44(publicKey, signature, message) {
  if (publicKey.length !== PUBLIC_SIZE || signature.length !== SIGNATURE_SIZE) return false;
  const rho = publicKey.subarray(0, 32);
  const seed = signature.subarray(0, 32);
  const hint = hints(signature.subarray(32 + 576 * K));
  if (hint === null) return false;
  const z = Array.from({ length: K }, (_, i) =>
    unpack(signature.subarray(32 + 576 * i, 608 + 576 * i), 18).map((v) => GAMMA1 - v),
  );
  if (z.some((one) => one.some((value) => Math.abs(value) >= GAMMA1 - BETA))) return false;
  const zHat = z.map(ntt);
  const cHat = ntt(challenge(seed));
  const parts = Array.from({ length: K }, (_, row) => {
    const t1 = unpack(publicKey.subarray(32 + 320 * row, 352 + 320 * row), 10);
    const tHat = ntt(t1.map((value) => value * 8192));
    const sum = tHat.map((value, n) => mod(-((cHat[n] * value) % Q)));
    for (let column = 0; column < K; column += 1) {
      const entry = matrixEntry(rho, row, column);
      for (let n = 0; n < N; n += 1) sum[n] = (sum[n] + entry[n] * zHat[column][n]) % Q;
    }
    return pack6(inverseNtt(sum).map((value, n) => useHint(hint[row].has(n), value)));
  });
  const own = shake256(64, publicKey);
  const mu = shake256(64, own, Uint8Array.of(0, 0), message);
  return equal(seed, shake256(32, mu, ...parts));
}
