// Retained sets: exactly the erased records were removed (docs/certificate.md).

import { compare, concat, equal, sha256, uint, utf8 } from "./bytes.mjs";
import { leafHash, nodeHash } from "./log.mjs";
import { Refused } from "./shape.mjs";

const TAG = utf8("lethe/retained-set/v2\0");
const EMPTY_ROOT = sha256(Uint8Array.of(2), TAG);

// HMAC-SHA256 (RFC 2104) with a key of at most a block.
function hmac(key, message) {
  const padded = concat(key, new Uint8Array(64 - key.length));
  const inner = sha256(padded.map((byte) => byte ^ 0x36), message);
  return sha256(padded.map((byte) => byte ^ 0x5c), inner);
}

export function retainedLeaf(commitment, content) {
  return sha256(Uint8Array.of(0), TAG, commitment, content);
}

export function retainedNode(bit, count, left, right) {
  return sha256(Uint8Array.of(1), TAG, uint(bit, 2), uint(count, 8), left, right);
}

// RFC 6962's root over leaves.
function rootOf(leaves) {
  let row = leaves.map(leafHash);
  while (row.length > 1) {
    const next = [];
    for (let at = 0; at < row.length; at += 2) {
      next.push(at + 1 < row.length ? nodeHash(row[at], row[at + 1]) : row[at]);
    }
    row = next;
  }
  return row.length ? row[0] : sha256(new Uint8Array());
}

function isRight(commitment, bit) {
  return ((commitment[bit >> 3] >> (7 - (bit & 7))) & 1) === 1;
}

// The states {root, count} of a path's set, and of that set without its leaf.
function follow(commitment, { content, steps }) {
  let count = 1n;
  let before = retainedLeaf(commitment, content);
  let after = EMPTY_ROOT;
  let last = 256n;
  for (const step of steps) {
    if (step.bit >= last) throw new Refused("the bits of its path do not fall towards the root");
    if (step.count < 1n) throw new Refused("a subtree beside its path is empty");
    const total = count + step.count;
    if (total >= 1n << 63n) throw new Refused("its path counts more records than there can be");
    const right = isRight(commitment, Number(step.bit));
    const joined = (bit, size, own) =>
      retainedNode(bit, size, ...(right ? [step.hash, own] : [own, step.hash]));
    after = count === 1n ? step.hash : joined(step.bit, total - 1n, after);
    before = joined(step.bit, total, before);
    count = total;
    last = step.bit;
  }
  return [{ root: before, count }, { root: after, count: count - 1n }];
}

function sameState(left, right) {
  return left.count === right.count && equal(left.root, right.root);
}

function leave(record, state) {
  if (!equal(hmac(record.salt, utf8(record.record)), record.commitment)) {
    throw new Refused("record id and salt do not open the commitment");
  }
  const [before, after] = follow(record.commitment, record.path);
  if (!sameState(before, state)) {
    throw new Refused("its path does not lead to the set that it is removed from");
  }
  return after;
}

// Throws Refused unless `removal` proves that exactly the scope's records were removed.
export function checkRemoval(removal, before, after, scope) {
  if (!sameState(removal.before, before) || !sameState(removal.after, after)) {
    throw new Refused("the proofs are of other retained sets than the certificate's");
  }
  const commitments = removal.records.map((one) => one.commitment);
  const number = BigInt(commitments.length);
  if (!commitments.length || number !== scope.records) {
    throw new Refused("the proofs are for another number of records than the scope's");
  }
  if (commitments.some((one, at) => at > 0 && compare(commitments[at - 1], one) >= 0)) {
    throw new Refused("the records must ascend by commitment and none may repeat");
  }
  // One record under two salts would hide a second record that was not removed.
  if (new Set(removal.records.map((one) => one.record)).size !== commitments.length) {
    throw new Refused("a record is listed twice under different salts");
  }
  const root = rootOf(commitments);
  if (!equal(removal.recordsRoot, root) || !equal(root, scope.recordsRoot)) {
    throw new Refused("the records are not those of the certificate's scope");
  }
  if (after.count !== before.count - number) {
    throw new Refused("the set did not shrink by exactly the erased records");
  }
  let state = before;
  removal.records.forEach((record, at) => {
    try {
      state = leave(record, state);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      throw new Refused(`record ${at + 1}: ${error.message}`); // its id is personal data
    }
  });
  if (!sameState(state, after)) {
    throw new Refused("the set after is not what the removed records leave");
  }
}
