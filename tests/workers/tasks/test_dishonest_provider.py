"""Whatever a provider does wrong between method and certificate, no certificate is issued.

Each case plants one violation in the code that executes an erasure, end to end, and insists
on the number of the check that must notice it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from models import Certificate, Verification
from tests.installation import Installation
from workers.arrays import Rows
from workers.methods import registry
from workers.methods.base import Outcome, RidgeConfig, RidgeState
from workers.methods.ridge_exact import METHOD
from workers.tasks import erase, versions
from workers.tasks.blocks import Block
from workers.tasks.draft import ShreddedArtifact

Patch = pytest.MonkeyPatch


class Cheat:
    """The honest method, except for `forget`."""

    id, version = METHOD.id, METHOD.version
    learn, refit = METHOD.learn, METHOD.refit

    def __init__(self, forget: Callable[[RidgeConfig, RidgeState, Rows], Outcome]) -> None:
        self.forget = forget


def forgets(patch: Patch, forget: Callable[[RidgeConfig, RidgeState, Rows], Outcome]) -> None:
    cheat = Cheat(forget)
    patch.setattr(registry, "get", lambda _: cheat)


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
    honest = Block.without

    def without(self: Block, erased: set[str]) -> Block | None:
        rest = honest(self, erased)
        return rest and honest(rest, {rest.records[0]})

    patch.setattr(Block, "without", without)


def rows_kept_in_storage(patch: Patch) -> None:
    patch.setattr(Block, "without", lambda self, erased: self)


def old_versions_not_shredded(patch: Patch) -> None:
    def pretend(services: Any, session: Session, artifact_id: str) -> ShreddedArtifact:
        return ShreddedArtifact(artifact_id, "0" * 64)

    patch.setattr(versions, "shred", pretend)


def block_not_rewritten(patch: Patch) -> None:
    honest = erase._rewrite

    def rewrite(services: Any, tx: Any, subject_id: int, rest: Any) -> Any:
        with tx.session.begin_nested() as savepoint:
            old = honest(services, tx, subject_id, rest)
            savepoint.rollback()
        return old

    patch.setattr(erase, "_rewrite", rewrite)


CASES = [
    (one_record_left_in, 1),
    (nothing_done, 1),
    (statistics_off_by_one, 1),
    (head_off_by_one_ulp, 2),
    (old_head_served, 2),
    (another_row_dropped_too, 3),
    (rows_kept_in_storage, 4),
    (old_versions_not_shredded, 4),
    (block_not_rewritten, 4),
]


@pytest.mark.parametrize(("cheat", "number"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_cheat_ends_failed_without_a_certificate(
    ready: Installation, cheat: Callable[[Patch], None], number: int, monkeypatch: Patch
) -> None:
    cheat(monkeypatch)
    request = ready.caller.erase_records("r1", "r6").json()["id"]  # two rows of one client
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "failed"
    assert shown["reason"].startswith("verification FAIL")
    assert [event["event"] for event in shown["history"]][-1] == "request.failed"
    with Session(ready.services.engine) as session:
        assert not session.exec(select(Certificate)).all()
        report = session.exec(select(Verification)).one().report
    failed = [check["number"] for check in report["checks"] if not check["passed"]]
    assert number in failed, report
    ready.check()


def test_the_honest_provider_is_certified(ready: Installation) -> None:
    request = ready.caller.erase_records("r1", "r6").json()["id"]
    ready.drain()
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["state"] == "certified"
