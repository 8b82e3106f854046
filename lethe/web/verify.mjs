// Verification of a certificate offline, from two public keys, in nine numbered steps.
//
// The second implementation of docs/certificate.md, without dependencies: Node.js 18 or newer
// and browsers. `lethe certificate verify` is the first; tests hold both to the same verdicts.

import { equal, fromBase64, hex, sha256, sha256OfFile } from "./bytes.mjs";
import { leafOf, parseBundle, parseEvidence, parseStatement, readEscalation, signedBytes }
  from "./certificate.mjs";
import { ML_DSA_44, checkInclusion, leafHash, notVerified, parseLogVkey, parseVkey,
  readNote } from "./log.mjs";
import { isMet, parsePolicy } from "./policy.mjs";
import { checkRemoval } from "./removal.mjs";
import { Refused, canonical, parse } from "./shape.mjs";
import { readIssuer, verifyP256 } from "./signatures.mjs";
import { checkIssuer, namedIssuer, openLogged, parseTrustRoot } from "./trust.mjs";

export { Refused } from "./shape.mjs";
export { Unsupported } from "./signatures.mjs";

function short(spki) {
  return `${hex(sha256(spki)).slice(0, 16)}…`;
}

// The key under which `leaf` is the envelope's log entry, null if there is none.
function issuerNamedBy(leaf, { payload, signature }) {
  let spki;
  try {
    const { verifier } = parse(leaf).spec.hashedRekordV002.signature;
    spki = fromBase64(verifier.publicKey.rawBytes);
  } catch {
    return null;
  }
  return spki !== null && equal(leafOf(payload, signature, spki), leaf) ? spki : null;
}

// A checkpoint of the log that lacks cosignatures which the verifier requires.
class UnmetPolicy extends Refused {}

const STEPS = [
  ["bundle parses", (run) => {
    run.parsed = parseBundle(run.bundle);
    return `Sigstore bundle v0.3, canonical, ${run.bundle.length} bytes`;
  }],
  ["leaf matches envelope", async (run) => {
    const { parsed, issuer, issuers } = run;
    const entered = parsed.entry.canonicalizedBody;
    if (issuers !== null) {
      const spki = issuerNamedBy(entered, parsed);
      if (spki === null) {
        throw new Refused(
          "the log entry is not this envelope's: payload, signature or entry is another",
        );
      }
      run.issuer = namedIssuer(issuers, spki).spki;
      return "hashedrekord 0.0.2 of this payload, signature and issuer key";
    }
    if (equal(entered, leafOf(parsed.payload, parsed.signature, issuer))) {
      return "hashedrekord 0.0.2 of this payload, signature and issuer key";
    }
    const named = issuerNamedBy(entered, parsed);
    throw new Refused(
      named === null
        ? "the log entry is not this envelope's under this issuer key: payload, signature, " +
          "entry or issuer key is another"
        : `the certificate names issuer key SHA-256 ${short(named)}, yours is ` +
          `${short(issuer)}: another key file, or another operator`,
    );
  }],
  ["envelope signature", async ({ parsed, issuer, issuerKeyid }) => {
    if (issuerKeyid !== null && parsed.keyid !== issuerKeyid) {
      throw new Refused("the envelope names another key than the expected issuer's");
    }
    if (!(await verifyP256(issuer, parsed.signature, signedBytes(parsed.payload)))) {
      throw new Refused(
        "the signature is not the issuer's over this payload: payload, signature or issuer " +
          "key is another",
      );
    }
    return "ECDSA P-256 with SHA-256 by the issuer";
  }],
  ["inclusion proof", ({ parsed: { entry } }) => {
    const { logIndex, treeSize, hashes, rootHash } = entry.inclusionProof;
    checkInclusion(logIndex, treeSize, leafHash(entry.canonicalizedBody), hashes, rootHash);
    return `entry ${logIndex} of ${treeSize}`;
  }],
  ["checkpoint signature and origin", async ({ parsed: { entry }, logs, second, issuer, issuers }) => {
    const named = logs.filter(({ key }) => equal(entry.logId.keyId, key.logId));
    if (!named.length) {
      throw new Refused("the bundle names another log than the given log key");
    }
    const proof = entry.inclusionProof;
    const signed = await openLogged(proof.checkpoint.envelope, named);
    const log = named[0].key;
    if (signed.size !== proof.treeSize || !equal(signed.root, proof.rootHash)) {
      throw new Refused("the checkpoint and the inclusion proof belong to different trees");
    }
    let found = "";
    if (issuers !== null) {
      if (signed.size === issuers.size && !equal(signed.root, issuers.root)) {
        throw new Refused("the log forked: the trust root's tree of this size is another");
      }
      found = `; ${checkIssuer(issuers, issuer, proof.logIndex)}`;
    }
    if (second === null) return `Ed25519 by ${log.name}, size ${signed.size}${found}`;
    const keys = second.map(({ key }) => key);
    const { verified } = await readNote(proof.checkpoint.envelope, [log, ...keys]);
    if (new Set(verified).size !== verified.length || verified.length < 2) {
      throw new Refused("the log did not sign the checkpoint once with each of both keys");
    }
    await openLogged(proof.checkpoint.envelope, second);
    return `Ed25519 and ML-DSA-44 by ${log.name}, size ${signed.size}${found}`;
  }],
  ["witness policy", async ({ parsed: { entry }, logs, second, witnesses, threshold, policy }) => {
    // Refuses a witness's invalid line, whether it is required or not.
    const note = entry.inclusionProof.checkpoint.envelope;
    const own = [...logs, ...(second ?? [])].map(({ key }) => key);
    const opened = await readNote(note, [...own, ...witnesses]);
    if (new Set(opened.verified).size !== opened.verified.length) {
      throw new Refused("a key signed the checkpoint twice");
    }
    const cosigned = opened.verified.filter((key) => !own.includes(key));
    if (policy !== null) {
      const listed = (key) => !policy.logs.length || policy.logs.some((one) => equal(one.logId, key.logId));
      if (!own.some(listed)) {
        throw new UnmetPolicy("the policy lists other logs than this one");
      }
      if (!opened.verified.some((key) => own.includes(key) && listed(key))) {
        throw new UnmetPolicy("no key of the log that the policy lists signed the checkpoint");
      }
      const counted = `${cosigned.length} of ${witnesses.length} witnesses of the policy signed`;
      if (!isMet(policy, opened.verified)) {
        throw new UnmetPolicy(`${counted}: its quorum is not met`);
      }
      const quorum = policy.quorum === "none" ? ", and it requires none" : ": its quorum is met";
      return `${counted}${quorum}${notVerified(opened.unverified)}`;
    }
    // A witness may sign with several keys, and counts once.
    const [known, signed] = [witnesses, cosigned].map((keys) => new Set(keys.map(({ name }) => name)).size);
    if (signed < threshold) {
      throw new UnmetPolicy(
        `${signed} of ${known} witnesses signed, ${threshold} are required`,
      );
    }
    const found = threshold
      ? `${signed} of ${known} witnesses signed, ${threshold} required`
      : `none required, ${signed} known witnesses signed`;
    return found + notVerified(opened.unverified);
  }],
  ["statement shape", (run) => {
    run.statement = parseStatement(run.parsed.payload);
    const { predicate } = run.statement.read;
    readEscalation(predicate.method.parameters);
    if (predicate.requestLogIndex >= run.parsed.entry.logIndex) {
      throw new Refused("the request was logged after the certificate");
    }
    const { result, guarantee } = predicate;
    return `erasure certificate v1: result ${result}, guarantee ${guarantee.class}`;
  }],
  ["subject matches the model file", async ({ statement, model }) => {
    if (model === null) return "not checked: no model file given";
    const file = hex(await sha256OfFile(model));
    const { subject, predicate } = statement.read;
    const found = subject.find((one) => one.digest === file);
    if (found !== undefined) return `the file is subject ${found.name}`;
    if (file === predicate.model.versionBefore.digest) {
      throw new Refused("the file is the model before the erasure");
    }
    const about = subject.map((one) => `${one.name}, ${one.digest}`).join(", ");
    throw new Refused(`the file's SHA-256 is ${file}; this certificate is about ${about}`);
  }],
  ["retained-set proofs", ({ statement, evidence }) => {
    if (evidence === null) return "not checked: no evidence file given";
    const { retainedSet, scope } = statement.read.predicate;
    if (hex(sha256(evidence)) !== retainedSet.removalProof) {
      throw new Refused("this is not the evidence file that the certificate names");
    }
    const { read, json } = parseEvidence(evidence);
    const { before, after } = retainedSet;
    checkRemoval(read.removal, before, after, scope);
    const certified = statement.json.predicate;
    for (const name of ["verifier", "result", "checks"]) {
      if (canonical(certified[name]) !== canonical(json.report[name])) {
        throw new Refused("the evidence reports other checks than the certificate");
      }
    }
    return (
      `${scope.records} ${String(scope.records) === "1" ? "record" : "records"} in the set of ${before.count} before, ` +
      `absent from the set of ${after.count} after`
    );
  }],
];

export const STEP_NAMES = STEPS.map(([name]) => name);

// The keys of a verification from the operator's files: texts of log.vkey, issuer.pem and of
// witnesses' vkeys, or instead of those the bytes of a witness policy; and of the log's
// ML-DSA-44 vkey, if its signature is required. Instead of log.vkey and issuer.pem (null) the
// bytes of a trust root may be given; a log.vkey beside it must be that log's. Throws Refused
// if a text does not hold the expected key, or the bytes are not a policy or trust root.
export async function readKeys(
  logVkey, issuerPem, witnessVkeys = [], policyFile = null, mlDsaVkey = null, trustRoot = null,
) {
  const line = (vkey) => (vkey.endsWith("\n") ? vkey.slice(0, -1) : vkey);
  const policy = policyFile === null ? null : parsePolicy(policyFile);
  const log = logVkey === null ? null : parseLogVkey(line(logVkey));
  const root = trustRoot === null ? null : await parseTrustRoot(
    trustRoot, log?.logId ?? null, mlDsaVkey === null ? null : parseVkey(line(mlDsaVkey)),
  );
  const logs = root?.logs ?? [{ key: log, start: 0n, revoked: null }];
  const second = mlDsaVkey === null ? null : parseMlDsaVkey(line(mlDsaVkey), logs[0].key);
  return {
    logs,
    issuer: root === null ? await readIssuer(issuerPem) : null,
    issuers: root?.issuers ?? null,
    witnesses: policy?.witnesses.map((one) => one.key) ??
      witnessVkeys.map((vkey) => parseVkey(line(vkey))),
    policy,
    second: second && (root?.second ?? [{ key: second, start: 0n, revoked: null }]),
  };
}

function parseMlDsaVkey(vkey, { name }) {
  const key = parseVkey(vkey);
  if (key.kind !== ML_DSA_44 || key.name !== name) {
    throw new Refused(`this is not an ML-DSA-44 key of ${name}`);
  }
  return key;
}

// Verify a certificate file (Uint8Array) with `readKeys`' answer.
//
// options: issuerKeyid, the issuer's required key name; model and evidence, the bytes of the
// files that it should be about; threshold, how many witnesses must have signed. Returns
// {result, outcome, steps: [{number, name, checked, passed, detail}], statement}. PASS means that the
// file is authentic: `statement.predicate.result` says whether the erasure passed. outcome:
// authentic, policy-not-met, other-files or not-authentic. The statement is null unless PASS. Throws Unsupported where the browser cannot check a signature.
export async function verify(bundle, keys, options = {}) {
  const { issuerKeyid = null, model = null, evidence = null, threshold = 0 } = options;
  const run = { bundle, issuerKeyid, model, evidence, threshold, ...keys };
  const steps = [];
  let failed = null;
  for (const [at, [name, check]] of STEPS.entries()) {
    const step = { number: at + 1, name, checked: false, passed: false, detail: "not reached" };
    steps.push(step);
    if (failed !== null) continue;
    try {
      step.detail = await check(run);
      step.checked = !step.detail.startsWith("not checked");
      step.passed = true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      step.detail = error.message;
      step.checked = true;
      const files = step.number === 8 || step.number === 9;
      failed = error instanceof UnmetPolicy ? "policy-not-met" : files ? "other-files" : "not-authentic";
    }
  }
  return failed !== null
    ? { result: "FAIL", outcome: failed, steps, statement: null }
    : { result: "PASS", outcome: "authentic", steps, statement: run.statement.json };
}
