// The trust root: the log's key, and each key of the issuer with the entries that it may sign.
//
// As lethe/certificates/trust_root.py and issuers.py: a rule that changes there changes here.

import { equal, sha256, toBase64, utf8 } from "./bytes.mjs";
import { checkInclusion, leafHash, openCheckpoint, parseLogVkey, readNote } from "./log.mjs";
import {
  Refused, array, blob, canonical, count, hash, members, moment, one, optional, parse, text,
} from "./shape.mjs";
import { isP256 } from "./signatures.mjs";

const MAX_TRUST_ROOT = 1 << 20;
const MAX_LEAF = 65535;

const trustRootFile = members({
  apiVersion: one("1"),
  kind: one("trust-root"),
  madeAt: moment,
  logKey: text,
  checkpoint: text,
  issuerKeys: array(
    members({
      keyid: text,
      publicKey: blob,
      from: count,
      until: optional(count),
      revoked: optional(members({ logIndex: count, reason: text })),
    }),
  ),
  entries: array(members({ logIndex: count, leaf: blob, hashes: array(hash) })),
  signature: text,
});

// --- log entries on keys ----------------------------------------------------------------

const common = { at: moment, role: one("issuer"), keyid: text, publicKey: blob };
const KEY_EVENTS = {
  "key.announced": members({ ...common, event: one("key.announced") }),
  "key.rotated": members({ ...common, event: one("key.rotated"), replaces: blob }),
  "key.revoked": members({
    ...common,
    event: one("key.revoked"),
    reason: one("key-compromise", "superseded", "cessation-of-operation", "unspecified"),
  }),
};
const keyEntry = members({ apiVersion: one("1"), kind: one("key-event"), spec: (spec) => spec });

async function parseKeyLeaf(leaf) {
  if (leaf.length > MAX_LEAF) throw new Refused("an entry is too long");
  const { spec } = keyEntry(parse(leaf));
  const shape = Object.hasOwn(KEY_EVENTS, spec?.event) ? KEY_EVENTS[spec.event] : null;
  if (shape === null) throw new Refused("an entry of the trust root is none on a key");
  const change = shape(spec);
  if (!change.at.endsWith("T00:00:00Z") || !/^[A-Za-z0-9._-]{1,80}$/.test(change.keyid)) {
    throw new Refused("an entry of the trust root is not of its documented form");
  }
  for (const key of [change.publicKey, change.replaces ?? change.publicKey]) {
    if (!(await isP256(key))) throw new Refused("an issuer's key is an ECDSA P-256 key");
  }
  return change;
}

// The keys that entries name, oldest first; `first` is the key before any entry names one.
function replay(changes, first) {
  const keys = [];
  for (const { index, change } of changes) {
    const known = keys.find((key) => equal(key.spki, change.publicKey));
    const last = keys[keys.length - 1];
    if (change.event === "key.revoked") {
      if (known === undefined || known.keyid !== change.keyid) {
        throw new Refused(`entry ${index} revokes a key that the issuer never had`);
      }
      if (known.revoked === null) {
        known.revoked = index;
        known.reason = change.reason;
      }
      continue;
    }
    if (known !== undefined || keys.some((key) => key.keyid === change.keyid)) {
      throw new Refused(`entry ${index} names a key, or a keyid, a second time`);
    }
    if ((change.event === "key.announced") !== (last === undefined)) {
      throw new Refused(`entry ${index} begins the issuer's keys a second time`);
    }
    if (last !== undefined && !equal(last.spki, change.replaces)) {
      throw new Refused(`entry ${index} replaces another key than the last`);
    }
    if (last !== undefined) last.end = index;
    keys.push({
      keyid: change.keyid,
      spki: change.publicKey,
      start: last === undefined ? 0n : index,
      end: null,
      revoked: null,
      reason: null,
    });
  }
  const only = { keyid: first.keyid, spki: first.publicKey, start: 0n };
  return keys.length ? keys : [{ ...only, end: null, revoked: null, reason: null }];
}

// --- the file ---------------------------------------------------------------------------

function isAsListed(key, part) {
  return (
    key.keyid === part.keyid && equal(key.spki, part.publicKey) && key.start === part.from &&
    key.end === part.until && key.revoked === (part.revoked?.logIndex ?? null) &&
    key.reason === (part.revoked?.reason ?? null)
  );
}

// {log, issuers: {keys, size, root}, madeAt} of a trust root (Uint8Array) that its log signed.
export async function parseTrustRoot(bytes) {
  if (bytes.length > MAX_TRUST_ROOT) {
    throw new Refused(`a trust root has at most ${MAX_TRUST_ROOT} bytes`);
  }
  const json = parse(bytes[bytes.length - 1] === 0x0a ? bytes.subarray(0, -1) : bytes);
  const file = trustRootFile(json);
  const log = parseLogVkey(file.logKey);
  const others = Object.fromEntries(Object.entries(json).filter(([name]) => name !== "signature"));
  const digest = toBase64(sha256(utf8(canonical(others))));
  const signed = `lethe-trust-root/v1\nlog ${log.name}\n${digest}\n\n${file.signature}`;
  await readNote(signed, [log]);
  const checkpoint = await openCheckpoint(file.checkpoint, log);
  const changes = [];
  for (const { logIndex, leaf, hashes } of file.entries) {
    checkInclusion(logIndex, checkpoint.size, leafHash(leaf), hashes, checkpoint.root);
    if (changes.length && logIndex <= changes[changes.length - 1].index) {
      throw new Refused("the trust root lists other entries than those on keys");
    }
    changes.push({ index: logIndex, change: await parseKeyLeaf(leaf) });
  }
  const [first] = file.issuerKeys;
  if (first === undefined) throw new Refused("the trust root names no key of an issuer");
  if (!(await isP256(first.publicKey))) {
    throw new Refused("an issuer's key is an ECDSA P-256 key");
  }
  const keys = replay(changes, first);
  const listed = file.issuerKeys;
  if (keys.length !== listed.length || !keys.every((key, at) => isAsListed(key, listed[at]))) {
    throw new Refused("its keys are not those that its log entries name");
  }
  const { size, root } = checkpoint;
  return { log, issuers: { keys, size, root }, madeAt: file.madeAt };
}

// --- what a certificate's place in the log says of its key ------------------------------

export function namedIssuer({ keys }, spki) {
  const found = keys.find((key) => equal(key.spki, spki));
  if (found === undefined) {
    throw new Refused("the issuer has no such key: a newer trust root may have it");
  }
  return found;
}

// Why a key may have signed entry `index`, in words; throws Refused where it may not.
export function checkIssuer(issuers, spki, index) {
  const found = namedIssuer(issuers, spki);
  const { keyid, start, end, revoked, reason } = found;
  if (index >= issuers.size) {
    throw new Refused(
      `entry ${index} is newer than the trust root, which ends at ${issuers.size} entries: ` +
        "get a newer one",
    );
  }
  if (index < start) {
    throw new Refused(
      `the issuer's key ${keyid} signs from entry ${start} on, and this is entry ${index}`,
    );
  }
  if (revoked !== null && index >= revoked) {
    throw new Refused(
      `the issuer's key ${keyid} was revoked at entry ${revoked} (${reason}), and this is ` +
        `entry ${index}`,
    );
  }
  if (end !== null && index >= end) {
    throw new Refused(
      `the issuer's key ${keyid} was replaced at entry ${end}, and this is entry ${index}`,
    );
  }
  const ends = [end, revoked].filter((one) => one !== null);
  const until = ends.length ? ` until entry ${ends.reduce((a, b) => (a < b ? a : b))}` : "";
  const later = revoked === null ? "" : `, revoked at entry ${revoked}`;
  return `key ${keyid} signs from entry ${start}${until}${later}`;
}
