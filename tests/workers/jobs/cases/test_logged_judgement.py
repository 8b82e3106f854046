"""An attacker who can write every table, but has no key, gets only logged facts certified."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlmodel import Session, select

from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.fsck.run import fsck
from app.reconcile.judgement import CONTRADICTED, Event
from app.settings import Settings
from lethe.certificates import shape
from lethe.certificates.evidence import Removal, prove_removal, record_commitment
from lethe.certificates.retained_tree import RetainedTree
from lethe.certificates.statement import AttemptPart, read_escalation
from lethe.signing.keys import PrivateKey
from models import (
    Artifact,
    Job,
    Model,
    ModelVersion,
    Record,
    Verification,
)
from tests.app.ledger.samples import tamper
from tests.installation import Installation, install, shown, state
from tests.lethe.certificates.leaves import bare
from tests.workers.jobs.attempts.test_decisions import decide, history
from tests.workers.jobs.cases.tampered import TAMPERED, a_later_head, job_of
from tests.workers.jobs.cases.test_dishonest_provider import nothing_done, rows_kept_in_storage
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.leases.test_stalled import absent, soon_due
from workers.errors import RefusedError
from workers.jobs import (
    certify,
    execute,
    verify,
)
from workers.jobs import logged_judgement as judging
from workers.jobs.logged_judgement import passed_all
from workers.leases.lease import JobContext, Lease
from workers.updates import draft as drafts

Patch = pytest.MonkeyPatch
OTHER_DRAFT = "the draft is not the one that the log has as executed"
LEFT = "records that the request names were not removed"
SALT = b"s" * 32


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


def step(ready: Installation, request: str, *stages: Callable[..., None]) -> None:
    """Run stages of a request's job, without the stages that follow."""
    with Session(ready.services.engine) as session:
        job_id = job_of(session, request).id
    for stage in stages:
        stage(ready.services, job_id)
    ready.dispatcher.nudges.clear()


def judged(ready: Installation, *records: str) -> str:
    """Erase records up to their judgement; return the request's id."""
    request = str(ready.caller.erase_records(*records).json()["id"])
    step(ready, request, execute.run, verify.run)
    return request


def refused(ready: Installation, request: str, reason: str) -> None:
    """Check that a request waits for an operator with this reason, without a certificate."""
    told = shown(ready, request)
    assert (told["state"], told["certificate"]) == ("needs-decision", None)
    assert told["reason"] == f"not certified: {reason}"
    assert ready.caller.http.get(f"/v1/requests/{request}/certificate").status_code == 404
    with Session(ready.services.engine) as session:
        assert session.exec(select(Model)).one().state == "quarantined"


@pytest.mark.parametrize("swapped", [False, True], ids=["flip", "swap"])
def test_a_failure_whose_job_is_moved_on_is_not_certified(
    ready: Installation, monkeypatch: Patch, swapped: bool
) -> None:
    first = str(ready.caller.erase_records("r2").json()["id"])
    ready.drain()
    with monkeypatch.context() as patch:
        rows_kept_in_storage(patch)
        second = str(ready.caller.erase_records("r1", "r6").json()["id"])
        ready.drain()
    with Session(ready.services.engine) as session:
        job = job_of(session, second)
        job.stage, job.lease_until, job.tries = "certify", None, 0
        session.exec(select(Model)).one().state = "ready"
        found = session.get_one(Verification, second)
        assert found.result == "FAIL"
        found.result = "PASS"
        own = found.evidence_id
        if swapped:
            found.evidence_id = session.get_one(Verification, first).evidence_id
        session.commit()
    step(ready, second, certify.run)
    refused(ready, second, "the last judgement of this request in the log is no PASS")
    assert ready.caller.http.get(f"/v1/requests/{second}/evidence").status_code == 404
    with Session(ready.services.engine) as session:  # or fsck finds evidence that no row names
        session.get_one(Verification, second).evidence_id = own
        session.commit()
    ready.check()


def test_each_table_that_says_otherwise_stops_the_certificate(ready: Installation) -> None:
    certified = str(ready.caller.erase_records("r2").json()["id"])
    ready.drain()
    request = judged(ready, "r1", "r6")
    for change, reason in [(None, None), *TAMPERED]:
        assert told(ready, request, certified, change) == reason, change
    # A certificate is issued once: its request is closed in the log, whatever its job says.
    assert told(ready, certified, request) == "the log has no open request of this reference"
    step(ready, request, certify.run)
    assert state(ready, request) == "certified"


def leased_by_nobody(ready: Installation, session: Session, job: Job) -> JobContext:
    """Return the context of a job to certify."""
    token, model = job.lease_token, session.get_one(Model, job.model_id)
    lease = Lease(
        job.id, token, "certify", 1, "erase", job.model_id, job.request_id, None, 1, None
    )
    return JobContext(ready.services, lease, model)


def told(
    ready: Installation,
    request: str,
    other: str,
    change: Callable[[Session, str, str], None] | None = None,
) -> str | None:
    """Return why a request is not certified after a change, which is then undone."""
    with Session(ready.services.engine) as session:
        if change is not None:
            change(session, request, other)
            session.flush()
        job = job_of(session, request)
        try:
            (found,) = passed_all(leased_by_nobody(ready, session, job), session, [job])
        except RefusedError as refusal:
            return str(refusal)
        finally:
            session.rollback()
    assert found.evidence.report.result == "PASS"
    return None


def test_what_was_stopped_can_be_made_anew_by_decision(ready: Installation) -> None:
    request = judged(ready, "r1", "r6")
    with Session(ready.services.engine) as session:
        a_later_head(session, request, "")
        session.commit()
    step(ready, request, certify.run)
    refused(ready, request, "the tables and the log disagree on a version")
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert state(ready, request) == "certified"
    method = networks.statement(ready, request).predicate.method
    assert method.id == "ridge-exact-refit"
    # A PASS that was not certified is no verdict on an attempt.
    assert read_escalation(method.parameters) == (
        AttemptPart(1, "ridge-exact", "NONE", CONTRADICTED, ()),
    )
    found = [finding.check for finding in fsck(ready.services.ledger).findings]
    assert found == ["version"], "what was planted is still there"


def test_evidence_and_draft_of_a_refuted_attempt_are_not_certified(
    ready: Installation, monkeypatch: Patch
) -> None:
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    store = ready.services.artifacts
    with monkeypatch.context() as patch:
        nothing_done(patch)
        step(ready, request, execute.run, verify.run)
        with Session(ready.services.engine) as session:
            refuted = session.get_one(Verification, request).evidence_id
            draft = job_of(session, request).draft_id
            assert draft is not None
            # As an attacker with a backup has it: the sealed files and their wrapped keys.
            kept = {
                one: (session.get_one(Artifact, one).wrapped_key, store.path(one).read_bytes())
                for one in (refuted, draft)
            }
        step(ready, request, execute.run, verify.run)
    events = history(ready, request)
    assert events[-3:] == ["request.escalated", "request.executed", "request.verified"]

    def restore(session: Session, artifact: str) -> None:
        session.get_one(Artifact, artifact).wrapped_key = kept[artifact][0]
        store.path(artifact).write_bytes(kept[artifact][1])

    def evidence(session: Session, *_: str) -> None:
        restore(session, refuted)
        session.get_one(Verification, request).evidence_id = refuted

    def earlier(session: Session, *_: str) -> None:
        restore(session, draft)
        job_of(session, request).draft_id = draft

    why = "the evidence is not that of the request's last judgement in the log"
    assert told(ready, request, "", evidence) == why
    assert told(ready, request, "", earlier) == OTHER_DRAFT
    assert told(ready, request, "") is None


def test_a_wait_for_the_key_does_not_take_the_judgement_away(
    settings: Settings, fitted: PrivateKey, monkeypatch: Patch
) -> None:
    with install(settings.model_copy(update={"max_tries": 1})) as patient:
        patient.caller.key = fitted
        with monkeypatch.context() as patch:
            patch.setattr(certify, "signing_issuer", absent)
            request = str(patient.caller.erase_records("r1", "r6").json()["id"])
            patient.drain()
            soon_due(patient)
            patient.recover()
        assert history(patient, request)[-1] == "request.needs-decision"
        assert decide(patient, request, "retry") == 200
        patient.recover()
        assert state(patient, request) == "certified"
        patient.check()


def test_an_attempt_that_ends_with_the_same_bits_is_another_execution(
    ready: Installation, monkeypatch: Patch
) -> None:
    """An operator has it retrained: the refit's draft is certified, not the one before it."""
    with monkeypatch.context() as patch:
        patch.setattr(certify, "passed_all", _refuse)
        request = judged(ready, "r1", "r6")
        with Session(ready.services.engine) as session:
            draft = job_of(session, request).draft_id
            assert draft is not None
            stored = session.get_one(Artifact, draft)
            key, digest = stored.wrapped_key, stored.digest
            file = ready.services.artifacts.path(draft).read_bytes()
        step(ready, request, certify.run)
        assert decide(ready, request, "retry") == 200
        step(ready, request, execute.run, verify.run)

    def earlier(session: Session, *_: str) -> None:
        session.get_one(Artifact, draft).wrapped_key = key
        ready.services.artifacts.path(draft).write_bytes(file)
        job_of(session, request).draft_id = draft
        old = session.exec(select(ModelVersion).where(ModelVersion.number == 2)).one()
        assert old.id is not None
        session.get_one(Verification, request).version_id = old.id

    assert told(ready, request, "", earlier) == OTHER_DRAFT
    with monkeypatch.context() as patch:  # not even if the log had it
        patch.setattr(drafts, "logged_digest", lambda *_: digest)
        assert told(ready, request, "", earlier) == (
            "the request was executed in another version"
        )
    assert told(ready, request, "") is None


def test_drafts_of_requests_that_were_executed_together_do_not_change_places(
    settings: Settings, fitted: PrivateKey
) -> None:
    waiting = {"batch_min_requests": 2, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        made.caller.key = fitted
        first = str(made.caller.erase_records("r1").json()["id"])
        second = str(made.caller.erase_records("r2", "r6").json()["id"])
        step(made, first, execute.run)
        with Session(made.services.engine) as session:
            jobs = job_of(session, first), job_of(session, second)
            assert [job.stage for job in jobs] == ["verify", "verify"]
            jobs[0].draft_id, jobs[1].draft_id = jobs[1].draft_id, jobs[0].draft_id
            session.commit()
        step(made, first, verify.run)
        step(made, second, verify.run)
        for request in (first, second):
            assert shown(made, request)["certificate"] is None
            assert "request.verified" not in history(made, request)
        assert shown(made, first)["reason"] == f"not verified: {OTHER_DRAFT}"


def test_a_record_whose_claim_is_taken_away_is_missed(ready: Installation) -> None:
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    with Session(ready.services.engine) as session:
        record = session.exec(select(Record).where(Record.record == "r1")).one()
        record.claimed_by = None
        session.commit()
    ready.drain()
    refused(ready, request, LEFT)
    # Retrained by decision, it still lacks the record.
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert state(ready, request) == "needs-decision"


@pytest.mark.parametrize(
    ("record", "opened", "reason"),
    [
        ("r2", "r2", "records were removed that the request does not name"),
        ("r1", "r2", "a removed commitment is not of the record beside it"),
    ],
)
def test_what_was_removed_is_what_the_request_names(
    ready: Installation, record: str, opened: str, reason: str
) -> None:
    scope = {"level": "sample", "records": ["r1"]}
    events = [Event(0, "request.received", {"scope": scope})]
    proof = prove_removal(
        RetainedTree(bare([commitment := record_commitment(SALT, opened)])), {opened: SALT}
    )
    removal = shape.read(Removal, proof)
    (one,) = removal.records
    assert one.commitment == commitment
    removal = replace(removal, records=(replace(one, record=record),))
    with Session(ready.services.engine) as session:
        model = session.exec(select(Model)).one()
        with pytest.raises(RefusedError, match=reason):
            judging.check_scope(ready.services, session, model, events, removal)


def test_a_named_record_is_still_there_only_if_the_log_has_it_added_back(
    ready: Installation,
) -> None:
    scope = {"level": "sample", "records": ["r1", "r2"]}
    events = [Event(0, "request.received", {"scope": scope})]
    proof = prove_removal(RetainedTree(bare([record_commitment(SALT, "r1")])), {"r1": SALT})
    removal = shape.read(Removal, proof)

    def check() -> None:
        with Session(ready.services.engine) as session:
            model = session.exec(select(Model)).one()
            judging.check_scope(ready.services, session, model, events, removal)

    def learned(digests: dict[str, str]) -> int:
        def effect(tx: Transaction) -> int:
            return record_model_event(tx, "small", "contribution.learned", digests)

        return ready.services.ledger.transact(effect)

    learned({})
    with pytest.raises(RefusedError, match=LEFT):
        check()
    index = learned({"addBack": "0" * 64})
    check()
    tamper(ready.services.engine, f'UPDATE log_entries SET mac = leaf WHERE "index" = {index}')
    with pytest.raises(RefusedError, match=LEFT):
        check()


def _refuse(*_: Any) -> None:
    raise RefusedError("of nothing")
