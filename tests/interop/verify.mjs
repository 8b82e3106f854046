// Verifies certificates with the unmodified @sigstore/verify, trusting two key files only.
//
//   node verify.mjs LOG.VKEY ISSUER.PEM BUNDLE...
//
// Prints one JSON line for each bundle: {"ok": true|false, "reason": "..."}. Exits with 0
// whenever each bundle got a verdict; with 1 when the keys cannot be used.
import { createHash, createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";

import { bundleFromJSON } from "@sigstore/bundle";
import { TrustedRoot } from "@sigstore/protobuf-specs";
import { toSignedEntity, toTrustMaterial, Verifier } from "@sigstore/verify";

const OPTIONS = { tlogThreshold: 1, ctlogThreshold: 0, timestampThreshold: 0 };
const SPKI_ED25519 = Buffer.from("302a300506032b6570032100", "hex"); // RFC 8410, before the key

// C2SP signed-note vkey: name+hex key id+base64(type || key); type 01 is Ed25519.
function readVkey(path) {
  const [name, keyId, ...rest] = readFileSync(path, "utf8").trimEnd().split("+");
  const data = Buffer.from(rest.join("+"), "base64");
  const logId = createHash("sha256").update(`${name}\n`).update(data).digest();
  if (data.length !== 33 || data[0] !== 1 || logId.toString("hex", 0, 4) !== keyId) {
    throw new Error("not an Ed25519 verifier key");
  }
  return { name, logId, spki: Buffer.concat([SPKI_ED25519, data.subarray(1)]) };
}

function readIssuer(path) {
  const key = createPublicKey(readFileSync(path));
  return key.export({ type: "spki", format: "der" });
}

function trust(log, issuer) {
  const root = TrustedRoot.fromJSON({
    mediaType: "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
    tlogs: [
      {
        // The verifier accepts a checkpoint line if the base URL contains its name.
        baseUrl: `https://${log.name}`,
        hashAlgorithm: "SHA2_256",
        publicKey: {
          rawBytes: log.spki.toString("base64"),
          keyDetails: "PKIX_ED25519",
          validFor: { start: "1970-01-01T00:00:00Z" },
        },
        logId: { keyId: log.logId.toString("base64") },
      },
    ],
    certificateAuthorities: [],
    ctlogs: [],
    timestampAuthorities: [],
  });
  // The key file does not name its key: the hint picks nothing, this key is the only one.
  const publicKey = createPublicKey({ key: issuer, format: "der", type: "spki" });
  return toTrustMaterial(root, () => ({ publicKey, validFor: () => true }));
}

const [vkeyPath, issuerPath, ...bundles] = process.argv.slice(2);
const verifier = new Verifier(trust(readVkey(vkeyPath), readIssuer(issuerPath)), OPTIONS);
for (const path of bundles) {
  let verdict = { ok: true, reason: "" };
  try {
    const bundle = bundleFromJSON(JSON.parse(readFileSync(path, "utf8")));
    verifier.verify(toSignedEntity(bundle));
  } catch (error) {
    verdict = { ok: false, reason: `${error.code ?? error.name}: ${error.message}` };
  }
  console.log(JSON.stringify(verdict));
}
