// The formats: bundle, DSSE envelope, statement, escalation, evidence. docs/certificate.md.

import { concat, sha256, toBase64, utf8 } from "./bytes.mjs";
import {
  array, blob, canonical, count, digest, exactly, flag, hash, isObject, mapping, members,
  moment, one, optional, parse, shapeError, text, uuid,
} from "./shape.mjs";

export const MAX_BUNDLE = 1 << 20;
const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const PREDICATE_TYPE = "https://w3id.org/lethe-ledger/erasure-certificate/v1";
const ATTEMPTS = "escalation.attempts";
const ATTEMPT = "attempt"; // the certified number

// --- the file ---------------------------------------------------------------------------

const bundle = members({
  mediaType: one("application/vnd.dev.sigstore.bundle.v0.3+json"),
  verificationMaterial: members({
    publicKey: members({ hint: text }),
    tlogEntries: exactly(
      members({
        logIndex: count,
        logId: members({ keyId: hash }),
        kindVersion: members({ kind: one("hashedrekord"), version: one("0.0.2") }),
        integratedTime: one("0"),
        inclusionProof: members({
          logIndex: count,
          rootHash: hash,
          treeSize: count,
          hashes: array(hash),
          checkpoint: members({ envelope: text }),
        }),
        canonicalizedBody: blob,
      }),
    ),
  }),
  dsseEnvelope: members({
    payload: blob,
    payloadType: one(PAYLOAD_TYPE),
    signatures: exactly(members({ keyid: text, sig: blob })),
  }),
});

// {keyid, payload, signature, entry} of a certificate file.
export function parseBundle(bytes) {
  if (bytes.length > MAX_BUNDLE) throw shapeError(`must not exceed ${MAX_BUNDLE} bytes`);
  const read = bundle(parse(bytes));
  const [entry] = read.verificationMaterial.tlogEntries;
  const [signature] = read.dsseEnvelope.signatures;
  // The outer index and the hint are not signed: each must equal its signed counterpart.
  if (entry.logIndex !== entry.inclusionProof.logIndex) {
    throw shapeError("must be the same in both places", "logIndex");
  }
  if (read.verificationMaterial.publicKey.hint !== signature.keyid) {
    throw shapeError("must be the envelope's keyid", "verificationMaterial.publicKey.hint");
  }
  const { payload } = read.dsseEnvelope;
  return { keyid: signature.keyid, payload, signature: signature.sig, entry };
}

// DSSE's pre-authentication encoding: the signed bytes.
export function signedBytes(payload) {
  return concat(
    utf8(`DSSEv1 ${PAYLOAD_TYPE.length} ${PAYLOAD_TYPE} ${payload.length} `), payload,
  );
}

// The log entry of an envelope under an issuer's key (SubjectPublicKeyInfo, DER).
export function leafOf(payload, signature, spki) {
  const record = {
    data: { algorithm: "SHA2_256", digest: toBase64(sha256(signedBytes(payload))) },
    signature: {
      content: toBase64(signature),
      verifier: {
        keyDetails: "PKIX_ECDSA_P256_SHA_256",
        publicKey: { rawBytes: toBase64(spki) },
      },
    },
  };
  const spec = { hashedRekordV002: record };
  return utf8(canonical({ apiVersion: "0.0.2", kind: "hashedrekord", spec }));
}

// --- the statement ----------------------------------------------------------------------

const version = members({ digest });
const state = members({ root: hash, count });
const verifier = members({ id: text, version: text, codeDigest: digest });
const outcome = one("PASS", "FAIL", "INCONCLUSIVE");
const check = members({
  number: count,
  name: text,
  quantity: text,
  value: text,
  interval: optional(exactly(text, text)),
  threshold: optional(text),
  passed: flag,
});

const statement = members({
  _type: one("https://in-toto.io/Statement/v1"),
  subject: array(members({ name: text, digest })),
  predicateType: one(PREDICATE_TYPE),
  predicate: members({
    certificateId: uuid,
    requestRef: uuid,
    requestLogIndex: count,
    requestCommitment: hash,
    completedAt: moment,
    supersedes: optional(uuid),
    model: members({ ref: text, versionBefore: version, versionAfter: version }),
    scope: members({
      level: one("sample", "client", "subject"),
      records: count,
      recordsRoot: hash,
    }),
    retainedSet: members({ before: state, after: state, removalProof: digest }),
    method: members({
      id: text,
      version: text,
      parameters: mapping(text),
      codeDigest: digest,
      environment: mapping(text),
    }),
    guarantee: members({
      class: one(
        "exact", "exact-retrained", "retrained", "numerically-exact",
        "certified-approximate", "empirical-approximate", "none",
      ),
      statement: text,
      bounds: mapping(text),
    }),
    checks: array(check),
    result: outcome,
    purged: members({ artifacts: array(digest), featureRows: count, keysDestroyed: count }),
    evidence: array(members({ name: text, digest, mediaType: text })),
    verifier,
  }),
});

function needConsistent({ subject, predicate }) {
  const subjects = subject.map((one) => one.digest);
  const after = predicate.model.versionAfter.digest;
  const before = predicate.model.versionBefore.digest;
  if (new Set(subjects).size !== subjects.length) {
    throw shapeError("must not name an artifact twice", "subject");
  }
  if (!subjects.includes(after)) {
    throw shapeError("must include the model version after the erasure", "subject");
  }
  // Equal digests are legal: erasing a record of zeros leaves the head unchanged.
  if (before !== after && subjects.includes(before)) {
    throw shapeError("must not include the model before the erasure", "subject");
  }
  if (predicate.scope.records < 1n) {
    throw shapeError("must be at least 1", "predicate.scope.records");
  }
  if (predicate.checks.some((one, at) => one.number !== BigInt(at + 1))) {
    throw shapeError("must be numbered 1, 2, 3 in order", "predicate.checks");
  }
  const passed = predicate.checks.map((one) => one.passed);
  if (predicate.result === "PASS" && !(passed.length && passed.every(Boolean))) {
    throw shapeError("must not be PASS unless every check passed", "predicate.result");
  }
  const proof = predicate.retainedSet.removalProof;
  if (!predicate.evidence.some((one) => one.digest === proof)) {
    throw shapeError("must list the removal proof", "predicate.evidence");
  }
}

// {read: with BigInt, bytes and Map; json: as it was signed}.
export function parseStatement(payload) {
  const json = parse(payload);
  if (isObject(json) && json.predicateType !== PREDICATE_TYPE) {
    throw shapeError(`must be ${PREDICATE_TYPE}, or needs a newer release`, "predicateType");
  }
  const read = statement(json);
  needConsistent(read);
  return { read, json };
}

const escalation = members({
  attempts: array(
    members({
      number: optional(count),
      method: text,
      result: one("FAIL", "INCONCLUSIVE", "NONE"),
      reason: optional(text),
      checks: array(check),
    }),
  ),
});

function problemOf({ number, result, reason, checks }) {
  if (result === "NONE") {
    if (checks.length || reason === null) {
      return "must have a reason and no checks: its result is NONE";
    }
    if (/^(PASS|FAIL|INCONCLUSIVE) \([^]*\)$/.test(reason)) {
      return "must not tell a verdict as the reason why there is none";
    }
    return null;
  }
  if (number === null) return "must have a number: a verdict was reached";
  if (reason !== null || !checks.length) {
    return "must have checks and no reason: a verdict was reached";
  }
  return checks.every((one) => one.passed)
    ? "must have a check that did not pass: its result is no PASS"
    : null;
}

// What came before the certified attempt; throws if it is malformed.
export function readEscalation(parameters) {
  const encoded = parameters.get(ATTEMPTS);
  if (encoded === undefined) {
    if (parameters.has(ATTEMPT)) {
      throw shapeError(`must not be there without ${ATTEMPTS}`, `parameters.${ATTEMPT}`);
    }
    return [];
  }
  const { attempts } = escalation(parse(utf8(encoded)));
  let next = 1n;
  attempts.forEach((attempt, at) => {
    let problem = problemOf(attempt);
    if (attempt.number !== null && attempt.number !== next++) {
      problem = "must be numbered 1, 2, 3 in order";
    }
    if (problem !== null) throw shapeError(problem, `parameters.${ATTEMPTS}.attempts[${at}]`);
  });
  if (parameters.get(ATTEMPT) !== String(next)) {
    throw shapeError("must be the number after the last attempt's", `parameters.${ATTEMPT}`);
  }
  return attempts;
}

// --- the evidence file ------------------------------------------------------------------

export const removal = members({
  before: state,
  after: state,
  records: array(
    members({
      record: text,
      salt: hash,
      commitment: hash,
      path: members({
        content: hash,
        steps: array(members({ bit: count, count, hash })),
      }),
    }),
  ),
  recordsRoot: hash,
});

const evidence = members({
  apiVersion: one("2"),
  kind: one("erasure-evidence"),
  removal,
  report: members({
    verifier,
    result: outcome,
    checks: array(check),
    details: mapping(text),
  }),
  statistics: mapping(digest),
});

export function parseEvidence(bytes) {
  const json = parse(bytes);
  return { read: evidence(json), json };
}
