"""Strangers' verifiers accept what Lethe issues and refuse what Lethe refuses."""

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

from lethe import canonical
from lethe.canonical import format_base64
from lethe.log.note import sign_note
from lethe.signing.keys import public_pem
from tests.interop import sigstore_js
from tests.lethe.certificates.build import KEYID, Certified, Office, issuer_key, log_signer

Change = Callable[[dict[str, Any]], None]


def entry(bundle: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = bundle["verificationMaterial"]["tlogEntries"][0]
    return found


def tamper_payload(bundle: dict[str, Any]) -> None:
    envelope = bundle["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"])
    assert b'"records":"2"' in payload
    envelope["payload"] = format_base64(payload.replace(b'"records":"2"', b'"records":"3"'))


def tamper_signature(bundle: dict[str, Any]) -> None:
    signature = bundle["dsseEnvelope"]["signatures"][0]
    other = bytearray(base64.b64decode(signature["sig"]))
    other[-1] ^= 1
    signature["sig"] = format_base64(bytes(other))


def tamper_proof(bundle: dict[str, Any]) -> None:
    hashes = entry(bundle)["inclusionProof"]["hashes"]
    assert len(hashes) == 3
    hashes[1], hashes[2] = hashes[2], hashes[1]


def shorten_proof(bundle: dict[str, Any]) -> None:
    entry(bundle)["inclusionProof"]["hashes"].pop()


def tamper_checkpoint(bundle: dict[str, Any]) -> None:
    checkpoint = entry(bundle)["inclusionProof"]["checkpoint"]
    assert "\n7\n" in checkpoint["envelope"]
    checkpoint["envelope"] = checkpoint["envelope"].replace("\n7\n", "\n8\n")


def resign_checkpoint(bundle: dict[str, Any]) -> None:
    checkpoint = entry(bundle)["inclusionProof"]["checkpoint"]
    text = checkpoint["envelope"].rpartition("\n\n")[0] + "\n"
    checkpoint["envelope"] = sign_note(text, log_signer(seed=b"forger"))


def tamper_leaf(bundle: dict[str, Any]) -> None:
    body = json.loads(base64.b64decode(entry(bundle)["canonicalizedBody"]))
    body["spec"]["hashedRekordV002"]["data"]["digest"] = format_base64(bytes(32))
    entry(bundle)["canonicalizedBody"] = format_base64(canonical.encode(body))


# What was changed, the code of @sigstore/verify's refusal, the number of Lethe's step.
TAMPERED: dict[str, tuple[Change, str, int]] = {
    "payload": (tamper_payload, "TLOG_BODY_ERROR", 2),
    "signature": (tamper_signature, "TLOG_BODY_ERROR", 2),
    "proof": (tamper_proof, "TLOG_INCLUSION_PROOF_ERROR", 4),
    "proof too short": (shorten_proof, "TLOG_INCLUSION_PROOF_ERROR", 4),
    "checkpoint": (tamper_checkpoint, "TLOG_INCLUSION_PROOF_ERROR", 5),
    "checkpoint of another key": (resign_checkpoint, "TLOG_INCLUSION_PROOF_ERROR", 5),
    "leaf": (tamper_leaf, "TLOG_INCLUSION_PROOF_ERROR", 2),
}


@pytest.fixture(scope="module")
def certified() -> Certified:
    return Office().certify()


@pytest.fixture(scope="module")
def written(certified: Certified, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("interop")
    certified.write(directory)
    return directory


def npm(written: Path, bundle: bytes) -> tuple[bool, str]:
    path = written / "case.sigstore.json"
    path.write_bytes(bundle)
    return sigstore_js.verify(path, written / "keys/log.vkey", written / "keys/issuer.pem")


def test_both_verifiers_accept_a_genuine_certificate(
    certified: Certified, written: Path
) -> None:
    assert npm(written, certified.bundle) == (True, "")
    assert certified.verify().result == "PASS"


@pytest.mark.parametrize("leaf_only", [True, False], ids=["alone in the log", "among many"])
def test_both_accept_any_place_in_the_log(written: Path, leaf_only: bool) -> None:
    office = Office()
    if leaf_only:
        office.log = type(office.log)(office.log.signer)
    else:
        for number in range(250):
            office.log.append(b"%d" % number)
    payload = base64.b64decode(json.loads(Office().certify().bundle)["dsseEnvelope"]["payload"])
    bundle = office.seal(payload, later=0 if leaf_only else 40)
    assert npm(written, bundle) == (True, "")


def test_a_witness_line_disturbs_neither_verifier(certified: Certified, written: Path) -> None:
    witness = log_signer("witness.example", b"witness")
    bundle = json.loads(certified.bundle)
    checkpoint = entry(bundle)["inclusionProof"]["checkpoint"]
    text = checkpoint["envelope"].rpartition("\n\n")[0] + "\n"
    line = sign_note(text, witness).removeprefix(text + "\n")
    checkpoint["envelope"] += line
    data = canonical.encode(bundle)
    assert npm(written, data) == (True, "")
    assert certified.verify(data, witnesses=[witness.verifier], threshold=1).result == "PASS"


@pytest.mark.parametrize("name", TAMPERED)
def test_both_verifiers_refuse_a_tampered_certificate(
    certified: Certified, written: Path, name: str
) -> None:
    change, code, number = TAMPERED[name]
    bundle = json.loads(certified.bundle)
    change(bundle)
    data = canonical.encode(bundle)
    accepted, reason = npm(written, data)
    assert not accepted
    assert reason.startswith(f"{code}: "), reason
    failed = certified.verify(data).failed
    assert failed is not None
    assert failed.number == number


@pytest.mark.parametrize("other", ["issuer.pem", "log.vkey"])
def test_both_verifiers_refuse_under_another_key(
    certified: Certified, written: Path, tmp_path: Path, other: str
) -> None:
    keys = {name: written / "keys" / name for name in ("issuer.pem", "log.vkey")}
    keys[other] = tmp_path / other
    stranger = issuer_key(7).public_key()
    signer = log_signer(seed=b"stranger").verifier
    keys[other].write_text(public_pem(stranger) if other == "issuer.pem" else signer.vkey)
    (path,) = (written / "certificates").iterdir()
    accepted, reason = sigstore_js.verify(path, keys["log.vkey"], keys["issuer.pem"])
    assert not accepted
    assert reason.split(":")[0] in {"SIGNATURE_ERROR", "TLOG_INCLUSION_PROOF_ERROR"}
    if other == "issuer.pem":
        assert certified.verify(issuer=stranger).result == "FAIL"
    else:
        assert certified.verify(log=signer).result == "FAIL"


def test_a_missing_node_fails_and_names_the_remedy(
    certified: Certified, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(written, certified.bundle)  # the packages are there already
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RuntimeError, match="install Node"):
        npm(written, certified.bundle)


def test_securesystemslib_accepts_the_envelope(certified: Certified) -> None:
    key = SSlibKey.from_crypto(certified.issuer, keyid=KEYID)
    envelope = Envelope.from_dict(json.loads(certified.bundle)["dsseEnvelope"])
    assert envelope.verify([key], 1) == {KEYID: key}


@pytest.mark.parametrize("change", [tamper_payload, tamper_signature])
def test_securesystemslib_refuses_a_tampered_envelope(
    certified: Certified, change: Change
) -> None:
    key = SSlibKey.from_crypto(certified.issuer, keyid=KEYID)
    bundle = json.loads(certified.bundle)
    change(bundle)
    envelope = Envelope.from_dict(copy.deepcopy(bundle["dsseEnvelope"]))
    with pytest.raises(VerificationError):
        envelope.verify([key], 1)
