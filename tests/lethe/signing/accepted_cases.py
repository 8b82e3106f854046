"""Requests that must be accepted, each named by what is unusual about it."""

from dataclasses import replace
from hashlib import md5, sha512

from tests.lethe.signing.case_tools import (
    accept,
    add,
    after,
    drafted,
    put,
    with_digest,
    with_parameters,
)
from tests.lethe.signing.signer import (
    BODY,
    NOW,
    P256,
    Draft,
    b64,
    bare_draft,
    sha256_field,
    sign,
)

SHA512 = f"sha-512=:{b64(sha512(BODY).digest())}:"

accept("ed25519", "the profile as it is meant", sign(Draft()))
accept(
    "ecdsa-p256",
    "raw r || s of 64 bytes",
    drafted(key=P256, parameters={**Draft().parameters, "keyid": '"requester-2"'}),
)
accept("alg-given", "alg is optional and matches the key", with_parameters(alg='"ed25519"'))
accept("no-body", "a DELETE covers only method and target", sign(bare_draft()))
accept(
    "empty-body-with-digest",
    "the digest of an empty body is allowed and checked",
    sign(
        replace(
            bare_draft(),
            headers={"content-digest": sha256_field(b"")},
            covered=['"@method"', '"@target-uri"', '"content-digest"'],
        )
    ),
)
accept("sha-512", "SHA-512 alone is enough", with_digest(SHA512))
accept("two-digests", "both digests match", with_digest(f"{sha256_field(BODY)}, {SHA512}"))
accept(
    "unknown-digest-beside",
    "a digest that nobody here computes is ignored beside one that is",
    with_digest(f"md5=:{b64(md5(b'other').digest())}:, {sha256_field(BODY)}"),
)
accept(
    "more-covered",
    "further components may be covered",
    drafted(
        covered=[*Draft().covered, '"idempotency-key"'],
        headers={**Draft().headers, "idempotency-key": '"k1"'},
    ),
)
accept(
    "order-of-components",
    "the sender chooses the order",
    drafted(covered=list(reversed(Draft().covered))),
)
accept(
    "signature-of-a-proxy-beside",
    "a second signature with another tag, in field lines of its own",
    after(
        add("signature-input", 'proxy=("@method");created=1;tag="proxy"'),
        add("signature", "proxy=:AAAA:"),
    ),
)
accept(
    "skew-ahead",
    "created 5 s in the future is a clock",
    with_parameters(created=str(NOW + 5), expires=str(NOW + 300)),
)
accept(
    "skew-behind",
    "expired 5 s ago is a clock",
    with_parameters(created=str(NOW - 100), expires=str(NOW - 5)),
)
accept(
    "window-of-ten-minutes",
    "the longest window",
    with_parameters(created=str(NOW - 300), expires=str(NOW + 300)),
)
accept(
    "spelling-legal",
    "another legal spelling on the wire, the canonical one signed",
    after(
        put(
            "signature-input",
            sign(Draft()).get("signature-input").replace("(", "( ").replace(";", "; "),
        )
    ),
)
