"""Each violation is planted in a valid log, as the database's owner could, and must be seen."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import pytest
from sqlmodel import Session, select

from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_issuer
from app.ledger.transaction import Transaction
from app.reconcile.findings import MOST
from app.reconcile.fsck import tree as fsck_tree
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from lethe.log.entries import event_leaf, model_leaf
from lethe.signing.keys import generate_key
from models import Certificate, ErasureRequest, LogCheckpoint, LogEntry, RequestEvent
from tests.app.ledger.samples import (
    PREDICATE,
    append,
    certify,
    entry,
    judge,
    rewind,
    submit,
    tamper,
)
from tests.lethe.certificates.build import REQUEST_REF


@dataclass
class Log:
    """A log with entries of all kinds: 4 requests, 2 of them certified, and model events."""

    ledger: Ledger
    settings: Settings
    requests: list[str]

    def check(self) -> list[str]:
        issuer, keyid = load_issuer(self.settings)
        report = fsck(self.ledger, {keyid: issuer.public_key()})
        assert report.ok == (not report.findings)
        json.dumps(report.as_json())
        for finding in report.findings:  # a request's id is a capability
            assert not any(request in finding.detail for request in self.requests)
        return sorted(
            f"{finding.check} {finding.log_index}: {finding.detail}"
            if finding.log_index is not None
            else f"{finding.check}: {finding.detail}"
            for finding in report.findings
        )

    def plant(self, *statements: str | Callable[[Session], None]) -> list[str]:
        tamper(self.ledger.engine, *statements)
        return self.check()

    def certificate(self, session: Session, number: int = 0) -> Certificate:
        return session.get_one(Certificate, self.requests[number])

    def request(self, session: Session, number: int = 0) -> ErasureRequest:
        return session.get_one(ErasureRequest, self.requests[number])


@pytest.fixture
def log(ledger: Ledger, settings: Settings) -> Log:
    issuer, _ = load_issuer(settings)
    requests = [submit(ledger) for _ in range(4)]  # entries 0 to 3
    append(ledger, entry(0), entry(1), checkpoint=False)  # 4 and 5
    judge(ledger, *requests[:2], requests[3])  # 6 to 8
    for request in requests[:2]:
        certify(ledger, issuer, request)  # 9 and 11 certificates, 10 and 12 their events
    append(ledger, entry(5))  # 13
    log = Log(ledger, settings, requests)
    assert log.check() == []
    return log


def test_counts_what_it_checked(log: Log) -> None:
    report = fsck(log.ledger)
    assert (report.size, report.checkpoints) == (14, 9)
    assert report.as_json()["result"] == "PASS"


def test_pages_join_without_a_seam(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck_tree, "PAGE", 3)
    assert log.check() == []
    assert len(log.plant('DELETE FROM log_nodes WHERE level = 0 AND "index" IN (2, 3, 9)')) == 3


def test_a_new_log_and_an_unpublished_entry_are_clean(ledger: Ledger) -> None:
    assert fsck(ledger).ok
    append(ledger, entry(0), checkpoint=False)
    assert fsck(ledger).ok


NOT_OURS = "mac 4: the row is not one that this installation wrote"
NODES = {
    "a-missing-node": (
        'DELETE FROM log_nodes WHERE level = 1 AND "index" = 2',
        ["node 5: node 2 of level 1 is missing"],
    ),
    "a-wrong-node": (
        "UPDATE log_nodes SET hash = (SELECT hash FROM log_nodes WHERE level = 0 AND "
        '"index" = 0) WHERE level = 2 AND "index" = 1',
        ["node 7: node 1 of level 2 is wrong"],
    ),
    "a-node-beyond-the-tree": (
        'INSERT INTO log_nodes SELECT 0, 14, hash FROM log_nodes WHERE level = 0 AND "index" = 0',
        ["node: node 14 of level 0 belongs to no tree of this size"],
    ),
    "a-node-of-an-incomplete-subtree": (
        'INSERT INTO log_nodes SELECT 3, 1, hash FROM log_nodes WHERE level = 0 AND "index" = 0',
        ["node: node 1 of level 3 belongs to no tree of this size"],
    ),
    "a-node-above-the-tree": (
        'INSERT INTO log_nodes SELECT 9, 0, hash FROM log_nodes WHERE level = 0 AND "index" = 0',
        ["node: node 0 of level 9 belongs to no tree of this size"],
    ),
    "an-event-column-that-lies": (
        "UPDATE log_entries SET event = 'model.withdrawn' WHERE \"index\" = 4",
        ["entry 4: the columns differ from the leaf", NOT_OURS],
    ),
    "a-day-that-lies": (
        "UPDATE log_entries SET day = '2026-01-03' WHERE \"index\" = 4",
        ["entry 4: the columns differ from the leaf", NOT_OURS],
    ),
    "an-entry-of-negative-index": (
        "INSERT INTO log_entries SELECT -1, leaf, kind, event, ref, day, mac FROM log_entries "
        'WHERE "index" = 4',
        ["entry: there are entries of negative index"],
    ),
}


@pytest.mark.parametrize("case", NODES)
def test_one_wrong_row_is_one_finding(log: Log, case: str) -> None:
    statement, findings = NODES[case]
    assert log.plant(statement) == findings


def test_a_changed_leaf_changes_every_hash_above_it(log: Log) -> None:
    def change(session: Session) -> None:
        session.get_one(LogEntry, 5).leaf = entry(77)

    findings = log.plant(change)
    nodes = [finding for finding in findings if finding.startswith("node ")]
    assert nodes == [
        "node 5: node 2 of level 1 is wrong",
        "node 5: node 5 of level 0 is wrong",
        "node 7: node 0 of level 3 is wrong",
        "node 7: node 1 of level 2 is wrong",
    ]
    assert "guard: the first 14 entries are not those that were signed" in findings
    # Also every checkpoint over the entry: sizes 9, 11, 13 and 14.
    assert sum("signs another root" in finding for finding in findings) == 4


def test_a_leaf_of_no_kind_is_found(log: Log) -> None:
    def change(session: Session) -> None:
        session.get_one(LogEntry, 5).leaf = b"free text"

    assert "entry 5: the leaf is not one this log writes" in log.plant(change)


def test_a_gap_is_found_and_ends_what_can_be_computed(log: Log) -> None:
    findings = log.plant('DELETE FROM log_entries WHERE "index" IN (5, 6)')
    assert "gap 5: 2 entries are missing: no later hash can be computed" in findings
    unreached = [f for f in findings if "do not reach the checkpoint" in f]
    assert len(unreached) == 4


def test_a_truncated_log_is_found(log: Log) -> None:
    rewind(log.ledger.engine, 9)
    findings = log.check()
    lost = "guard: the log has 9 entries but 14 were signed: restore a newer backup of the database"
    assert lost in findings


def test_a_lost_entry_without_its_nodes_and_checkpoints_is_found_by_the_guard_alone(
    ledger: Ledger,
) -> None:
    append(ledger, entry(0))
    append(ledger, entry(1))
    rewind(ledger.engine, 1)
    (finding,) = fsck(ledger).findings
    assert finding.check == "guard"


def test_an_old_guard_is_found(log: Log) -> None:
    guard = log.ledger.guard.path
    lines = guard.read_bytes().splitlines(keepends=True)
    guard.write_bytes(b"".join(lines[:4]))
    (finding,) = log.check()
    assert "the keys directory came from an old backup" in finding


@pytest.mark.parametrize("damage", [b"damage\n", b""])
def test_a_damaged_guard_is_a_finding(log: Log, damage: bytes) -> None:
    log.ledger.guard.path.write_bytes(damage)
    (finding,) = log.check()
    assert finding.startswith("guard: ")


def test_a_missing_guard_is_a_finding(log: Log) -> None:
    log.ledger.guard.path.unlink()
    (finding,) = log.check()
    assert finding.startswith("guard: ")


def test_a_guard_of_another_log_is_a_finding(log: Log) -> None:
    guard = log.ledger.guard.path
    guard.write_bytes(guard.read_bytes().replace(b"ledger.test", b"ledger.demo"))
    assert log.check() == ["guard: the guard belongs to a log of another name"]


def test_a_note_of_another_key_is_found(log: Log) -> None:
    def change(session: Session) -> None:
        row = session.get_one(LogCheckpoint, 4)
        head, _, _ = row.note.rpartition("\n\n")
        row.note = f"{head}\n\n— stranger AAAAAAAAAAAA\n"

    (finding,) = log.plant(change)
    assert finding.startswith("checkpoint: the note of size 4 does not open")


def test_a_note_of_another_size_is_found(log: Log) -> None:
    def change(session: Session) -> None:
        row = session.get_one(LogCheckpoint, 4)
        row.note = session.get_one(LogCheckpoint, 9).note

    assert log.plant(change) == ["checkpoint: the note of size 4 differs from its row"]


def test_a_checkpoint_beyond_the_log_is_found(log: Log) -> None:
    findings = log.plant(
        "INSERT INTO log_checkpoints SELECT 50, root, note, signed_at FROM log_checkpoints "
        "WHERE size = 14"
    )
    assert "checkpoint: the entries do not reach the checkpoint of size 50" in findings


def test_a_log_without_checkpoints_was_never_begun(log: Log) -> None:
    findings = log.plant("DELETE FROM log_checkpoints")
    assert findings == ["checkpoint: no checkpoint is stored: the log was never begun"]


def _other_payload(log: Log, session: Session) -> None:
    event = session.get_one(RequestEvent, 2)
    event.payload = {**event.payload, "scope": {"subject": "another"}}


def _other_event(log: Log, session: Session) -> None:
    session.get_one(RequestEvent, 10).event = "request.refused"


def _other_time(log: Log, session: Session) -> None:
    event = session.get_one(RequestEvent, 2)
    event.at = event.at.replace(year=2020)


def _other_key(log: Log, session: Session) -> None:
    log.request(session, 2).event_key = bytes(32)


def _short_key(log: Log, session: Session) -> None:
    log.request(session, 2).event_key = b"short"


def _lost_opening(log: Log, session: Session) -> None:
    session.delete(session.get_one(RequestEvent, 10))


def _opening_of_a_model_event(log: Log, session: Session) -> None:
    event = session.get_one(RequestEvent, 2)
    stray = event.model_dump() | {"log_index": 4, "at": event.at}
    session.add(RequestEvent(**stray))


def _opening_of_nothing(log: Log, session: Session) -> None:
    event = session.get_one(RequestEvent, 2)
    session.add(RequestEvent(**(event.model_dump() | {"log_index": 99, "at": event.at})))


def _request_pointing_elsewhere(log: Log, session: Session) -> None:
    log.request(session, 2).log_index = 3


def _certified_in_name_only(log: Log, session: Session) -> None:
    log.request(session, 2).state = "certified"


def _certificate_row_lost(log: Log, session: Session) -> None:
    session.delete(log.certificate(session))


def _certificate_pointing_nowhere(log: Log, session: Session) -> None:
    log.certificate(session).log_index = 99


def _certificate_pointing_at_an_event(log: Log, session: Session) -> None:
    log.certificate(session).log_index = 10


def _certificates_swapped(log: Log, session: Session) -> None:
    first, second = log.certificate(session, 0), log.certificate(session, 1)
    first.envelope, second.envelope = second.envelope, first.envelope


def _other_signature(log: Log, session: Session) -> None:
    row = log.certificate(session)
    (signature,) = row.envelope["signatures"]
    other = log.certificate(session, 1).envelope["signatures"][0]["sig"]
    row.envelope = {**row.envelope, "signatures": [{**signature, "sig": other}]}


def _other_keyid(log: Log, session: Session) -> None:
    log.certificate(session).issuer_keyid = "issuer-9"


def _no_envelope(log: Log, session: Session) -> None:
    log.certificate(session).envelope = {}


ROWS = {
    "another-payload": (_other_payload, ["opening 2"]),
    "another-event": (_other_event, ["opening 10"]),
    "another-time": (_other_time, ["opening 2", "request 2"]),
    "another-key": (_other_key, ["opening 2"]),
    "a-key-of-another-length": (_short_key, ["opening 2"]),
    "a-lost-opening": (_lost_opening, ["opening 10"]),
    "an-opening-of-another-entry": (_opening_of_a_model_event, ["opening 4"]),
    "an-opening-of-no-entry": (_opening_of_nothing, ["opening 99"]),
    "a-request-that-points-elsewhere": (_request_pointing_elsewhere, ["request 3"]),
    "certified-in-name-only": (_certified_in_name_only, ["certificate 2", "request 2"]),
    "a-lost-certificate": (_certificate_row_lost, ["certificate 0", "certificate 9"]),
    "a-certificate-of-no-entry": (
        _certificate_pointing_nowhere,
        ["certificate 9", "certificate 99"],
    ),
    "a-certificate-at-an-event": (
        _certificate_pointing_at_an_event,
        ["certificate 10", "certificate 9"],
    ),
    "swapped-certificates": (_certificates_swapped, ["certificate 11", "certificate 9"]),
    "another-signature": (_other_signature, ["certificate 9"]),
    "another-issuer": (_other_keyid, ["certificate 9"]),
    "no-envelope": (_no_envelope, ["certificate 9"]),
}


@pytest.mark.parametrize("case", ROWS)
def test_what_the_log_commits_to_is_what_is_stored(log: Log, case: str) -> None:
    plant, places = ROWS[case]
    found = [finding.partition(":")[0] for finding in log.plant(lambda s: plant(log, s))]
    assert sorted(found) == sorted(places)


def test_a_second_certificate_of_a_request_is_found(log: Log) -> None:
    """The primary key allows one row; a second leaf and event would be the evidence."""
    issuer, _ = load_issuer(log.settings)
    tamper(log.ledger.engine, "DELETE FROM certificates")
    certify(log.ledger, issuer, log.requests[0])
    findings = log.check()
    assert "certificate 9: the log holds a certificate that the database lacks" in findings
    assert "certificate 15: a request was certified more than once" in findings


def test_a_leaf_logged_twice_is_found(log: Log) -> None:
    with Session(log.ledger.engine) as session:
        leaf = session.exec(select(LogEntry.leaf).where(LogEntry.index == 9)).one()
    append(log.ledger, leaf)
    assert log.check() == [
        "certificate 14: the log holds a certificate that the database lacks"
    ]


def test_a_certificate_signed_by_a_stranger_is_found(log: Log) -> None:
    certify(log.ledger, generate_key("ecdsa-p256-sha256"), log.requests[3])  # type: ignore[arg-type]
    (finding,) = log.check()
    assert finding.startswith("certificate 14: the envelope does not hold")
    assert fsck(log.ledger).ok  # the change is consistent with its own leaf


ALLOWS_NOTHING: dict[str, tuple[dict[str, str] | str | None, dict[str, str], str]] = {
    "no-judgement": (None, {}, "the log has no judgement of this request"),
    "a-failure": ({"result": "FAIL"}, {}, "the last judgement of this request in the log is"),
    "of-other-evidence": ({"evidence": "0" * 64}, {}, "the evidence is not that of"),
    "of-another-class": (
        {"class": "exact-retrained"},
        {},
        "the last judgement in the log has another",
    ),
    "executed-since": ("request.executed", {}, "the log has more of this request after"),
    "escalated-since": ("request.escalated", {}, "the log has more of this request after"),
    "no-pass-itself": ({}, {"result": "FAIL"}, "the certificate's own result is no PASS"),
    "of-a-stranger": (
        {},
        {"request_ref": REQUEST_REF},
        "the certificate belongs to another request",
    ),
}


@pytest.mark.parametrize("case", ALLOWS_NOTHING)
def test_a_certificate_that_the_log_allows_not_is_found(log: Log, case: str) -> None:
    said, changes, why = ALLOWS_NOTHING[case]
    request_id = log.requests[2]
    if isinstance(said, dict):
        judge(log.ledger, request_id)  # an earlier judgement, which no longer counts
        judge(log.ledger, request_id, **said)
    elif said is not None:
        judge(log.ledger, request_id)
        happens(log, request_id, said)
    issuer, _ = load_issuer(log.settings)
    certify(log.ledger, issuer, request_id, **changes)
    (finding,) = log.check()
    assert finding.partition(": ")[2].startswith(why)


def test_a_wait_between_judgement_and_certificate_is_no_finding(log: Log) -> None:
    judge(log.ledger, log.requests[2], result="FAIL")
    happens(log, log.requests[2], "request.executed", method=PREDICATE.method.id)
    judge(log.ledger, log.requests[2])
    for event in ("request.needs-decision", "request.decided"):
        happens(log, log.requests[2], event)
    issuer, _ = load_issuer(log.settings)
    certify(log.ledger, issuer, log.requests[2])
    assert log.check() == []


def test_an_execution_that_was_judged_again_is_found(log: Log) -> None:
    judge(log.ledger, log.requests[2], result="FAIL")
    judge(log.ledger, log.requests[2])
    issuer, _ = load_issuer(log.settings)
    certify(log.ledger, issuer, log.requests[2])
    (finding,) = log.check()
    assert "two judgements of one execution" in finding


def happens(log: Log, request_id: str, event: str, **said: str) -> None:
    """Log an event of a request."""

    def effect(tx: Transaction) -> None:
        request = tx.session.get_one(ErasureRequest, request_id)
        record_request_event(tx, request, event, said)

    log.ledger.transact(effect)


def test_a_request_erased_at_the_end_of_retention_is_no_finding(log: Log) -> None:
    assert log.plant("DELETE FROM request_events", "DELETE FROM certificates") != []
    rest = [f for f in log.plant("DELETE FROM erasure_requests") if "opening" in f]
    assert rest == []


def test_a_request_logged_without_ours_is_not_ours_to_open(log: Log) -> None:
    stranger = "2a4c1f9e-3f5e-4c55-8f7e-0d2f4a8b9c01"
    day = log.ledger.transact(lambda tx: tx.now).date()
    append(log.ledger, event_leaf("request.received", stranger, bytes(32), day))
    assert log.check() == []


def test_of_many_findings_the_first_are_listed_and_all_counted(log: Log) -> None:
    append(
        log.ledger,
        *(model_leaf("model.released", "m", {}, date(2026, 1, 2)) for _ in range(60)),
    )
    tamper(log.ledger.engine, "DELETE FROM log_nodes WHERE level = 0")
    report = fsck(log.ledger)
    assert len(report.findings) == MOST
    assert report.unlisted["node"] == 74 - MOST
