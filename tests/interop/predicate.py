"""A verifier of erasure certificates, written from docs/predicate.md alone: nothing of Lethe."""

import base64
import hashlib
import hmac
import json
import re
from datetime import datetime
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

TYPE = "https://w3id.org/lethe-ledger/erasure-certificate/v1"
TAG = b"lethe/retained-set/v2\0"
# fmt: off
STRING, FLAG, COUNT, HASH, BLOB, TIME, UUID = ["string", "flag", "count", "hash", "blob", "time", "uuid"]
# A dict is an object of these members ("*": any names), a list an array, a set a choice, a
# tuple an array of exactly these; ("?", T) is T or null.
DIGEST = {"sha256": "[0-9a-f]{64}"}
STATE = {"root": HASH, "count": COUNT}
CHECK = {"number": COUNT, "name": STRING, "quantity": STRING, "value": STRING, "interval": ("?", (STRING, STRING)), "threshold": ("?", STRING), "passed": FLAG}
RESULT = {"PASS", "FAIL", "INCONCLUSIVE"}
VERIFIER = {"id": STRING, "version": STRING, "codeDigest": DIGEST}
PROOF = {"logIndex": COUNT, "rootHash": HASH, "treeSize": COUNT, "hashes": [HASH], "checkpoint": {"envelope": STRING}}
ENTRY = {"logIndex": COUNT, "logId": {"keyId": HASH}, "kindVersion": {"kind": {"hashedrekord"}, "version": {"0.0.2"}}, "integratedTime": {"0"}, "inclusionProof": PROOF, "canonicalizedBody": BLOB}
BUNDLE = {"mediaType": {"application/vnd.dev.sigstore.bundle.v0.3+json"}, "verificationMaterial": {"publicKey": {"hint": STRING}, "tlogEntries": (ENTRY,)},
          "dsseEnvelope": {"payload": BLOB, "payloadType": {"application/vnd.in-toto+json"}, "signatures": ({"keyid": STRING, "sig": BLOB},)}}
CLASSES = {"exact", "exact-retrained", "retrained", "numerically-exact", "certified-approximate", "empirical-approximate", "none"}
PREDICATE = {
    "certificateId": UUID, "requestRef": UUID, "requestLogIndex": COUNT, "requestCommitment": HASH, "completedAt": TIME, "supersedes": ("?", UUID),
    "model": {"ref": STRING, "versionBefore": {"digest": DIGEST}, "versionAfter": {"digest": DIGEST}},
    "scope": {"level": {"sample", "client", "subject"}, "records": COUNT, "recordsRoot": HASH},
    "retainedSet": {"before": STATE, "after": STATE, "removalProof": DIGEST},
    "method": {"id": STRING, "version": STRING, "parameters": {"*": STRING}, "codeDigest": DIGEST, "environment": {"*": STRING}},
    "guarantee": {"class": CLASSES, "statement": STRING, "bounds": {"*": STRING}},
    "checks": [CHECK], "result": RESULT, "purged": {"artifacts": [DIGEST], "featureRows": COUNT, "keysDestroyed": COUNT},
    "evidence": [{"name": STRING, "digest": DIGEST, "mediaType": STRING}], "verifier": VERIFIER,
}
STATEMENT = {"_type": {"https://in-toto.io/Statement/v1"}, "subject": [{"name": STRING, "digest": DIGEST}], "predicateType": {TYPE}, "predicate": PREDICATE}
STEP = {"bit": COUNT, "count": COUNT, "hash": HASH}
RECORD = {"record": STRING, "salt": HASH, "commitment": HASH, "path": {"content": HASH, "steps": [STEP]}}
EVIDENCE = {"apiVersion": {"2"}, "kind": {"erasure-evidence"}, "removal": {"before": STATE, "after": STATE, "records": [RECORD], "recordsRoot": HASH},
            "report": {"verifier": VERIFIER, "result": RESULT, "checks": [CHECK], "details": {"*": STRING}}, "statistics": {"*": DIGEST}}
ATTEMPTS = {"attempts": [{"number": ("?", COUNT), "method": STRING, "result": {"FAIL", "INCONCLUSIVE", "NONE"}, "reason": ("?", STRING), "checks": [CHECK]}]}
# fmt: on


def need(truth: object) -> None:
    if not truth:
        raise ValueError("this step does not pass")


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def unb64(text: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    need(base64.b64encode(data).decode() == text)
    return data


def typed(kind: Any, value: Any) -> None:
    """Return if a JSON value is of a type (section "Types")."""
    if isinstance(kind, set):
        need(isinstance(value, str) and value in kind)
    elif isinstance(kind, list):
        need(isinstance(value, list))
        for one in value:
            typed(kind[0], one)
    elif isinstance(kind, tuple) and kind[0] == "?":
        if value is not None:
            typed(kind[1], value)
    elif isinstance(kind, tuple):
        need(isinstance(value, list) and len(value) == len(kind))
        for part, one in zip(kind, value, strict=True):
            typed(part, one)
    elif isinstance(kind, dict):
        need(
            isinstance(value, dict)
            and ("*" in kind or value.keys() == kind.keys())
            and "" not in value
        )
        for name, one in value.items():
            typed(kind.get("*", kind.get(name)), one)
    elif kind == FLAG:
        need(isinstance(value, bool))
    else:
        need(isinstance(value, str) and value)
        forms = {
            COUNT: r"0|[1-9][0-9]{0,18}",
            UUID: r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            TIME: r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
            STRING: r"(?s).*",
            HASH: "(?s).*",
            BLOB: "(?s).*",
        }
        need(re.fullmatch(forms.get(kind, kind), value))
        need(kind != COUNT or int(value) < 2**63)
        need(kind != TIME or datetime.fromisoformat(value))
        need(kind not in (HASH, BLOB) or len(unb64(value)) == 32 or kind == BLOB)


def read(kind: Any, data: bytes) -> Any:
    value = json.loads(data)
    need(rfc8785.dumps(value) == data)
    typed(kind, value)
    return value


def inclusion(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Return the root that a leaf hash leads to: RFC 9162 section 2.1.3.2."""
    need(index < size)
    fn, sn, r = index, size - 1, leaf
    for p in path:
        need(sn)
        if fn & 1 or fn == sn:
            r = sha(b"\1", p, r)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = sha(b"\1", r, p)
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0)
    return r


def tree(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return sha(b"\0", leaves[0])
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return sha(b"\1", tree(leaves[:k]), tree(leaves[k:]))


def leave(record: Any) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """Return the set that a record's path leads to, and the one that its leaf leaves behind."""
    own, n, last = unb64(record["commitment"]), 1, 256
    held, without = sha(b"\0", TAG, own, unb64(record["path"]["content"])), sha(b"\2", TAG)
    for step in record["path"]["steps"]:
        bit, count, other = int(step["bit"]), int(step["count"]), unb64(step["hash"])
        need(bit < last and count >= 1 and n + count < 2**63)
        right = own[bit // 8] >> 7 - bit % 8 & 1

        def node(
            m: int, x: bytes, bit: int = bit, other: bytes = other, right: int = right
        ) -> bytes:
            pair = (other, x) if right else (x, other)
            return sha(b"\1", TAG, bit.to_bytes(2, "big"), m.to_bytes(8, "big"), *pair)

        without = other if n == 1 else node(n + count - 1, without)
        held, n, last = node(n + count, held), n + count, bit
    return (held, n), (without, n - 1)


def note(envelope: str, vkey: str) -> tuple[bytes, list[str]]:
    """Return the log id of a vkey, and the lines of the checkpoint that it signed."""
    name, key_id, encoded = vkey.split("+", 2)
    key = unb64(encoded)
    log_id = sha(name.encode(), b"\n", key)
    need(key[:1] == b"\1" and key_id == log_id[:4].hex())
    need(len(envelope.encode()) <= 10**6 and not re.search(r"[\x00-\x09\x0b-\x1f]", envelope))
    text, _, tail = envelope.rpartition("\n\n")
    need(text and tail.endswith("\n") and len(lines := tail[:-1].split("\n")) <= 100)
    signed = 0
    for line in lines:
        match = re.fullmatch(r"— ([^\s+]+) (\S+)", line)
        need(match and len(data := unb64(match[2])) > 4)
        if match and (match[1], data[:4]) == (name, log_id[:4]):
            public = ed25519.Ed25519PublicKey.from_public_bytes(key[1:])
            public.verify(data[4:], f"{text}\n".encode())
            signed += 1
    origin, size, root, *rest = text.split("\n")
    need(signed == 1 and origin == name and all(rest))
    return log_id, [size, root]


def statement(payload: bytes, index: int) -> Any:
    """Step 7."""
    said = read(STATEMENT, payload)
    predicate = said["predicate"]
    model, checks = predicate["model"], predicate["checks"]
    before, after = (model[f"version{one}"]["digest"]["sha256"] for one in ("Before", "After"))
    about = [one["digest"]["sha256"] for one in said["subject"]]
    need(len(set(about)) == len(about) and after in about)
    need(before == after or before not in about)
    need(int(predicate["scope"]["records"]) >= 1)
    need([one["number"] for one in checks] == [str(n + 1) for n in range(len(checks))])
    need(predicate["result"] != "PASS" or (checks and all(one["passed"] for one in checks)))
    digests = [one["digest"] for one in predicate["evidence"]]
    need(predicate["retainedSet"]["removalProof"] in digests)
    need(int(predicate["requestLogIndex"]) < index)
    parameters = predicate["method"]["parameters"]
    told = parameters.get("escalation.attempts")
    attempts = [] if told is None else read(ATTEMPTS, told.encode())["attempts"]
    numbers = [one["number"] for one in attempts if one["number"] is not None]
    need(numbers == [str(n + 1) for n in range(len(numbers))])
    need(parameters.get("attempt") == (None if told is None else str(len(numbers) + 1)))
    for one in attempts:
        judged = re.fullmatch(r"(?s)(PASS|FAIL|INCONCLUSIVE) \(.*\)", one["reason"] or "")
        if one["result"] == "NONE":
            need(one["reason"] and not one["checks"] and not judged)
        else:
            need(one["number"] is not None and one["reason"] is None)
            need(not all(check["passed"] for check in one["checks"]))
    return said


def removed(said: Any, sets: Any, scope: Any) -> None:
    """Check the removal (items 1 to 4) against a certificate's sets and scope."""
    records = said["records"]
    need(all(said[one] == sets[one] for one in ("before", "after")))
    need(len(records) == int(scope["records"]) == len({one["record"] for one in records}))
    commitments = [unb64(one["commitment"]) for one in records]
    need(commitments and commitments == sorted(set(commitments)))
    need(unb64(said["recordsRoot"]) == unb64(scope["recordsRoot"]) == tree(commitments))
    before, after = (
        (unb64(sets[n]["root"]), int(sets[n]["count"])) for n in ("before", "after")
    )
    need(after[1] == before[1] - len(records))
    for record, own in zip(records, commitments, strict=True):
        need(hmac.digest(unb64(record["salt"]), record["record"].encode(), "sha256") == own)
        held, without = leave(record)
        need(held == before)
        before = without
    need(before == after)


def evidence_of(evidence: bytes, predicate: Any) -> None:
    """Step 9."""
    sets = predicate["retainedSet"]
    need(sha(evidence).hex() == sets["removalProof"]["sha256"])
    file = read(EVIDENCE, evidence)
    removed(file["removal"], sets, predicate["scope"])
    need(all(file["report"][one] == predicate[one] for one in ("verifier", "result", "checks")))


def verify(
    file: bytes,
    vkey: str,
    pem: bytes,
    model: bytes | None = None,
    evidence: bytes | None = None,
) -> int:
    """Return the number of the step that fails, 0 if none does."""
    step = 1
    try:
        need(len(file) <= 1 << 20)
        bundle = read(BUNDLE, file)
        (entry,), envelope = (
            bundle["verificationMaterial"]["tlogEntries"],
            bundle["dsseEnvelope"],
        )
        proof, signature = entry["inclusionProof"], envelope["signatures"][0]
        need(bundle["verificationMaterial"]["publicKey"]["hint"] == signature["keyid"])
        need(entry["logIndex"] == proof["logIndex"])
        step = 2
        payload, leaf = unb64(envelope["payload"]), unb64(entry["canonicalizedBody"])
        kind = envelope["payloadType"].encode()
        signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
        issuer = serialization.load_pem_public_key(pem)
        spki = issuer.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        b64 = {
            name: base64.b64encode(data).decode()
            for name, data in (("digest", sha(signed)), ("key", spki))
        }
        verifier = {
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "publicKey": {"rawBytes": b64["key"]},
        }
        spec = {
            "data": {"algorithm": "SHA2_256", "digest": b64["digest"]},
            "signature": {"content": signature["sig"], "verifier": verifier},
        }
        need(
            leaf
            == rfc8785.dumps(
                {
                    "apiVersion": "0.0.2",
                    "kind": "hashedrekord",
                    "spec": {"hashedRekordV002": spec},
                }
            )
        )
        step = 3
        need(
            isinstance(issuer, ec.EllipticCurvePublicKey)
            and isinstance(issuer.curve, ec.SECP256R1)
        )
        issuer.verify(unb64(signature["sig"]), signed, ec.ECDSA(hashes.SHA256()))  # type: ignore[union-attr, call-arg, arg-type]
        step = 4
        index, size = int(proof["logIndex"]), int(proof["treeSize"])
        need(
            inclusion(sha(b"\0", leaf), index, size, [unb64(one) for one in proof["hashes"]])
            == unb64(proof["rootHash"])
        )
        step = 5  # and 6: no witness is given
        log_id, head = note(proof["checkpoint"]["envelope"], vkey)
        need(unb64(entry["logId"]["keyId"]) == log_id)
        need(head == [proof["treeSize"], proof["rootHash"]])
        step = 7
        said = statement(payload, index)
        step = 8
        need(
            model is None
            or sha(model).hex() in [one["digest"]["sha256"] for one in said["subject"]]
        )
        step = 9
        if evidence is not None:
            evidence_of(evidence, said["predicate"])
    except (ValueError, InvalidSignature, RecursionError, rfc8785.CanonicalizationError):
        return step
    return 0
