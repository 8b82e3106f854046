"""Every violation by a provider between method and certificate is noticed.

Each case plants one violation in the code that executes an erasure, end to end, and checks the
number of the check that must notice it, and the consequence.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from app.reconcile.fsck.run import fsck
from app.vault.features import FeatureVault
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from models import Artifact, Certificate, Job, Model, Verification
from tests.installation import Installation
from workers.arrays import Rows
from workers.families.ridge.stored import RowBlock
from workers.jobs import execute, repair
from workers.lineage import versions
from workers.methods.ridge import base
from workers.methods.ridge.base import Outcome, RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD
from workers.updates.draft import ShreddedArtifact

Patch = pytest.MonkeyPatch


class Cheat:
    """The honest method, except for `forget`."""

    id, version = METHOD.id, METHOD.version
    learn, refit = METHOD.learn, METHOD.refit

    def __init__(self, forget: Callable[[RidgeConfig, RidgeState, Rows], Outcome]) -> None:
        self.forget = forget


def forgets(patch: Patch, forget: Callable[[RidgeConfig, RidgeState, Rows], Outcome]) -> None:
    cheat = Cheat(forget)
    patch.setattr(base, "method_named", lambda _: cheat)


def one_record_left_in(patch: Patch) -> None:
    def forget(config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
        return METHOD.forget(config, state, Rows(rows.codes[1:], rows.labels[1:]))

    forgets(patch, forget)


def nothing_done(patch: Patch) -> None:
    def forget(config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
        return replace(METHOD.forget(config, state, rows), state=state)

    forgets(patch, forget)


def head_off_by_one_ulp(patch: Patch) -> None:
    def forget(config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
        outcome = METHOD.forget(config, state, rows)
        head = outcome.state.head.copy()
        head[2, 1] = np.nextafter(head[2, 1], np.float32(np.inf))
        return replace(outcome, state=replace(outcome.state, head=head))

    forgets(patch, forget)


def old_head_served(patch: Patch) -> None:
    def forget(config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
        outcome = METHOD.forget(config, state, rows)
        return replace(outcome, state=replace(outcome.state, head=state.head))

    forgets(patch, forget)


def statistics_off_by_one(patch: Patch) -> None:
    def forget(config: RidgeConfig, state: RidgeState, rows: Rows) -> Outcome:
        outcome = METHOD.forget(config, state, rows)
        gram = outcome.state.statistics.gram.copy()
        gram[0, 0] += 1
        forged = replace(outcome.state.statistics, gram=gram)
        return replace(outcome, state=replace(outcome.state, statistics=forged))

    forgets(patch, forget)


def another_row_dropped_too(patch: Patch) -> None:
    honest = RowBlock.without

    def without(self: RowBlock, erased: set[str]) -> RowBlock | None:
        rest = honest(self, erased)
        return rest and honest(rest, {rest.records[0]})

    patch.setattr(RowBlock, "without", without)


def rows_kept_in_storage(patch: Patch) -> None:
    patch.setattr(RowBlock, "without", lambda self, erased: self)


def old_versions_not_shredded(patch: Patch) -> None:
    def pretend(
        services: Any, session: Session, artifact_id: str, *kinds: str
    ) -> ShreddedArtifact:
        return ShreddedArtifact(artifact_id, "0" * 64)

    patch.setattr(versions, "shred", pretend)


def block_not_rewritten(patch: Patch) -> None:
    honest = FeatureVault.rewrite

    def rewrite(self: FeatureVault, session: Session, *given: Any) -> None:
        with session.begin_nested() as savepoint:
            honest(self, session, *given)
            savepoint.rollback()

    patch.setattr(FeatureVault, "rewrite", rewrite)


# The method's fault is repaired by a refit from the retained rows …
REPAIRED = [
    (one_record_left_in, 1),
    (nothing_done, 1),
    (statistics_off_by_one, 1),
    (head_off_by_one_ulp, 2),
    (old_head_served, 2),
]
# … but damaged stored rows are not: a person must look.
DAMAGED = [
    (another_row_dropped_too, 3),
    (rows_kept_in_storage, 4),
    (old_versions_not_shredded, 4),
    (block_not_rewritten, 4),
]


def names(cases: list[Any]) -> list[str]:
    return [case[0].__name__ for case in cases]


@pytest.mark.parametrize(("cheat", "number"), REPAIRED, ids=names(REPAIRED))
def test_a_wrong_result_is_noticed_and_the_request_escalates_to_a_refit(
    ready: Installation,
    cheat: Callable[[Patch], None],
    number: int,
    monkeypatch: Patch,
) -> None:
    found: list[dict[str, Any]] = []
    escalate = repair.escalate

    def watch(job: Any, tx: Any, verification: Verification, *rest: Any) -> None:
        found.extend(verification.report["checks"])
        escalate(job, tx, verification, *rest)

    monkeypatch.setattr(repair, "escalate", watch)
    cheat(monkeypatch)
    request = ready.caller.erase_records("r1", "r6").json()["id"]  # two rows of one client
    ready.drain()
    assert number in [check["number"] for check in found if not check["passed"]]
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    events = [event["event"].removeprefix("request.") for event in shown["history"]]
    assert shown["state"] == "certified"
    assert events == [
        *("received", "executing", "executed", "verified", "escalated"),
        *("executed", "verified", "certified"),
    ]
    bundle = ready.caller.http.get(shown["certificate"]).content
    statement = parse_statement(parse_bundle(bundle).dsse_envelope.payload)
    assert statement.predicate.method.id == "ridge-exact-refit"
    assert statement.predicate.guarantee.class_ == "exact"
    assert len(statement.predicate.purged.artifacts) == 4  # the refuted version's too
    monkeypatch.undo()
    again = ready.caller.erase_records("r2").json()["id"]  # the model is sound again
    ready.drain()
    assert ready.caller.http.get(f"/v1/requests/{again}").json()["state"] == "certified"
    ready.check()


@pytest.mark.parametrize(("cheat", "number"), DAMAGED, ids=names(DAMAGED))
def test_damage_that_a_refit_cannot_mend_quarantines_the_model(
    ready: Installation, cheat: Callable[[Patch], None], number: int, monkeypatch: Patch
) -> None:
    cheat(monkeypatch)
    request = ready.caller.erase_records("r1", "r6").json()["id"]
    with Session(ready.services.engine) as session:
        job = session.exec(select(Job).where(Job.request_id == request)).one()
    execute.run(ready.services, job.id)
    later = ready.caller.erase_records("r2").json()["id"]
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "needs-decision"
    assert "also after a refit" in shown["reason"]
    with Session(ready.services.engine) as session:
        assert not session.exec(select(Certificate)).all()
        report = session.exec(select(Verification)).one().report
        assert session.exec(select(Model)).one().state == "quarantined"
        query = select(Artifact).where(Artifact.kind == "draft")
        drafts = session.exec(query.order_by(col(Artifact.created_at))).all()
        # A retry continues from the second draft.
        assert [artifact.wrapped_key is None for artifact in drafts] == [True, False]
    failed = [check["number"] for check in report["checks"] if not check["passed"]]
    assert number in failed, report
    # Acknowledged requests wait: a quarantined model is not changed.
    assert ready.caller.http.get(f"/v1/requests/{later}").json()["state"] == "received"
    assert ready.caller.erase_records("r3").status_code == 409
    if cheat is old_versions_not_shredded:
        found = {finding.check for finding in fsck(ready.services.ledger).findings}
        assert found == {"head"}, "fsck finds the files that should be gone"
    else:
        ready.check()


def test_the_honest_provider_is_certified(ready: Installation) -> None:
    request = ready.caller.erase_records("r1", "r6").json()["id"]
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "certified"
    assert "request.escalated" not in [event["event"] for event in shown["history"]]


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({}, ["statistics-freivalds"] * 3),
        ({"statistics": "full"}, ["statistics-recomputed"] * 3),
        ({"statistics": "freivalds"}, ["statistics-freivalds"] * 3),
        (
            {"statistics": "alternate", "full_every": 2},
            ["statistics-recomputed", "statistics-freivalds", "statistics-recomputed"],
        ),
    ],
    ids=["default", "full", "freivalds", "alternate"],
)
def test_the_policy_says_how_statistics_are_judged(
    installation: Installation, policy: dict[str, Any], names: list[str]
) -> None:
    installation.ready(verification=policy)
    found = []
    for number in range(3):  # versions 2, 3 and 4
        request = installation.caller.erase_records(f"r{number}").json()["id"]
        installation.drain()
        bundle = installation.caller.http.get(f"/v1/requests/{request}/certificate").content
        statement = parse_statement(parse_bundle(bundle).dsse_envelope.payload)
        assert statement.predicate.result == "PASS"
        found.append(statement.predicate.checks[0].name)
    assert found == names


def test_freivalds_notices_a_statistic_off_by_one(
    installation: Installation, monkeypatch: Patch
) -> None:
    installation.ready(verification={"statistics": "freivalds"})
    statistics_off_by_one(monkeypatch)
    request = installation.caller.erase_records("r1", "r6").json()["id"]
    installation.drain()
    shown = installation.caller.http.get(f"/v1/requests/{request}").json()
    assert "request.escalated" in [event["event"] for event in shown["history"]]
