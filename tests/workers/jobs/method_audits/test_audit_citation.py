"""A certificate's parameters about audits of its method: the cited report, and the counts."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlmodel import Session, select

from app.ledger.journal import record_request_event
from app.ledger.transaction import Transaction
from app.method_audits.reports import OF_ANOTHER
from app.reconcile.audit_rows import NO_REPORT
from app.reconcile.fsck.audits import OLDER, OTHERWISE, citation_problem
from app.reconcile.fsck.run import fsck
from app.service.issued import certificates
from lethe.certificates.audits import counts as audit_counts
from lethe.certificates.audits.counts import Counts
from lethe.cli.certificate import show
from models import Artifact, Audit, Certificate, ErasureRequest, Model
from tests.installation import Installation
from tests.workers.jobs.attempts import ladders
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.method_audits import audits
from tests.workers.jobs.method_audits.audits import cited
from workers.jobs import publish
from workers.method_audits import (
    citation as audit_citation,
)
from workers.method_audits import (
    report as audit_report,
)
from workers.methods.network.retrain import Retrain
from workers.provenance import NETWORK_ROOMS, code_digest

Patch = pytest.MonkeyPatch


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: citations come from the log."""
    return sqlite_url


@pytest.fixture
def quick(installation: Installation, monkeypatch: Patch) -> audits.Quick:
    """A small network whose audits have numbers instead of trained pairs."""
    audits.register(installation)
    found = audits.Quick(installation)
    monkeypatch.setattr("workers.families.network.audited.run_pair", found.run_pair)
    return found


def audited(ready: Installation, *methods: str) -> list[str]:
    """Run an audit of each method to its end."""
    found = []
    for method in methods:
        found.append(audits.start(ready, method=method))
        ready.drain()
    return found


def newest(ready: Installation) -> Certificate:
    with Session(ready.services.engine) as session:
        return max(session.exec(select(Certificate)), key=lambda one: one.log_index)


def counted(
    ready: Installation, started: int, reported: int, number: int = 0
) -> dict[str, str]:
    """Return the newest certificate's parameters for these counts in the log."""
    said = {"audit.started": started, "audit.reported": reported}
    said |= {"audit.log-size": newest(ready).log_index}
    said |= {"audit.number": number} if number else {}
    return {name: str(value) for name, value in said.items()}


def test_a_certificate_cites_the_newest_report_and_says_how_many_there_were(
    quick: audits.Quick, monkeypatch: Patch, tmp_path: Path
) -> None:
    ready = quick.installation
    (other,) = audited(ready, "natural")
    assert cited(ready, "r1") == {}
    stopped = audits.start(ready, method="retrain")
    ready.caller.operator("POST", f"/v1/audits/{stopped}/stop")
    *_, audit_id = audited(ready, "retrain", "retrain")
    shown = audits.get(ready, audit_id)
    assert cited(ready, "r2") == {
        "audit": shown["report_digest"],
        "audit.day": shown["reported_at"][:10],
        "audit.found": shown["found"],
        **counted(ready, started=3, reported=2, number=3),
    }
    file = tmp_path / "certificate"
    file.write_bytes(certificates.bundle(ready.services, newest(ready).request_id))
    printed = CliRunner().invoke(show, [str(file)]).output
    assert f"audit.found {shown['found']}" in printed
    size = newest(ready).log_index
    words = f"the log's first {size} entries record 3 audits of this method started and 2 "
    assert f"audits      {words}reported; the one cited is number 3" in printed
    assert shown["report_digest"] == sha256(audits.file(ready, audit_id, "report")).hexdigest()
    assert audits.get(ready, other)["report_digest"] != shown["report_digest"]
    # Audits of other code are counted but not cited. The executed code decides.
    monkeypatch.setattr(publish, "code_digest", lambda *_: "0" * 64)
    assert cited(ready, "r3") == counted(ready, started=3, reported=2)
    ready.check()


def first_hidden(events: Any, method: str, size: int) -> Counts:
    """Leave the first start out, and count the rest."""
    starts = [index for index, leaf in events if leaf.event == audit_counts.STARTED]
    rest = [(index, leaf) for index, leaf in events if index > starts[0]]
    return audit_counts.count(rest, method, size)


UNSAID = "the certificate does not say how many audits were started"
CITED = ("audit", "audit.day", "audit.found")


def without(told: dict[str, str], *names: str, **changes: str) -> dict[str, str]:
    kept = {name: value for name, value in told.items() if name not in names}
    return {**kept, **{f"audit.{name.replace('_', '-')}": one for name, one in changes.items()}}


def test_a_certificate_that_hides_an_audit_is_found_by_fsck(
    quick: audits.Quick, monkeypatch: Patch
) -> None:
    ready = quick.installation
    ids = audited(ready, "retrain", "retrain")
    begun = newest_entry(ready)
    stopped = audits.start(ready, method="retrain")
    ready.caller.operator("POST", f"/v1/audits/{stopped}/stop")
    honest = cited(ready, "r0")
    ready.check()
    monkeypatch.setattr(audit_citation, "count", first_hidden)
    assert cited(ready, "r1")["audit.started"] == "2"
    (found,) = fsck(ready.services.ledger).findings
    assert (found.log_index, found.detail) == (newest(ready).log_index, OTHERWISE)
    counts = [name for name in honest if name not in CITED]
    before = without(honest, started="2", log_size=str(begun + 1))
    planted = {
        OTHERWISE: without(honest, number="1"),
        "the certificate counts audits in a log that ends before its judgement": before,
        "the certificate counts audits in a log of no size": without(honest, log_size="all"),
        "the log has no start and report of the audit that the certificate cites": {
            **honest,
            "audit": "ab" * 32,
        },
    }
    for wanted, told in [*planted.items(), (UNSAID, without(honest, *counts)), (UNSAID, {})]:
        assert problem(ready, told) == wanted
    # Whatever the certificate calls the method, and its settings: the log has retrain.
    for stated in ("retrain ", "x", "retrain(x=1)", "retrain("):
        assert problem(ready, {"method": stated}) == UNSAID
        assert problem(ready, {**without(honest, *counts), "method": stated}) == UNSAID
        assert problem(ready, {**honest, "method": stated}) is None
    assert problem(ready, {}, "natural") == problem(ready, {}, "x") == UNSAID
    assert problem(ready, {**honest}, "natural") is None
    # Neither an older report than the newest, nor none where there is one, unless it says why.
    first = audits.get(ready, ids[0])["report_digest"]
    assert problem(ready, without(honest, number="1") | {"audit": first}) == OLDER
    bare = without(honest, *CITED, "audit.number")
    assert problem(ready, bare) == OLDER
    assert problem(ready, {**bare, "audit.missing": "x"}) is None
    assert problem(ready, honest) is None


def problem(
    ready: Installation,
    told: dict[str, str],
    method: str = "retrain",
    ref: str | None = None,
    at: int | None = None,
) -> str | None:
    """Return fsck's finding on a certificate like the first, with these audit parameters.

    ref: of another request, of which nothing is stored. at: index of its entry.
    """
    with ready.services.reading() as session:
        first = min(session.exec(select(Certificate)), key=lambda one: one.log_index)
        certified, request_id = first.log_index, first.request_id
    said = networks.statement(ready, request_id).predicate
    changed = replace(said, method=replace(said.method, id=method, parameters=told))
    changed = replace(changed, request_ref=ref or said.request_ref)
    with ready.services.reading() as session:
        return citation_problem(session, at or certified, changed)


def test_the_log_says_which_method_made_the_model_and_a_decision_may_have_it_made_anew(
    quick: audits.Quick,
) -> None:
    ready = quick.installation
    audited(ready, "natural")
    assert cited(ready, "r0") == {}

    def later(told: dict[str, str], method: str = "retrain", ref: str | None = None) -> Any:
        return problem(ready, told, method, ref, newest_entry(ready) + 1)

    assert later({}) is None
    happen(ready, "escalated", {"attempt": 1, "method": "natural"})
    assert later({}) == later({}, "natural") == UNSAID
    happen(ready, "decided", {"decision": "abandon"})
    assert later({}) == UNSAID
    happen(ready, "decided", {"decision": "retry"})
    assert later({}) is None
    assert later({}, "natural") == later({}, "x") == UNSAID
    happen(ready, "escalated", {"reason": "no-round"})
    assert later({}, "natural") == UNSAID
    happen(ready, "escalated", {"attempt": 2, "method": "natural(rate=2)"})
    for told in ({}, {"method": "natural"}, {"method": "natural(rate=2)"}):
        assert later(told, "natural") is None
    # After the retention period only the certificate says which method it was.
    assert later({"method": "natural(rate=2)"}, "natural", "gone") is None
    for stated in ("natural", "natural ", "retrain(rate=2)", "natural("):
        assert later({"method": stated}, "natural", "gone") == UNSAID


def happen(ready: Installation, event: str, payload: dict[str, Any]) -> None:
    """Log one more event of the first request."""

    def effect(tx: Transaction) -> None:
        first = min(tx.session.exec(select(Certificate)), key=lambda one: one.log_index)
        request = tx.session.get_one(ErasureRequest, first.request_id)
        record_request_event(tx, request, f"request.{event}", payload)

    ready.services.ledger.transact(effect)


def newest_entry(ready: Installation) -> int:
    return ready.services.ledger.guard.read().size - 1


def forged(ready: Installation, session: Session, own: Artifact, other: Artifact) -> None:
    """Store another file under the logged digest."""
    digest, own.digest = own.digest, "0" * 64
    stored = ready.services.artifacts.put(session, "audit-report", b"another")
    stored.digest = digest


def of_another(ready: Installation, session: Session, own: Artifact, other: Artifact) -> None:
    own.digest, other.digest = other.digest, own.digest


def shredded(ready: Installation, session: Session, own: Artifact, other: Artifact) -> None:
    ready.services.artifacts.shred(session, own.id)


def decoys(ready: Installation, session: Session, own: Artifact, other: Artifact) -> None:
    for number in range(3):
        session.add(Artifact(id=f"0{number}", kind=own.kind, digest=own.digest, size=1))


FORGED = {forged: NO_REPORT, of_another: NO_REPORT, shredded: NO_REPORT, decoys: None}


def test_what_is_cited_is_what_the_logged_report_says_whatever_the_tables_say(
    quick: audits.Quick,
) -> None:
    ready = quick.installation
    ids = audited(ready, "retrain", "natural")
    shown = audits.get(ready, ids[0])
    digests = [audits.get(ready, one)["report_digest"] for one in ids]
    honest = {
        "audit": shown["report_digest"],
        "audit.day": shown["reported_at"][:10],
        "audit.found": shown["found"],
    }
    for change, why in FORGED.items():
        with Session(ready.services.engine) as session:
            own, other = (
                session.exec(select(Artifact).where(Artifact.digest == one)).one()
                for one in digests
            )
            change(ready, session, own, other)
            session.flush()
            model = session.exec(select(Model)).one()
            found = audit_citation.citation(
                ready.services,
                session,
                model,
                "retrain",
                Retrain().version,
                code_digest(*NETWORK_ROOMS),
            )
            session.rollback()
        only = {
            name: value for name, value in found.items() if name in (*honest, "audit.missing")
        }
        assert only == (honest if why is None else {"audit.missing": why}), change
        assert (found["audit.started"], "audit.number" in found) == ("1", why is None)


def test_another_configuration_than_was_started_is_not_cited(
    quick: audits.Quick, monkeypatch: Patch
) -> None:
    """As written by a worker that did not compare its report with the log before signing."""
    monkeypatch.setattr(audit_report, "contradiction", lambda *_: None)
    ready = quick.installation
    audit_id = audits.start(ready, method="retrain")
    with Session(ready.services.engine) as session:
        row = session.get_one(Audit, audit_id)
        row.config = {**row.config, "seed": "6"}
        session.commit()
    ready.drain()
    assert audits.said(ready, audit_id).configuration["seed"] == "6"
    assert cited(ready, "r1") == {
        "audit.missing": OF_ANOTHER,
        **counted(ready, started=1, reported=1),
    }


@pytest.mark.parametrize("differs", [False, True])
def test_an_attempt_with_settings_of_its_own_cites_no_audit_of_others(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, differs: bool
) -> None:
    """Audits run a method as registered, and so does an attempt without settings."""
    attempt = ladders.STRONGER if differs else ladders.HF_KCU
    networks.register(installation, policy=ladders.policy(attempt))
    monkeypatch.setattr(
        "workers.families.network.audited.run_pair", audits.Quick(installation).run_pair
    )
    audits.start(installation, method=attempt["method"])
    installation.drain()
    plant(monkeypatch, "yeom:auc")
    request_id = networks.erase(installation, networks.some("r0", "r1"))
    told = networks.statement(installation, request_id).predicate.method
    assert (told.id, "method" in told.parameters) == (attempt["method"], True)
    assert ("audit" in told.parameters) == (not differs)
    installation.check()
