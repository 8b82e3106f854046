"""A receipt proves its own request in its own log, and no lie passes for it."""

import base64
import json
from dataclasses import replace
from hashlib import sha256

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.client import calls
from lethe.client.answers import Receipt, parse_receipt
from lethe.client.errors import ReceiptError
from lethe.client.receipts import verify_receipt
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.entries import event_leaf
from lethe.log.note import NoteSigner
from tests.lethe.client.service import SIGNER, FakeService, Seen
from tests.lethe.log import oracle

STRANGER = NoteSigner(SIGNER.name, Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32))


@pytest.fixture
def service() -> FakeService:
    return FakeService()


def accept(service: FakeService) -> Receipt:
    answer = service.accept({"model": "digits", "scope": {}})
    return parse_receipt(httpx2.Response(202, content=answer.body))


def with_proof(receipt: Receipt, **changes: object) -> Receipt:
    return replace(receipt, receipt=replace(receipt.receipt, **changes))  # type: ignore[arg-type]


def test_receipts_of_a_growing_log_verify(service: FakeService) -> None:
    for _ in range(9):
        verify_receipt(accept(service), SIGNER.verifier)


def test_the_log_key_matters(service: FakeService) -> None:
    with pytest.raises(ReceiptError, match="does not hold"):
        verify_receipt(accept(service), STRANGER.verifier)


def test_a_receipt_of_another_request_is_not_this_one(service: FakeService) -> None:
    mine, other = accept(service), accept(service)
    with pytest.raises(ReceiptError, match="another entry"):
        verify_receipt(replace(mine, receipt=other.receipt), SIGNER.verifier)


def test_another_event_of_the_same_request_is_not_its_reception(service: FakeService) -> None:
    receipt = accept(service)
    day = receipt.due_at.date()
    leaf = event_leaf("request.refused", receipt.ref, sha256(b"").digest(), day)
    note = sign_checkpoint(Checkpoint(SIGNER.name, 1, oracle.mth((leaf,))), SIGNER)
    forged = with_proof(
        receipt, leaf=leaf, log_index=0, tree_size=1, hashes=(), checkpoint=note
    )
    with pytest.raises(ReceiptError, match="another entry"):
        verify_receipt(forged, SIGNER.verifier)


def test_an_entry_that_is_no_event_is_refused(service: FakeService) -> None:
    leaf = b"anything"
    note = sign_checkpoint(Checkpoint(SIGNER.name, 1, oracle.mth((leaf,))), SIGNER)
    forged = with_proof(
        accept(service), leaf=leaf, log_index=0, tree_size=1, hashes=(), checkpoint=note
    )
    with pytest.raises(ReceiptError, match="does not hold"):
        verify_receipt(forged, SIGNER.verifier)


def test_a_tree_size_of_its_own_is_refused(service: FakeService) -> None:
    receipt = accept(service)
    forged = with_proof(receipt, tree_size=receipt.receipt.tree_size + 1)
    with pytest.raises(ReceiptError, match="tree size"):
        verify_receipt(forged, SIGNER.verifier)


@pytest.mark.parametrize("name", ["leaf", "hashes", "checkpoint", "log_index"])
def test_every_changed_part_is_refused(name: str, service: FakeService) -> None:
    accept(service)
    receipt = accept(service)
    proof = receipt.receipt
    changes: dict[str, object] = {
        "leaf": proof.leaf.replace(b"request.received", b"request.receivee"),
        "hashes": (*proof.hashes[:-1], bytes(32)),
        "checkpoint": proof.checkpoint.replace("\n4\n", "\n5\n"),
        "log_index": proof.log_index - 1,
    }
    assert changes[name] != getattr(proof, name)
    verify_receipt(receipt, SIGNER.verifier)
    with pytest.raises(ReceiptError):
        verify_receipt(with_proof(receipt, **{name: changes[name]}), SIGNER.verifier)


def test_the_double_answers_as_the_contract_says(service: FakeService) -> None:
    # The tests above rest on the double: its receipt is the contract's JSON, field by field.
    answer = service.accept({"model": "digits", "scope": {}})
    document = json.loads(answer.body)
    assert sorted(document) == ["due_at", "id", "receipt", "ref", "state", "warnings"]
    assert sorted(document["receipt"]) == [
        "checkpoint",
        "hashes",
        "leaf",
        "log_index",
        "tree_size",
    ]
    assert base64.b64decode(document["receipt"]["leaf"]).startswith(b'{"apiVersion"')


def test_the_double_refuses_what_is_not_signed(service: FakeService) -> None:
    call = calls.submit("digits", {}, None, "gdpr", None)
    assert isinstance(call.body, bytes)
    seen = Seen("POST", f"{service.base}{call.path}", httpx2.Headers(call.headers), call.body)
    assert service.handle(seen).status == 401
