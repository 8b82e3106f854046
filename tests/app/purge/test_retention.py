"""The end of retention: nothing is destroyed early, and the log has no false entry."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlmodel import select

from app import steps
from app.cli.retention import retention as command
from app.ledger.transaction import Transaction
from app.purge import retention
from app.reconcile.fsck.run import fsck
from app.reconcile.retention import items_digest, stored_entries
from app.service.context import Services
from lethe.catalogue import RETAINED
from lethe.log.entries import Leaf
from models import ErasureRequest, RetentionRemoval
from tests.installation import Installation

NOW = {"request_retention_days": 0}
BOTH = {"evidence": 1, "scope": 1}


@pytest.fixture(autouse=True)
def _harmless() -> Iterator[None]:
    yield
    steps.install(None)


def late(at: Installation, **periods: int) -> Services:
    """Services with settings under which some retention periods are over."""
    return replace(at.services, settings=at.settings.model_copy(update=periods or NOW))


def certified(at: Installation, *records: str) -> str:
    """Erase records; return the id of the certified request."""
    request = str(at.caller.erase_records(*records).json()["id"])
    at.drain()
    assert at.caller.http.get(f"/v1/requests/{request}").json()["state"] == "certified"
    return request


def entries(at: Installation) -> list[tuple[int, Leaf]]:
    with at.services.reading() as session:
        return stored_entries(session)


def stored(at: Installation) -> list[RetentionRemoval]:
    with at.services.reading() as session:
        return list(session.exec(select(RetentionRemoval)))


def write(at: Installation, statement: str, **values: Any) -> None:
    with at.services.engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount == 1


def problems(at: Installation) -> set[str]:
    return {one.detail for one in fsck(at.services.ledger).findings if one.check == "retention"}


def files(at: Installation) -> set[str]:
    return {path.name for path in (at.settings.data_dir / "artifacts").iterdir()}


def test_nothing_ends_before_its_time_and_the_log_says_nothing(ready: Installation) -> None:
    request = certified(ready, "r1", "r2")
    size = ready.services.ledger.latest().size
    done = retention.run(ready.services)
    assert (dict(done.removed), done.log_index) == ({}, None)
    assert ready.services.ledger.latest().size == size
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["scope"]["records"] == ["r1", "r2"]
    assert ready.caller.http.get(f"/v1/requests/{request}/evidence").status_code == 200


def test_an_open_request_never_ends(ready: Installation) -> None:
    request = str(ready.caller.erase_records("r1").json()["id"])
    assert not retention.run(late(ready)).removed
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["scope"] is not None


def test_the_log_counts_what_was_destroyed(ready: Installation) -> None:
    certified(ready, "r1")
    certified(ready, "r2")
    before = files(ready)
    done = retention.run(late(ready))
    ((index, leaf),) = entries(ready)
    assert index == done.log_index
    assert {kind: one.count for kind, one in leaf.ended.items()} == {"evidence": 2, "scope": 2}
    assert {kind: one.before for kind, one in leaf.ended.items()} == {
        kind: done.before[kind] for kind in ("evidence", "scope")
    }
    assert leaf.digests["items"] == items_digest(stored(ready))
    assert len(before - files(ready)) == 2, "two files of evidence"
    assert not retention.run(late(ready)).removed
    assert len(entries(ready)) == 1
    ready.check()
    assert fsck(ready.services.ledger).ended == 2


def test_evidence_can_end_before_its_request(ready: Installation) -> None:
    request = certified(ready, "r1")
    assert retention.run(late(ready, evidence_retention_days=0)).removed == {"evidence": 1}
    path = f"/v1/requests/{request}"
    assert ready.caller.http.get(path).json()["scope"]["records"] == ["r1"]
    assert ready.caller.http.get(f"{path}/evidence").status_code == 410
    assert ready.caller.http.get(f"{path}/certificate").status_code == 200
    ready.check()
    assert retention.run(late(ready)).removed == {"scope": 1}
    ready.check()


def test_evidence_is_never_kept_longer_than_its_request(ready: Installation) -> None:
    certified(ready, "r1")
    periods = {"request_retention_days": 0, "evidence_retention_days": 9999}
    assert retention.run(late(ready, **periods)).removed == BOTH


def test_more_than_fit_into_one_transaction_are_one_entry(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    for record in ("r1", "r2", "r3"):
        certified(ready, record)
    assert retention.run(late(ready)).removed == {"evidence": 3, "scope": 3}
    assert len(entries(ready)) == 1
    ready.check()


@pytest.mark.parametrize(
    "step", [*steps.RETENTION_STEPS, "ledger.appended", "ledger.committed"]
)
def test_a_run_that_dies_claims_nothing_and_the_next_one_ends_it(
    ready: Installation, step: str
) -> None:
    certified(ready, "r1")
    before = files(ready)
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        retention.run(late(ready))
    steps.install(None)
    claimed = step == "ledger.committed"  # the items were destroyed before the entry
    assert len(entries(ready)) == claimed
    assert {row.log_index is None for row in stored(ready)} == {not claimed}
    assert fsck(ready.services.ledger).ok
    retention.run(ready.services)  # also where nothing more is due
    ((index, leaf),) = entries(ready)
    assert {kind: one.count for kind, one in leaf.ended.items()} == BOTH
    assert {row.log_index for row in stored(ready)} == {index}
    assert len(before - files(ready)) == 1
    ready.check()


def test_a_failing_disk_leaves_the_log_silent(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(5, "input/output error")

    certified(ready, "r1")
    with monkeypatch.context() as patch:
        patch.setattr(type(ready.services.artifacts), "unlink_shredded", full)
        with pytest.raises(OSError, match="input/output"):
            retention.run(late(ready))
    assert entries(ready) == []
    retention.run(late(ready))
    assert len(entries(ready)) == 1


def faked(at: Installation) -> None:
    """Empty another request with sealed values copied from one whose retention ended."""
    write(
        at,
        "UPDATE erasure_requests SET event_key = (SELECT event_key FROM erasure_requests WHERE "
        "forgotten_at IS NOT NULL) WHERE forgotten_at IS NULL",
    )


def unlisted(at: Installation) -> None:
    write(at, "DELETE FROM retention_removals WHERE kind = 'scope'")


def exchanged(at: Installation) -> None:
    write(
        at,
        "INSERT INTO retention_removals (kind, ref, before, at, log_index) SELECT 'contact', "
        "ref, before, at, log_index FROM retention_removals WHERE kind = 'scope'",
    )


def kept(at: Installation) -> None:
    """Restore items that the log has as destroyed."""
    write(
        at,
        "UPDATE artifacts SET wrapped_key = (SELECT wrapped_key FROM artifacts WHERE kind = "
        "'evidence' AND wrapped_key IS NOT NULL) WHERE kind = 'evidence' AND wrapped_key IS "
        "NULL",
    )


def moved(at: Installation) -> None:
    write(at, "UPDATE retention_removals SET log_index = 1 WHERE kind = 'scope'")


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (faked, "no entry says that its retention ended"),
        (unlisted, "lists something else"),
        (exchanged, "lists something else"),
        (kept, "the database still has it"),
        (moved, "under an entry that does not count it"),
    ],
)
def test_fsck_finds_what_disagrees_with_the_log(
    ready: Installation, plant: Callable[[Installation], None], said: str
) -> None:
    certified(ready, "r1")
    assert retention.run(late(ready)).removed == BOTH
    certified(ready, "r2")
    assert problems(ready) == set()
    plant(ready)
    assert any(said in one for one in problems(ready)), fsck(ready.services.ledger).findings


def test_a_request_that_is_emptied_before_the_first_end_is_logged_is_found(
    ready: Installation,
) -> None:
    certified(ready, "r1")

    def emptied(tx: Transaction) -> None:
        request = tx.session.exec(select(ErasureRequest)).one()
        retention.destroy_evidence(ready.services, tx, request)
        retention.destroy_scope(ready.services, tx, request)

    ready.services.ledger.transact(emptied)
    assert any("no entry" in one or "ended" in one for one in problems(ready)), problems(ready)
    assert not retention.run(ready.services).removed
    assert entries(ready) == []  # nothing lists it: it stays a finding
    assert problems(ready)


def test_the_command_counts_and_destroys(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified(ready, "r1")
    monkeypatch.setenv("LETHE_DATABASE_URL", ready.settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(ready.settings.data_dir))
    monkeypatch.setenv("LETHE_ORIGIN", ready.settings.origin)
    monkeypatch.setenv("LETHE_REQUEST_RETENTION_DAYS", "0")

    def told(*options: str) -> dict[str, Any]:
        answer = CliRunner().invoke(command, ["run", "--json", *options])
        assert answer.exit_code == 0, answer.output
        return dict(json.loads(answer.output))

    planned = told("--dry-run")
    assert (planned["dry_run"], planned["log_index"]) == (True, None)
    assert planned["removed"]["evidence"] == 1
    assert entries(ready) == []
    done = told()
    assert done["removed"] == dict.fromkeys(RETAINED, 0) | {"evidence": 1, "scope": 1}
    assert done["log_index"] == entries(ready)[0][0]
    assert set(told()["removed"].values()) == {0}
    shown = CliRunner().invoke(command, ["run"])
    assert "scope          0 destroyed, ended before " in shown.output
