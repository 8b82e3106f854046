// The trust root: each key of log and issuer, with the range of entries that it may sign.
//
// Mirrors trust_root.py and issuers.py of lethe/certificates, and key_history.py and
// log_keys.py of lethe/log: change both together.

import { concat, equal, sha256, toBase64, utf8 } from "./bytes.mjs";
import {
  ED25519, ML_DSA_44, checkInclusion, leafHash, parseCheckpoint, parseVkey, readNote,
} from "./log.mjs";
import {
  Refused, array, blob, canonical, count, hash, members, moment, nonempty, one, optional, parse, text,
} from "./shape.mjs";
import { isP256 } from "./signatures.mjs";

const MAX_TRUST_ROOT = 1 << 20;
const MAX_LEAF = 65535;

const revocation = optional(members({ logIndex: count, reason: text }));
const chain = array(
  members({
    vkey: text,
    from: count,
    announcement: optional(members({ checkpoint: text, hashes: array(hash) })),
    revoked: revocation,
  }),
);
const trustRootFile = members({
  apiVersion: one("1"),
  kind: one("trust-root"),
  madeAt: moment,
  logKeys: chain,
  checkpoint: text,
  issuerKeys: array(
    members({
      keyid: text,
      publicKey: blob,
      from: count,
      until: optional(count),
      revoked: revocation,
    }),
  ),
  entries: array(members({ logIndex: count, leaf: blob, hashes: array(hash) })),
  signature: text,
}, { mlDsaKeys: nonempty(chain) });

// --- log entries about keys ---------------------------------------------------------------

const common = { at: moment, role: one("issuer", "log", "log-mldsa"), keyid: text, publicKey: blob };
const KEY_EVENTS = {
  "key.announced": members({ ...common, event: one("key.announced") }),
  "key.rotated": members({ ...common, event: one("key.rotated"), replaces: blob }),
  "key.revoked": members({
    ...common,
    event: one("key.revoked"),
    reason: one("key-compromise", "superseded", "cessation-of-operation", "unspecified"),
  }),
};
const keyEntry = members({ apiVersion: one("1"), kind: one("service-key-event"), spec: (spec) => spec });

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
    const fits = change.role === "issuer" ? await isP256(key) : isOfLog(key, change.role);
    if (!fits) throw new Refused("a key of an entry is not of the kind of its role");
  }
  return change;
}

// SubjectPublicKeyInfo of an Ed25519 key (RFC 8410) before its 32 bytes.
const ED25519_SPKI = Uint8Array.from(
  [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00],
);

// SubjectPublicKeyInfo of an ML-DSA-44 key (RFC 9881) before its 1312 bytes.
const ML_DSA_44_SPKI = Uint8Array.from([
  0x30, 0x82, 0x05, 0x32, 0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03,
  0x11, 0x03, 0x82, 0x05, 0x21, 0x00,
]);
const ROLES = {
  log: { kind: ED25519, spki: ED25519_SPKI, size: 32, what: "log" },
  "log-mldsa": { kind: ML_DSA_44, spki: ML_DSA_44_SPKI, size: 1312, what: "ML-DSA-44" },
};

function isOfLog(key, role) {
  const { spki, size } = ROLES[role];
  return key.length === spki.length + size && equal(key.subarray(0, spki.length), spki);
}

// The keys of a role in the entries, oldest first; `first` is the one before any of them.
function replay(changes, first, role) {
  const keys = [];
  for (const { index, change } of changes) {
    if (change.role !== role) continue;
    const known = keys.find((key) => equal(key.spki, change.publicKey));
    const last = keys[keys.length - 1];
    if (change.event === "key.revoked") {
      if (known === undefined || known.keyid !== change.keyid) {
        throw new Refused(`entry ${index} revokes a key that nobody had`);
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
      throw new Refused(`entry ${index} begins the keys of a role a second time`);
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
    key.end === part.until && isRevokedAsListed(key, part)
  );
}

function isRevokedAsListed({ revoked, reason }, part) {
  return revoked === (part.revoked?.logIndex ?? null) && reason === (part.revoked?.reason ?? null);
}

// The checkpoint of a note, and the oldest valid key of the log that signed it.
export async function openLogged(note, logs) {
  const { body, verified } = await readNote(note, logs.map((one) => one.key));
  const checkpoint = parseCheckpoint(body);
  if (checkpoint.origin !== logs[0].key.name) {
    throw new Refused("the checkpoint belongs to another log: its origin differs");
  }
  let why = null;
  for (const one of logs.filter(({ key }) => verified.includes(key))) {
    why = sizeProblem(one, checkpoint.size);
    if (why === null) return { ...checkpoint, by: one };
  }
  throw new Refused(why);
}

function sizeProblem({ key, start, revoked }, size) {
  const what = start !== 0n && size <= start ? ["announced", start] :
    revoked !== null && size > revoked ? ["revoked", revoked] : null;
  if (what === null) return null;
  const [verb, at] = what;
  return `the log's key ${key.keyId} was ${verb} by entry ${at}, and this checkpoint has ` +
    `${size} entries`;
}

// The log's keys of a role, each announced under the previous one.
async function chainOf(parts, role, { entries }, changes) {
  const { kind, spki, what } = ROLES[role];
  const listed = parts.map((part) => ({ part, key: parseVkey(part.vkey) }));
  const wrong = new Refused(`its ${what} keys are not those that its log entries name`);
  if (listed.some(({ key }) => key.kind !== kind)) throw wrong;
  // Without an entry, only the log's Ed25519 key vouches for a second key.
  if (role === "log-mldsa" && !changes.some(({ change }) => change.role === role)) throw wrong;
  const spkiOf = (key) => concat(spki, key.raw);
  const first = { keyid: listed[0].key.keyId, publicKey: spkiOf(listed[0].key) };
  const spans = replay(changes, first, role);
  if (spans.length !== listed.length) throw wrong;
  const logs = [];
  for (const [at, { part, key }] of listed.entries()) {
    const span = spans[at];
    const { announcement } = part;
    const same =
      span.keyid === key.keyId && equal(span.spki, spkiOf(key)) && span.start === part.from &&
      isRevokedAsListed(span, part) && key.name === listed[0].key.name &&
      (at > 0) === (announcement !== null);
    if (!same) throw wrong;
    if (announcement !== null) {
      const signed = await openLogged(announcement.checkpoint, logs.slice(-1));
      const { leaf } = entries.find((one) => one.logIndex === span.start);
      const { hashes } = announcement;
      checkInclusion(span.start, signed.size, leafHash(leaf), hashes, signed.root);
    }
    logs.push({ key, start: span.start, revoked: span.revoked });
  }
  return logs;
}

// The known key and the keys that it led to; all if none is known.
function chainFrom(keys, knownId, what) {
  const from = knownId === null ? 0 : keys.findIndex(({ key }) => equal(key.logId, knownId));
  if (from < 0) throw new Refused(`the trust root belongs to another log than the given ${what}`);
  return keys.slice(from);
}

// {logs, second, issuers: {keys, size, root}, madeAt} of a trust root (Uint8Array) that its log
// signed. knownLogId: of a trusted key of the log; only what it signed, or led to, is trusted.
// knownMlDsa: a trusted second key of the log, as `parseVkey` returns it.
export async function parseTrustRoot(bytes, knownLogId = null, knownMlDsa = null) {
  if (bytes.length > MAX_TRUST_ROOT) {
    throw new Refused(`a trust root has at most ${MAX_TRUST_ROOT} bytes`);
  }
  const json = parse(bytes[bytes.length - 1] === 0x0a ? bytes.subarray(0, -1) : bytes);
  const file = trustRootFile(json);
  if (!file.issuerKeys.length || !file.logKeys.length) {
    throw new Refused("the trust root names no key of an issuer, or none of a log");
  }
  const changes = [];
  for (const { logIndex, leaf } of file.entries) {
    if (changes.length && logIndex <= changes[changes.length - 1].index) {
      throw new Refused("the trust root lists other entries than those on keys");
    }
    changes.push({ index: logIndex, change: await parseKeyLeaf(leaf) });
  }
  const logs = await chainOf(file.logKeys, "log", file, changes);
  const second = file.mlDsaKeys ? await chainOf(file.mlDsaKeys, "log-mldsa", file, changes) : null;
  if (second !== null && second[0].key.name !== logs[0].key.name) {
    throw new Refused("its ML-DSA-44 keys belong to another log than its log keys");
  }
  if (second === null && changes.some(({ change }) => change.role === "log-mldsa")) {
    throw new Refused("the trust root leaves out the ML-DSA-44 keys of its log entries");
  }
  const trusted = chainFrom(logs, knownLogId, "log key");
  const others = Object.fromEntries(Object.entries(json).filter(([name]) => name !== "signature"));
  const digest = toBase64(sha256(utf8(canonical(others))));
  const signed = `lethe-trust-root/v1\nlog ${logs[0].key.name}\n${digest}\n\n${file.signature}`;
  const { verified } = await readNote(signed, trusted.map(({ key }) => key));
  if (trusted.every(({ key, revoked }) => !verified.includes(key) || revoked !== null)) {
    throw new Refused("only keys signed the trust root that it says are revoked");
  }
  const checkpoint = await openLogged(file.checkpoint, trusted);
  if (second !== null && knownMlDsa !== null) {
    await openLogged(file.checkpoint, chainFrom(second, knownMlDsa.logId, "ML-DSA-44 key"));
  }
  for (const { logIndex, leaf, hashes } of file.entries) {
    checkInclusion(logIndex, checkpoint.size, leafHash(leaf), hashes, checkpoint.root);
  }
  const [first] = file.issuerKeys;
  if (!(await isP256(first.publicKey))) {
    throw new Refused("an issuer's key is an ECDSA P-256 key");
  }
  const keys = replay(changes, first, "issuer");
  const listed = file.issuerKeys;
  if (keys.length !== listed.length || !keys.every((key, at) => isAsListed(key, listed[at]))) {
    throw new Refused("its keys are not those that its log entries name");
  }
  const { size, root } = checkpoint;
  return { logs, second, issuers: { keys, size, root }, madeAt: file.madeAt };
}

// --- whether a certificate's key may sign at its position in the log ----------------------

export function namedIssuer({ keys }, spki) {
  const found = keys.find((key) => equal(key.spki, spki));
  if (found === undefined) {
    throw new Refused("the issuer has no such key: a newer trust root may have it");
  }
  return found;
}

// Why a key may have signed entry `index`, in words; throws Refused if it may not.
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
