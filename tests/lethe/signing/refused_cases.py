"""Requests that must be refused, each named by its defect."""

import base64
from hashlib import md5, sha256, sha512

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256

from tests.lethe.signing.case_tools import (
    add,
    after,
    drafted,
    drop,
    put,
    refuse,
    set_part,
    with_digest,
    with_parameters,
)
from tests.lethe.signing.signer import (
    BODY,
    NONCE,
    NOW,
    P256,
    STRANGER,
    URI,
    Draft,
    b64,
    bare_draft,
    sha256_field,
    sign,
    signature_base,
)

OTHER_BODY = BODY.replace(b"r7", b"r8")
SIGNED = sign(Draft())
INPUT = SIGNED.get("signature-input")
SECOND = sign(Draft(label="sig2"))

# --- nothing signed, or not for us ------------------------------------------------------
MISSING = "signature-missing"
both = (drop("signature"), drop("signature-input"))
refuse("not-signed", MISSING, "no signature fields", after(*both))
refuse("signature-input-only", MISSING, "no Signature", after(drop("signature")))
refuse("signature-only", MISSING, "no Signature-Input", after(drop("signature-input")))
refuse("wrong-tag", MISSING, "for another service", with_parameters(tag='"another"'))

# --- incomplete -------------------------------------------------------------------------
INCOMPLETE = "signature-incomplete"
for name in ("@method", "@target-uri", "content-type", "content-digest"):
    refuse(
        f"{name.strip('@')}-not-covered",
        INCOMPLETE,
        f"the signature does not cover {name}",
        drafted(covered=[item for item in Draft().covered if item != f'"{name}"']),
    )
for parameter in Draft().parameters:
    refuse(
        f"no-{parameter}",
        INCOMPLETE,
        f"the parameter {parameter} is missing",
        with_parameters(**{parameter: None}),
    )
MEMBER = '"content-digest";key="sha-256"'
refuse(
    "digest-covered-in-part",
    INCOMPLETE,
    "one member of Content-Digest is covered, the field is not",
    drafted(
        covered=[*Draft().covered[:3], MEMBER],
        values={MEMBER: sha256_field(BODY).removeprefix("sha-256=")},
    ),
)
refuse(
    "body-added-to-a-bodyless-request",
    INCOMPLETE,
    "a signed DELETE grows a body on the way",
    after(set_part("body", BODY), request=sign(bare_draft())),
)
refuse(
    "covered-field-not-sent",
    INCOMPLETE,
    "a covered field is stripped on the way",
    after(drop("content-type")),
)
refuse(
    "digest-stripped",
    INCOMPLETE,
    "Content-Digest is stripped on the way",
    after(drop("content-digest")),
)

# --- changed after signing --------------------------------------------------------------
INVALID = "signature-invalid"
MISMATCH = "digest-mismatch"
refuse(
    "body-changed",
    MISMATCH,
    "another record is named",
    after(set_part("body", OTHER_BODY)),
)
refuse("body-removed", MISMATCH, "the body is dropped", after(set_part("body", b"")))
refuse(
    "body-and-digest-changed",
    INVALID,
    "the digest is made to fit the changed body",
    after(set_part("body", OTHER_BODY), put("content-digest", sha256_field(OTHER_BODY))),
)
refuse("method-changed", INVALID, "POST becomes PUT", after(set_part("method", "PUT")))
for part, uri in (
    ("path", "https://ledger.example/v1/models"),
    ("query", f"{URI}?dry=1"),
    ("host", "https://other.example/v1/requests"),
    ("scheme", "http://ledger.example/v1/requests"),
    ("port", "https://ledger.example:8443/v1/requests"),
):
    refuse(
        f"target-{part}-changed",
        INVALID,
        f"the {part} of the target differs",
        after(set_part("uri", uri)),
    )
refuse(
    "content-type-changed",
    INVALID,
    "JSON becomes text",
    after(put("content-type", "text/plain")),
)
refuse(
    "digest-line-added",
    INVALID,
    "a second Content-Digest line joins the first",
    after(add("content-digest", f"sha-512=:{b64(sha512(BODY).digest())}:")),
)
refuse(
    "expiry-extended",
    INVALID,
    "a parameter is changed after signing",
    after(put("signature-input", INPUT.replace(str(NOW + 290), str(NOW + 300)))),
)
tampered = bytearray(base64.b64decode(SIGNED.get("signature")[6:-1]))
tampered[0] ^= 1
refuse(
    "signature-tampered",
    INVALID,
    "one bit of the signature is flipped",
    after(put("signature", f"sig1=:{b64(tampered)}:")),
)
refuse(
    "spelling-signed-as-sent",
    INVALID,
    "the base holds the spelling sent, not the canonical one (RFC 9421 section 2.5)",
    sign(Draft(), f"( {' '.join(Draft().covered)} ){Draft().parameter_text()}"),
)

# --- the wrong key ----------------------------------------------------------------------
refuse(
    "signed-by-another-key",
    INVALID,
    "the keyid is registered, its key did not sign",
    drafted(key=STRANGER),
)
refuse(
    "key-of-another-kind",
    INVALID,
    "an Ed25519 signature under the keyid of a P-256 key",
    with_parameters(keyid='"requester-2"'),
)
refuse(
    "alg-of-another-key",
    INVALID,
    "alg contradicts the registered key",
    with_parameters(alg='"ecdsa-p256-sha256"'),
)
refuse("key-unknown", "key-unknown", "nobody registered it", with_parameters(keyid='"nobody"'))
ecdsa_draft = Draft(key=P256, parameters={**Draft().parameters, "keyid": '"requester-2"'})
ecdsa_input = sign(ecdsa_draft).get("signature-input").removeprefix("sig1=")
der = P256.sign(
    signature_base(ecdsa_draft, ecdsa_input), ECDSA(SHA256(), deterministic_signing=True)
)
refuse(
    "ecdsa-der",
    "signature-malformed",
    "DER in place of r || s",
    after(put("signature", f"sig1=:{b64(der)}:"), request=sign(ecdsa_draft)),
)
refuse(
    "ecdsa-zero",
    INVALID,
    "r = s = 0, which verified for every message in Java (CVE-2022-21449)",
    after(put("signature", f"sig1=:{b64(bytes(64))}:"), request=sign(ecdsa_draft)),
)

# --- time -------------------------------------------------------------------------------
for name, want, created, expires in (
    ("expired", "signature-expired", -300, -6),
    ("not-yet-valid", "signature-not-yet-valid", 6, 300),
    ("window-too-long", "signature-window", -10, 591),
    ("window-empty", "signature-window", 0, 0),
    ("window-backwards", "signature-window", 10, -10),
    ("before-history", "signature-expired", -997 * 10**12, -997 * 10**12 + 500),
    ("year-28-million", "signature-not-yet-valid", 9 * 10**14, 9 * 10**14 + 1),
):
    refuse(
        name,
        want,
        f"created {created} s, expires {expires} s from the time of receipt",
        with_parameters(created=str(NOW + created), expires=str(NOW + expires)),
    )

# --- digests ----------------------------------------------------------------------------
for name, value, desc in (
    ("digest-md5-only", f"md5=:{b64(md5(BODY).digest())}:", "no digest is computed here"),
    (
        "digest-one-of-two-wrong",
        f"{sha256_field(BODY)}, sha-512=:{b64(sha512(b'').digest())}:",
        "SHA-256 matches, SHA-512 does not",
    ),
    ("digest-truncated", f"sha-256=:{b64(sha256(BODY).digest()[:16])}:", "half a digest"),
    ("digest-not-bytes", 'sha-256="abc"', "a string in place of a byte sequence"),
    ("digest-hexadecimal", f"sha-256={'0' * 64}", "hexadecimal in place of bytes"),
    ("digest-twice", f"{sha256_field(b'')}, {sha256_field(BODY)}", "one name, two values"),
    ("digest-a-list", f"sha-256=({sha256_field(BODY)[8:]})", "an inner list"),
):
    refuse(name, MISMATCH, desc, with_digest(value))

# --- malformed --------------------------------------------------------------------------
MALFORMED = "signature-malformed"
refuse(
    "two-signatures",
    MALFORMED,
    "two signatures with our tag: who is asking?",
    after(
        add("signature-input", SECOND.get("signature-input")),
        add("signature", SECOND.get("signature")),
    ),
)
refuse(
    "label-twice",
    MALFORMED,
    "the same label in two field lines",
    after(add("signature-input", INPUT)),
)
refuse(
    "labels-differ",
    MALFORMED,
    "Signature under another label",
    after(put("signature", SECOND.get("signature"))),
)
refuse(
    "content-type-twice",
    MALFORMED,
    "Content-Type is sent twice",
    after(add("content-type", "application/json")),
)
refuse(
    "signature-oversized",
    MALFORMED,
    "more than 8 KiB of signatures, of which one would be good",
    after(
        add("signature-input", 'proxy=("@method");created=1;tag="proxy"'),
        add("signature", f"proxy=:{'A' * 8192}:"),
    ),
)
refuse("method-lowercase", MALFORMED, "methods are case-sensitive", drafted(method="post"))
refuse("target-relative", MALFORMED, "no absolute URI", drafted(uri="/v1/requests"))
for name, parameter, value, desc in (
    ("nonce-too-short", "nonce", '"fifteen-letters"', "15 characters"),
    ("nonce-too-long", "nonce", f'"{"n" * 129}"', "129 characters"),
    ("nonce-with-a-space", "nonce", '"sixteen letters!"', "a space is not visible"),
    ("nonce-a-token", "nonce", "aTokenOfSixteenLetters", "a token, not a string"),
    ("nonce-bytes", "nonce", f":{NONCE}aa:", "bytes, not a string"),
    ("nonce-twice", "nonce", f'"{NONCE}";nonce="{NONCE}"', "two nonces"),
    ("keyid-empty", "keyid", '""', "an empty keyid"),
    ("keyid-too-long", "keyid", f'"{"k" * 129}"', "129 characters"),
    ("created-a-string", "created", f'"{NOW}"', "a string, not an integer"),
    ("created-a-decimal", "created", f"{NOW}.0", "a decimal, not an integer"),
    ("created-a-date", "created", f"@{NOW}", "a date, not an integer"),
    ("created-a-flag", "created", "?1", "a boolean, not an integer"),
    ("alg-a-token", "alg", "ed25519", "a token, not a string"),
    ("parameter-unknown", "subject", '"me"', "a parameter of no meaning"),
):
    refuse(name, MALFORMED, desc, with_parameters(**{parameter: value}))
for name, component, value, desc in (
    ("component-twice", '"@method"', "POST", "a component covered twice"),
    ("component-uppercase", '"@METHOD"', "POST", "names are lowercase"),
    ("component-unknown", '"@weather"', "fair", "an unknown derivation"),
    ("component-a-token", "tag", "", "a token, not a string"),
    ("component-of-a-response", '"@method";req', "POST", "of a response's request"),
):
    refuse(
        name,
        MALFORMED,
        desc,
        drafted(covered=[*Draft().covered, component], values={component: value}),
    )
for name, header, value, desc in (
    ("signature-too-short", "signature", f"sig1=:{b64(bytes(63))}:", "63 bytes"),
    ("signature-too-long", "signature", f"sig1=:{b64(bytes(65))}:", "65 bytes"),
    ("signature-empty", "signature", "sig1=::", "no bytes"),
    ("signature-a-string", "signature", 'sig1="abc"', "a string, not bytes"),
    ("signature-a-list", "signature", f"sig1=(:{b64(bytes(64))}:)", "an inner list"),
    ("signature-not-base64", "signature", "sig1=:%%%%:", "not base64"),
    ("signature-not-ascii", "signature", "sig1=:\u00e9:", "a byte above 127"),
    ("input-not-a-list", "signature-input", 'sig1="@method"', "an item"),
    ("input-cut-off", "signature-input", 'sig1=("@method"', "no closing bracket"),
    ("input-old-draft", "signature-input", 'keyId="a",headers="date"', "an old draft"),
):
    refuse(name, MALFORMED, desc, after(put(header, value)))
