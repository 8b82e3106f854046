"""A released legal hold ends with its reason; one that the log has as standing never does."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.purge import retention
from app.reconcile.fsck.retention import EARLY, KEPT, OVERDUE
from app.reconcile.fsck.run import fsck
from app.reconcile.holds import HoldsChangedError
from models import LegalHold
from tests.app.purge.test_moved_times import LONG_AGO, nothing_ends, write
from tests.app.purge.test_retention import entries, late
from tests.app.reconcile.test_fsck_retention import LAPSED, found, listed
from tests.app.service.test_holds import REASON, held, officer, release
from tests.installation import Installation
from tests.small import MODEL

ONE = {"hold": 1}


@pytest.fixture
def released(ready: Installation) -> str:
    """A hold on the model, placed and released; returns its id."""
    hold = held(ready, MODEL)
    assert release(hold, officer(ready)).status_code == 200
    return hold


def stored(at: Installation) -> list[LegalHold]:
    with Session(at.services.engine) as session:
        return list(session.exec(select(LegalHold)))


def test_its_row_ends_and_the_log_keeps_that_there_was_one(
    ready: Installation, released: str
) -> None:
    assert not retention.run(ready.services).removed
    assert [one.reason for one in stored(ready)] == [REASON]
    assert retention.plan(late(ready)).removed == ONE
    done = retention.run(late(ready))
    assert (done.removed, done.held) == (ONE, {})
    assert stored(ready) == []
    ((index, leaf),) = entries(ready)
    assert index == done.log_index
    assert {kind: one.count for kind, one in leaf.ended.items()} == ONE
    shown = ready.caller.operator("GET", "/v1/holds", params={"released": "true"}).json()
    assert shown["items"] == []
    assert not retention.run(late(ready)).removed
    ready.check()


def test_holds_are_placed_and_released_beside_ended_ones(
    ready: Installation, released: str
) -> None:
    retention.run(late(ready))
    second = held(ready, MODEL)
    assert not retention.run(late(ready)).removed
    assert release(second, officer(ready)).status_code == 200
    assert retention.run(late(ready)).removed == ONE
    ready.check()


def test_a_standing_hold_never_ends(ready: Installation) -> None:
    held(ready, MODEL)
    assert not retention.run(late(ready, **LAPSED)).removed
    assert found(ready, **LAPSED) == set()


def moved(at: Installation) -> None:
    write(at, "UPDATE legal_holds SET released_at = :then", then=LONG_AGO)


def renamed(at: Installation) -> None:
    write(at, "UPDATE legal_holds SET released_by = 'somebody'")


@pytest.mark.parametrize("plant", [moved, renamed])
def test_a_release_that_the_log_does_not_have_so_ends_nothing(
    ready: Installation, released: str, plant: Callable[[Installation], None]
) -> None:
    plant(ready)
    with pytest.raises(HoldsChangedError):
        retention.run(ready.services)
    assert len(stored(ready)) == 1


def test_a_standing_hold_that_the_table_has_as_released_is_left(ready: Installation) -> None:
    held(ready, MODEL)
    write(
        ready,
        "UPDATE legal_holds SET released_by = 'somebody', released_at = :then",
        then=LONG_AGO,
    )
    nothing_ends(ready, ONE)
    assert len(stored(ready)) == 1


def test_a_row_removed_before_its_end_stops_the_run(ready: Installation, released: str) -> None:
    write(ready, "DELETE FROM legal_holds")
    with pytest.raises(HoldsChangedError):
        retention.run(ready.services)
    assert {one.check for one in fsck(ready.services.ledger).findings} == {"hold"}


def test_a_standing_hold_listed_as_ended_still_counts(ready: Installation) -> None:
    hold = held(ready, MODEL)
    write(ready, "DELETE FROM legal_holds")
    listed(ready, "hold", hold)
    with pytest.raises(HoldsChangedError):
        retention.run(ready.services)
    assert EARLY in found(ready)


def test_fsck_finds_a_row_that_is_kept(ready: Installation, released: str) -> None:
    assert found(ready, request_retention_days=0) == set()
    assert found(ready, **LAPSED) == {OVERDUE}
    with ready.services.engine.connect() as connection:
        kept: Any = connection.execute(text("SELECT * FROM legal_holds")).mappings().one()
    assert retention.run(late(ready)).removed == ONE
    names = ", ".join(kept)
    values = ", ".join(f":{name}" for name in kept)
    write(ready, f"INSERT INTO legal_holds ({names}) VALUES ({values})", **kept)
    assert found(ready) == {KEPT}
