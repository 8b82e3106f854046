// The second verifier as a command, for Node.js 18 or newer:
//
//   node main.mjs CERTIFICATE (--keys DIRECTORY | --trust-root FILE) [--model FILE] [--evidence FILE]
//        [--issuer-keyid ID] [--witness FILE]... [--threshold N] [--policy FILE]
//        [--log-mldsa-key FILE] [--json]
//
// DIRECTORY has log.vkey and issuer.pem; if it has log-mldsa.vkey, that key's signature is required
// too. Exits as `lethe certificate verify` does: with 0 if the certificate verifies and its result
// is PASS, 1 if not, 2 if keys or files cannot be used.

import { webcrypto } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { Refused, Unsupported, readKeys, verify } from "./verify.mjs";

globalThis.crypto ??= webcrypto; // Node.js 18

const OPTIONS = {
  keys: { type: "string" },
  "trust-root": { type: "string" },
  model: { type: "string" },
  evidence: { type: "string" },
  "issuer-keyid": { type: "string" },
  witness: { type: "string", multiple: true, default: [] },
  threshold: { type: "string" },
  policy: { type: "string" },
  "log-mldsa-key": { type: "string" },
  json: { type: "boolean", default: false },
};

function bytesOf(path) {
  return path === undefined ? null : new Uint8Array(readFileSync(path));
}

function textOf(path) {
  return new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
}

// The key whose signature is required beside that of log.vkey, null if none is.
function secondKey(values) {
  const kept = values.keys === undefined ? null : join(values.keys, "log-mldsa.vkey");
  const path = values["log-mldsa-key"] ?? (kept !== null && existsSync(kept) ? kept : null);
  return path === null ? null : textOf(path);
}

const HEADINGS = {
  authentic: "AUTHENTIC",
  "policy-not-met": "POLICY NOT MET",
  "other-files": "NOT AUTHENTIC with these files",
  "not-authentic": "NOT AUTHENTIC",
};

// Replaces characters that a terminal would interpret: a file may fake its own verdict.
function plain(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

async function main() {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true });
  const trustRoot = bytesOf(values["trust-root"]);
  if (positionals.length !== 1 || (values.keys === undefined) === (trustRoot === null)) {
    throw new Refused(
      "give one certificate, and --keys with log.vkey and issuer.pem, or --trust-root",
    );
  }
  if (values.policy !== undefined && (values.witness.length || values.threshold !== undefined)) {
    throw new Refused("--policy names witnesses and quorum: leave out the others");
  }
  const keys = await readKeys(
    trustRoot ? null : textOf(join(values.keys, "log.vkey")),
    trustRoot ? null : textOf(join(values.keys, "issuer.pem")),
    values.witness.map(textOf),
    bytesOf(values.policy),
    secondKey(values),
    trustRoot,
  );
  const known = new Set(keys.witnesses.map(({ name }) => name)).size;
  const threshold = Number(values.threshold ?? (values.policy === undefined ? known : 0));
  if (!(Number.isInteger(threshold) && 0 <= threshold && threshold <= known)) {
    throw new Refused("--threshold is a number of the --witness names");
  }
  const verdict = await verify(bytesOf(positionals[0]), keys, {
    issuerKeyid: values["issuer-keyid"] ?? null,
    model: bytesOf(values.model),
    evidence: bytesOf(values.evidence),
    threshold,
  });
  if (values.json) {
    const { result, outcome, steps } = verdict;
    console.log(JSON.stringify({ result, outcome, steps }));
  } else {
    console.log(HEADINGS[verdict.outcome]);
    for (const { number, name, checked, passed, detail } of verdict.steps) {
      console.log(`  ${number}  ${!checked ? "-   " : passed ? "pass" : "FAIL"}  ${name}: ${plain(detail)}`);
    }
  }
  if (verdict.statement === null) return 1;
  const { result } = verdict.statement.predicate;
  if (result === "PASS") return 0;
  console.error("authentic, but its result is not PASS");
  return 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof Refused || error instanceof Unsupported || error.code)) throw error;
  console.error(`Error: ${plain(error.message)}`);
  process.exitCode = 2;
}
