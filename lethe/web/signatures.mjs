// Ed25519 and ECDSA P-256 by WebCrypto.

import { concat, equal, fromBase64 } from "./bytes.mjs";
import { Refused } from "./shape.mjs";

// The browser lacks a required algorithm. This is not a verdict on the certificate.
export class Unsupported extends Error {}

function subtle() {
  const found = globalThis.crypto?.subtle;
  if (found === undefined) {
    throw new Unsupported(
      "This browser offers no WebCrypto here. Open the page over https or from a file.",
    );
  }
  return found;
}

export async function verifyEd25519(raw, signature, message) {
  let key;
  try {
    key = await subtle().importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
  } catch (error) {
    if (error.name === "NotSupportedError") {
      throw new Unsupported("This browser cannot check Ed25519 signatures: use a newer one.");
    }
    if (error instanceof Unsupported) throw error;
    return false; // not a point of the curve
  }
  return subtle().verify({ name: "Ed25519" }, key, signature, message);
}

// SubjectPublicKeyInfo of a P-256 key (RFC 5480) before its uncompressed point.
const SPKI = Uint8Array.from([
  0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
  0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
]);

// The SPKI (DER) of an ECDSA P-256 key in PEM; throws Refused.
export async function readIssuer(pem) {
  if (pem.includes("PRIVATE KEY")) {
    throw new Refused(
      "issuer.pem holds a private key: tell the operator, since whoever saw it can issue, " +
        "and ask for the public half of another",
    );
  }
  const found = /-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----/.exec(pem);
  const der = found && fromBase64(found[1].replace(/\s/g, ""));
  if (!der) {
    throw new Refused(
      "issuer.pem is not a public key in PEM: get it again from the operator, over a " +
        "channel you trust",
    );
  }
  if (!(await isP256(der))) {
    throw new Refused(
      "issuer.pem is not an ECDSA P-256 key, and issuers use no other: get it again from " +
        "the operator, over a channel you trust",
    );
  }
  return der;
}

// Whether bytes are the canonical SPKI (DER) of a P-256 key.
export async function isP256(der) {
  const fits = der.length === 91 && equal(der.subarray(0, SPKI.length), SPKI);
  return fits && (await importP256(der)) !== null;
}

async function importP256(spki) {
  const algorithm = { name: "ECDSA", namedCurve: "P-256" };
  try {
    return await subtle().importKey("spki", spki, algorithm, false, ["verify"]);
  } catch (error) {
    if (error instanceof Unsupported) throw error;
    return null; // not a point of the curve
  }
}

export async function verifyP256(spki, der, message) {
  const signature = fixed(der);
  if (signature === null) return false;
  const algorithm = { name: "ECDSA", hash: "SHA-256" };
  return subtle().verify(algorithm, await importP256(spki), signature, message);
}

// r and s of 32 bytes each, from ECDSA-Sig-Value in DER (RFC 3279); null for other bytes.
function fixed(der) {
  if (der.length < 8 || der[0] !== 0x30 || der[1] !== der.length - 2) return null;
  const numbers = [];
  let at = 2;
  while (at < der.length) {
    const size = der[at + 1];
    const number = der.subarray(at + 2, at + 2 + size);
    if (der[at] !== 0x02 || !size || number.length !== size) return null;
    if (number[0] & 0x80 || (number[0] === 0 && size > 1 && !(number[1] & 0x80))) return null;
    const digits = number[0] === 0 ? number.subarray(1) : number;
    if (digits.length > 32) return null;
    numbers.push(concat(new Uint8Array(32 - digits.length), digits));
    at += 2 + size;
  }
  return numbers.length === 2 ? concat(...numbers) : null;
}
