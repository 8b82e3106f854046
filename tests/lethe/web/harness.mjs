// Answers one JSON line for each JSON line: the second verifier, as a function for tests.
import { webcrypto } from "node:crypto";
import { createInterface } from "node:readline";

globalThis.crypto ??= webcrypto; // Node.js 18

const { checkConsistency, checkInclusion, checkRange, openCheckpoint, parseCheckpoint,
  parseLogVkey, parseVkey, readNote } = await import("../../../lethe/web/log.mjs");
const { removal } = await import("../../../lethe/web/certificate.mjs");
const { checkRemoval, retainedLeaf, retainedNode } = await import("../../../lethe/web/removal.mjs");
const { Refused, canonical, parse, count, hash, members } =
  await import("../../../lethe/web/shape.mjs");
const { isMet, parsePolicy } = await import("../../../lethe/web/policy.mjs");
const { readKeys, verify } = await import("../../../lethe/web/verify.mjs");
const { parseTrustRoot } = await import("../../../lethe/web/trust.mjs");
const { verifyMlDsa44 } = await import("../../../lethe/web/mldsa44.mjs");
const { hex } = await import("../../../lethe/web/bytes.mjs");

const bytes = (text) => (text == null ? null : new Uint8Array(Buffer.from(text, "base64")));
const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"));
const state = members({ root: hash, count });

// The keys of the last call: whoever flips every bit of a file gives the same ones each time.
const last = { given: null, keys: null };

async function keysOf(...given) {
  const spelled = JSON.stringify(given);
  if (last.given !== spelled) {
    const [log, issuer, witnesses, policy, mlDsa, root] = given;
    last.keys = await readKeys(log, issuer, witnesses, bytes(policy), mlDsa, bytes(root));
    last.given = spelled; // only now: keys that are refused are read again
  }
  return last.keys;
}

const OPERATIONS = {
  async verify({
    bundle, log, issuer, issuerKeyid, model, evidence, witnesses, threshold, policy, mlDsa,
    trustRoot,
  }) {
    const keys = await keysOf(log, issuer, witnesses, policy, mlDsa, trustRoot);
    const options = { issuerKeyid, model: bytes(model), evidence: bytes(evidence), threshold };
    const { result, outcome, steps, statement } = await verify(bytes(bundle), keys, options);
    return { result, outcome, steps, statement };
  },
  async trustRoot({ data }) {
    const { logs, issuers, madeAt } = await parseTrustRoot(bytes(data));
    return [logs.map(({ key }) => key.keyId), issuers.keys.map((key) => key.keyid), String(issuers.size), madeAt];
  },
  async note({ note, vkeys }) {
    return (await readNote(note, vkeys.map(parseVkey))).body;
  },
  vkey: ({ vkey }) => parseVkey(vkey).keyId,
  logVkey: ({ vkey }) => parseLogVkey(vkey).keyId,
  policy({ data, signed }) {
    const policy = parsePolicy(bytes(data));
    const keys = policy.witnesses.map((one) => one.key).filter((_, at) => signed.includes(at));
    return isMet(policy, keys);
  },
  checkpoint({ text }) {
    const { origin, size, root } = parseCheckpoint(text);
    return [origin, String(size), hex(root)];
  },
  async openCheckpoint({ note, vkey }) {
    const { origin, size, root } = await openCheckpoint(note, parseLogVkey(vkey));
    return [origin, String(size), hex(root)];
  },
  inclusion({ index, size, leaf, proof, root }) {
    return checkInclusion(BigInt(index), BigInt(size), unhex(leaf), proof.map(unhex), unhex(root));
  },
  consistency({ old, size, proof, oldRoot, newRoot }) {
    const [before, after] = [unhex(oldRoot), unhex(newRoot)];
    return checkConsistency(BigInt(old), BigInt(size), proof.map(unhex), before, after);
  },
  range({ start, end, startRoot, endRoot, own, onward, leaves, size, root }) {
    const range = {
      start: BigInt(start), end: BigInt(end), startRoot: unhex(startRoot), endRoot: unhex(endRoot),
      own: own.map(unhex), onward: onward.map(unhex),
    };
    return checkRange(range, leaves.map(unhex), BigInt(size), unhex(root));
  },
  removal({ section, before, after, records, recordsRoot }) {
    const scope = { records: BigInt(records), recordsRoot: hash(recordsRoot) };
    return checkRemoval(removal(section), state(before), state(after), scope);
  },
  retainedLeaf: ({ commitment, content }) => hex(retainedLeaf(unhex(commitment), unhex(content))),
  retainedNode: ({ bit, count: own, left, right }) =>
    hex(retainedNode(BigInt(bit), BigInt(own), unhex(left), unhex(right))),
  canonical: ({ data }) => canonical(parse(bytes(data))),
  mldsa44: ({ key, signature, message }) =>
    verifyMlDsa44(unhex(key), unhex(signature), unhex(message)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { operation, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await OPERATIONS[operation](given)) ?? null };
  } catch (error) {
    answer = error instanceof Refused ? { refused: error.message } : { crash: error.stack };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
