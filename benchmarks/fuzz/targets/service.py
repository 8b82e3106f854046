"""Of the service: bodies of its routes, its broker's messages, what it signs for people."""

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import httpx2
from pydantic import BaseModel, ValidationError

from app.nudges import MessageRefusedError, rebuild
from app.protocols.opendsr.wire import NewDsrRequest
from app.protocols.opendsr.wire import people_of as people_of_opendsr
from app.schemas.audits import NewAudit
from app.schemas.keys import KeyConfirmation
from app.schemas.people import (
    Assignment,
    CaseNote,
    HeldOutRemoval,
    NewCase,
    NewHold,
    PersonImport,
    PersonQuery,
    QueueQuery,
    ReasonedDecision,
)
from app.schemas.requests import Decision
from app.schemas.rounds import NewRound
from app.schemas.webhooks import Replay
from benchmarks.fuzz.mutate import as_json, plain
from benchmarks.fuzz.target import Target
from lethe import canonical
from lethe.certificates.bundle import sign_envelope
from lethe.certificates.case_summary import (
    CasePart,
    CasePredicate,
    build_summary,
    check_summary,
)
from lethe.certificates.intake_receipt import (
    EVENT,
    RECEIPT_TYPE,
    STATEMENT_TYPE,
    IntakeEntry,
    IntakeReceipt,
    IntakeRecord,
    IntakeStatement,
    check_receipt,
    encode_receipt,
    record_commitment,
)
from lethe.client.answers import parse_object
from lethe.client.entries import EntryFilter, EntryReading
from lethe.errors import LetheError
from lethe.log.entries import model_leaf
from lethe.log.ranges import prove_range, range_members
from lethe.report.period import check as check_period
from tests.app.protocols.test_opendsr import EXAMPLE as DSR
from tests.app.test_broker import raw
from tests.lethe.certificates.build import LocalLog, issuer_key, log_signer
from tests.lethe.report.test_period import LOG, REPORT

JSON = (as_json, as_json, plain)
REF = "0b5bbbd2-1d3c-4c3b-8b63-9a4c8f3f8a01"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
ANN = {"kind": "email", "sha256": "ab" * 32}
RECORD_PERSON = {"record": "r1", "person": ANN}
BODIES: tuple[tuple[type[BaseModel], dict[str, object]], ...] = (
    (Decision, {"decision": "retry", "why": "the disk is mended"}),
    (PersonQuery, {"person": ANN, "models": ["digits"]}),
    (PersonImport, {"model": "digits", "identities": [RECORD_PERSON]}),
    (HeldOutRemoval, {"model": "digits", "records": ["r1"]}),
    (NewCase, {"person": ANN, "ticket": "T-1", "regulation": "gdpr", "contact": "a@x.example"}),
    (QueueQuery, {"state": "received", "person": ANN, "overdue": True, "limit": 10}),
    (ReasonedDecision, {"reason": "identity"}),
    (CaseNote, {"text": "asked for a passport"}),
    (Assignment, {"to": "ann"}),
    (NewRound, {"model": "digits", "members": ["c1", "c2"], "threshold": 2}),
    (KeyConfirmation, {"public_key": "-----BEGIN PUBLIC KEY-----"}),
    (Replay, {"delivery": f"msg_{'0' * 32}"}),
    (NewHold, {"ref": REF, "reason": "a court asked"}),
    (NewAudit, {"model": "digits", "method": "hf-kcu", "pairs": 64, "confidence": "0.95"}),
)


def _encoded(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _body(wire: type[BaseModel], example: object) -> Target:
    name = wire.__name__.removeprefix("New").lower()
    return Target(
        f"body-{name}",
        wire.model_validate_json,
        lambda: [_encoded(example)],
        (ValidationError,),
        JSON,
    )


def _opendsr(data: bytes) -> object:
    return people_of_opendsr(NewDsrRequest.model_validate_json(data), {"email": "email"})


@cache
def _log() -> LocalLog:
    log = LocalLog()
    for number in range(5):
        log.append(model_leaf("model.version", f"m{number}", {"head": "a" * 64}, NOW.date()))
    return log


def _page(*indices: int) -> bytes:
    """Return a page of these entries; of all, with the proof that the range is complete."""
    log = _log()
    size = len(log.leaves)
    items = [
        {
            "log_index": index,
            "leaf": b64encode(log.leaves[index]).decode(),
            "hashes": [b64encode(one).decode() for one in log.proof(index)],
        }
        for index in indices or range(size)
    ]
    proof = None if indices else range_members(prove_range(0, size, size, log.read))
    page = {"items": items, "next": None, "completeness": {"range": proof}}
    return _encoded({**page, "checkpoint": log.checkpoint()})


def _read_page(wanted: EntryFilter) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        page = parse_object(httpx2.Response(200, content=data))
        reading = EntryReading(_log().verifier, 0, None, wanted, prove=False)
        reading.take(page)
        return reading.found()

    return read


@cache
def _receipt() -> bytes:
    record = IntakeRecord(
        REF, NOW, NOW, "code by e-mail",
        IntakeStatement(
            STATEMENT_TYPE, "erasure", "https://x.example", "ab" * 32, "gdpr", NOW, "n" * 22
        ),
        None,
        {"digits": 1},
    )  # fmt: skip
    log, opening = LocalLog(), bytes(32)
    committed = record_commitment(opening, record)
    index = log.append(model_leaf(EVENT, "digits", {"proof": committed}, NOW.date()))
    entry = IntakeEntry(index, 1, log.leaves[index], tuple(log.proof(index)), log.checkpoint())
    return encode_receipt(IntakeReceipt(RECEIPT_TYPE, record, opening, bytes(32), entry))


def _summary_payload() -> bytes:
    part = CasePart("digits", "certified", 3, "ab" * 32, 0, None, 7, ())
    return build_summary(CasePredicate(REF, "gdpr", NOW, NOW, (part,)))


def _read_summary(data: bytes) -> object:
    """Read a summary that the issuer signed, whatever it says."""
    key = issuer_key()
    envelope = sign_envelope(data, key, "issuer-2026")
    return check_summary(canonical.encode(envelope), key.public_key())


TARGETS = (
    *(_body(wire, example) for wire, example in BODIES),
    Target(
        "body-opendsr",
        _opendsr,
        lambda: [_encoded(DSR)],
        (ValidationError, LetheError),
        JSON,
    ),
    Target(
        "broker-message",
        lambda data: rebuild(data, "cpu"),
        lambda: [raw()],
        (MessageRefusedError,),
        JSON,
    ),
    Target(
        "log-range",
        _read_page(EntryFilter()),
        lambda: [_page()],
        (LetheError,),
        JSON,
    ),
    Target(
        "log-matches",
        _read_page(EntryFilter(ref="m1")),
        lambda: [_page(1)],
        (LetheError,),
        JSON,
    ),
    Target(
        "intake-receipt",
        lambda data: check_receipt(data, log_signer().verifier),
        lambda: [_receipt()],
        (LetheError,),
        JSON,
    ),
    Target("case-summary", _read_summary, lambda: [_summary_payload()], (LetheError,), JSON),
    Target(
        "period-report",
        lambda data: check_period(data, LOG.verifier, LOG.leaves),
        lambda: [REPORT],
        (LetheError,),
        JSON,
    ),
)
