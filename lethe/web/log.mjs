// The log: RFC 6962 proofs, C2SP signed notes, checkpoints and cosignatures.

import { concat, decimal, equal, fromBase64, hex, isUnicode, sha256, toBase64, uint, utf8 }
  from "./bytes.mjs";
import { verifyMlDsa44 } from "./mldsa44.mjs";
import { Refused } from "./shape.mjs";
import { verifyEd25519 } from "./signatures.mjs";

const LIMIT = 1n << 63n; // of tree sizes and times
const MAX_NOTE = 1_000_000;
const MAX_SIGNATURES = 100;
export const ED25519 = 0x01;
export const COSIGNATURE = 0x04;
export const ML_DSA_44 = 0x06;
const KEY_SIZES = { [ED25519]: 32, [COSIGNATURE]: 32, [ML_DSA_44]: 1312 };

// --- RFC 6962 section 2.1 ---------------------------------------------------------------

export function leafHash(data) {
  return sha256(Uint8Array.of(0), data);
}

export function nodeHash(left, right) {
  return sha256(Uint8Array.of(1), left, right);
}

// The largest power of two below `size`, which is at least 2.
function splitPoint(size) {
  return 1n << BigInt((size - 1n).toString(2).length - 1);
}

// Whether each sibling of a leaf is right of the path, lowest first.
function leafPath(index, size) {
  const sides = [];
  let [start, end] = [0n, size];
  while (end - start > 1n) {
    const middle = start + splitPoint(end - start);
    sides.push(index < middle);
    if (index < middle) end = middle;
    else start = middle;
  }
  return sides.reverse();
}

function needLength(proof, length) {
  if (proof.length !== length) {
    throw new Refused(`the proof has ${proof.length} hashes, these sizes need ${length}`);
  }
  if (proof.some((item) => item.length !== 32)) {
    throw new Refused("a hash in a proof has 32 bytes");
  }
}

// index, size: BigInt; leaf: a leaf hash; proof: hashes, lowest first.
export function checkInclusion(index, size, leaf, proof, root) {
  if (!(0n <= index && index < size && size < LIMIT)) {
    throw new Refused("there is no such leaf: index must be below the tree size");
  }
  const sides = leafPath(index, size);
  needLength([leaf], 1);
  needLength(proof, sides.length);
  let node = leaf;
  sides.forEach((onRight, at) => {
    node = onRight ? nodeHash(node, proof[at]) : nodeHash(proof[at], node);
  });
  if (!equal(node, root)) {
    throw new Refused(
      "the inclusion proof leads to another root: leaf, index or tree differ",
    );
  }
}

// The path from the older tree's last node to the root, lowest first: where that node starts,
// and whether each sibling is right of the path.
function edgePath(old, size) {
  const sides = [];
  let [start, end] = [0n, size];
  while (end !== old) {
    const middle = start + splitPoint(end - start);
    sides.push(old <= middle);
    if (old <= middle) end = middle;
    else start = middle;
  }
  return [start, sides.reverse()];
}

// RFC 6962 section 2.1.2: tree (size, newRoot) starts with all leaves of (old, oldRoot).
export function checkConsistency(old, size, proof, oldRoot, newRoot) {
  if (!(0n < old && old <= size && size < LIMIT)) {
    throw new Refused("consistency needs 0 < old size <= new size");
  }
  const [start, sides] = edgePath(old, size);
  const seeded = start !== 0n ? 1 : 0; // else the old tree is a node of the new one
  needLength(proof, sides.length + seeded);
  let before = seeded ? proof[0] : oldRoot;
  let after = before;
  sides.forEach((onRight, at) => {
    const sibling = proof[at + seeded];
    if (!onRight) before = nodeHash(sibling, before);
    after = onRight ? nodeHash(after, sibling) : nodeHash(sibling, after);
  });
  if (!equal(before, oldRoot) || !equal(after, newRoot)) {
    throw new Refused("the consistency proof leads to other roots: the trees have forked");
  }
}

// --- ranges of entries --------------------------------------------------------------------

function checkGrowth(old, size, proof, before, after) {
  if (!(0n <= old && old <= size)) throw new Refused("the sizes of the trees do not ascend");
  if (old === 0n) { // every tree extends the empty one, without proof
    const empty = sha256(new Uint8Array());
    const fits = equal(before, empty) && (size !== 0n || equal(after, before));
    if (proof.length || !fits) throw new Refused("the empty tree has another root");
    return;
  }
  checkConsistency(old, size, proof, before, after);
}

// The complete subtrees of the older tree from a checked consistency proof, largest first, as
// [level, hash]; 0 < old < size.
function subtreesOf(old, size, proof, oldRoot) {
  const [start, sides] = edgePath(old, size);
  const seeded = start !== 0n ? 1 : 0;
  const nodes = [seeded ? proof[0] : oldRoot];
  sides.forEach((onRight, at) => {
    if (!onRight) nodes.unshift(proof[at + seeded]);
  });
  const levels = [];
  for (let level = 0; old >> BigInt(level); level += 1) {
    if ((old >> BigInt(level)) & 1n) levels.unshift(level);
  }
  return nodes.map((node, at) => [levels[at], node]);
}

// Checks that `leaves` (hashes) are all entries of the range in the tree (size, root).
// range: {start, end, startRoot, endRoot, own, onward}; sizes are BigInt.
export function checkRange(range, leaves, size, root) {
  const { start, end, startRoot, endRoot, own, onward } = range;
  checkGrowth(start, end, own, startRoot, endRoot);
  checkGrowth(end, size, onward, endRoot, root);
  if (BigInt(leaves.length) !== end - start) {
    throw new Refused(
      `the range has ${end - start} entries, ${leaves.length} were given: ` +
        "one is left out or added",
    );
  }
  needLength(leaves, leaves.length); // of 32 bytes each
  if (start === end) return;
  const peaks = start ? subtreesOf(start, end, own, startRoot) : [];
  for (let node of leaves) {
    let level = 0;
    while (peaks.length && peaks[peaks.length - 1][0] === level) {
      node = nodeHash(peaks.pop()[1], node);
      level += 1;
    }
    peaks.push([level, node]);
  }
  let [, found] = peaks.pop();
  while (peaks.length) found = nodeHash(peaks.pop()[1], found);
  if (!equal(found, endRoot)) {
    throw new Refused(
      "the entries lead to another root: one of them is left out, added, changed or in " +
        "another place",
    );
  }
}

// --- keys -------------------------------------------------------------------------------

// The characters of Python's str.isspace(): \s of JavaScript differs in U+0085 and U+FEFF.
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

function needName(name) {
  if (!name || /[+\x00-\x1f]/.test(name) || SPACE.test(name)) {
    throw new Refused(
      "a key name is not empty and has no space, plus or control character",
    );
  }
  if (!isUnicode(name)) throw new Refused("a key name is valid UTF-8");
}

function keyOf(name, kind, raw) {
  const logId = sha256(utf8(name), Uint8Array.of(0x0a, kind), raw);
  return { name, kind, raw, logId, keyId: hex(logId.subarray(0, 4)) };
}

// Whether 32 bytes encode a point of small order, under which anybody signs, or one in a second
// spelling: lethe/weak_keys.py.
const FIELD = (1n << 255n) - 19n;
const ORDER_8 = 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n;
const SMALL = [0n, 1n, FIELD - 1n, ORDER_8, FIELD - ORDER_8];

function isWeak(key) {
  const y = BigInt(`0x${hex(Uint8Array.from(key).reverse())}`) & ((1n << 255n) - 1n);
  return y >= FIELD || SMALL.includes(y);
}

// A verifier key `name+hex key id+base64(type || key)`: {name, kind, raw, logId, keyId}.
export function parseVkey(line) {
  const [name, ...rest] = line.split("+");
  const data = fromBase64(rest.slice(1).join("+")); // base64 may contain a plus itself
  const sized = data !== null && KEY_SIZES[data[0]] === data.length - 1;
  if (!sized || (data[0] !== ML_DSA_44 && isWeak(data.subarray(1)))) {
    throw new Refused(
      "a verifier key is name+key id+base64 of an Ed25519 key, or of a witness's " +
        "Ed25519 or ML-DSA-44 key",
    );
  }
  needName(name);
  const key = keyOf(name, data[0], data.subarray(1));
  if (`${name}+${key.keyId}+${toBase64(data)}` !== line) {
    throw new Refused("the verifier key's id is not the one of its name and key");
  }
  return key;
}

export function parseLogVkey(line) {
  const key = parseVkey(line);
  if (key.kind !== ED25519) {
    throw new Refused("this is a witness's key: a log's key is Ed25519 of type 0x01");
  }
  return key;
}

// --- signed notes -----------------------------------------------------------------------

function needText(note) {
  if (!note.endsWith("\n")) throw new Refused("a note's text ends in a newline");
  if (/[\x00-\x09\x0b-\x1f]/.test(note)) {
    throw new Refused("a note holds no control character but newline");
  }
  if (!isUnicode(note)) throw new Refused("a note is valid UTF-8");
  if (utf8(note).length > MAX_NOTE) throw new Refused(`a note has at most ${MAX_NOTE} bytes`);
}

function parseLine(line) {
  if (!line.startsWith("— ")) {
    throw new Refused("a signature line starts with an em dash and a space");
  }
  const rest = line.slice(2);
  const space = rest.indexOf(" ");
  const name = space < 0 ? rest : rest.slice(0, space);
  needName(name);
  const data = fromBase64(space < 0 ? "" : rest.slice(space + 1));
  if (data === null) throw new Refused("a signature is canonical base64");
  if (data.length <= 4) {
    throw new Refused("a signature is a 4-byte key id and at least one byte more");
  }
  return { name, keyId: hex(data.subarray(0, 4)), signature: data.subarray(4) };
}

function splitNote(note) {
  needText(note);
  const at = note.lastIndexOf("\n\n"); // the text may contain empty lines of its own
  const lines = at < 0 ? [] : note.slice(at + 2).split("\n").slice(0, -1);
  if (!lines.length) throw new Refused("a note is text, a blank line and signature lines");
  if (lines.length > MAX_SIGNATURES) {
    throw new Refused(`a note has at most ${MAX_SIGNATURES} signatures`);
  }
  return [`${note.slice(0, at)}\n`, lines.map(parseLine)];
}

// The message of a cosigner of type 0x06 (C2SP tlog-cosignature), null if it is no checkpoint.
function subtreeMessage(name, time, body) {
  const [origin, size, root] = [...body.split("\n"), "", ""];
  const end = decimal(size, LIMIT);
  const digest = fromBase64(root);
  const names = [name, origin].map(utf8);
  if (end === null || digest === null || digest.length !== 32) return null;
  if (names.some((one) => one.length < 1 || one.length > 255)) return null;
  const [own, log] = names.map((one) => concat(Uint8Array.of(one.length), one));
  const label = utf8("subtree/v1\n\0");
  return concat(label, own, uint(time, 8), log, uint(0, 8), uint(end, 8), digest);
}

async function isSigned(key, body, signature) {
  if (key.kind === ED25519) return verifyEd25519(key.raw, signature, utf8(body));
  if (signature.length <= 8) return false;
  const time = BigInt(`0x${hex(signature.subarray(0, 8))}`);
  if (time >= LIMIT) return false;
  const rest = signature.subarray(8);
  if (key.kind === COSIGNATURE) {
    const message = utf8(`cosignature/v1\ntime ${time}\n${body}`);
    return verifyEd25519(key.raw, rest, message);
  }
  const message = subtreeMessage(key.name, time, body);
  return message !== null && verifyMlDsa44(key.raw, rest, message);
}

// {body, verified: keys in the order of their lines, unverified: lines of unknown keys}.
export async function readNote(note, keys) {
  const known = new Map(keys.map((key) => [`${key.name} ${key.keyId}`, key]));
  if (known.size !== keys.length) {
    throw new Refused("two of the known keys share one name and key id");
  }
  const [body, lines] = splitNote(note);
  const verified = [];
  const unverified = [];
  for (const line of lines) {
    const key = known.get(`${line.name} ${line.keyId}`);
    if (key === undefined) {
      unverified.push(line);
    } else if (await isSigned(key, body, line.signature)) {
      verified.push(key);
    } else {
      throw new Refused("the note carries a wrong signature by a known key");
    }
  }
  if (!verified.length) {
    throw new Refused("no known key signed the note: is it another log's, or its key new?");
  }
  return { body, verified, unverified };
}

export function notVerified(lines) {
  if (!lines.length) return "";
  const spelled = lines.map((one) => `${[...one.name].slice(0, 80).join("")}+${one.keyId}`);
  const names = [...new Set(spelled)];
  const rest = names.length > 3 ? ` and ${names.length - 3} more` : "";
  return `; not verified, their keys were not given: ${names.slice(0, 3).join(", ")}${rest}`;
}

// --- checkpoints ------------------------------------------------------------------------

export function parseCheckpoint(body) {
  const lines = body.split("\n");
  if (lines.length < 4) {
    throw new Refused("a checkpoint is at least three lines: origin, size, root");
  }
  const size = decimal(lines[1], LIMIT);
  const root = fromBase64(lines[2]);
  if (size === null || root === null) {
    throw new Refused("size is decimal below 2**63 and root is base64");
  }
  const texts = [lines[0], ...lines.slice(3, -1)];
  if (texts.some((line) => !line || /[\x00-\x1f]/.test(line))) {
    throw new Refused("origin and extensions are lines of text, none of them empty");
  }
  if (root.length !== 32) throw new Refused("a root has 32 bytes");
  if (size === 0n && !equal(root, sha256(new Uint8Array()))) {
    throw new Refused("the root of size 0 is SHA-256 of nothing");
  }
  if (lines[lines.length - 1] !== "") {
    throw new Refused("the checkpoint is not in its canonical spelling");
  }
  return { origin: lines[0], size, root };
}

export async function openCheckpoint(note, key) {
  const { body } = await readNote(note, [key]);
  const checkpoint = parseCheckpoint(body);
  if (checkpoint.origin !== key.name) {
    throw new Refused("the checkpoint belongs to another log: its origin differs");
  }
  return checkpoint;
}
