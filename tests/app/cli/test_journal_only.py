"""`lethe restore --journal-only`: tombstones added to the journal, and lines left by a crash."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from app import steps
from app.cli.backup import backup, restore
from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.purge import retention
from app.service.context import open_services
from app.settings import Settings
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import Erased, ErasureJournal
from app.vault.master import RootSecret
from lethe.cli.log import log
from lethe.signing.keys import generate_key
from models import Artifact, Contribution, ErasureRequest, LogEntry, Record, Tombstone
from models.database.types import clock
from tests.app.cli.test_backup import elsewhere, mirror, point_at, rows, stored
from tests.app.ledger.samples import tamper
from tests.installation import Installation
from tests.small import MODEL, Caller, pack
from tests.small import rows as small_rows
from tests.workers.jobs.leases.test_deaths import set_ahead
from workers.errors import RefusedError
from workers.jobs import learn

__all__ = ["elsewhere"]  # a fixture

WISH = f"/v1/models/{MODEL}/contributions?add_back=true"
LOST = b""


@pytest.fixture
def ready(running: Installation) -> Installation:
    """The installation of the environment, with a fitted model."""
    return running


@pytest.fixture
def client(ready: Installation) -> Caller:
    """Client c1, to whom r1 and r6 belong."""
    made = Caller(ready.caller.http, ready.caller.token, keyid="client")
    made.key = generate_key("ed25519")
    assert made.register_key(role="client", client="c1").status_code == 201
    return made


def run(*arguments: str, answer: str | None = None) -> Result:
    told = CliRunner().invoke(restore, ["--journal-only", *arguments], input=answer)
    assert told.exit_code == 0, (told.output, told.exception)
    return told


def erase(ready: Installation, *records: str) -> str:
    answer = ready.caller.erase_records(*records)
    assert answer.status_code == 202, answer.text
    ready.drain()
    with Session(ready.services.engine) as session:
        return session.get_one(ErasureRequest, answer.json()["id"]).ref


def bring_back(client: Caller, *numbers: int) -> str:
    arrays: dict[str, Any] = {
        name: values[list(numbers)] for name, values in small_rows().items()
    }
    arrays["clients"] = np.array(["c1"] * len(numbers))
    answer = client.signed("POST", WISH, pack(arrays), content_type="application/x-npz")
    assert answer.status_code == 202, answer.text
    return str(answer.headers["location"])


def lose_journal(ready: Installation) -> Path:
    path = ready.settings.keys_dir / JOURNAL
    path.write_bytes(LOST)
    return path


def journal(settings: Settings) -> Erased:
    return ErasureJournal(settings.keys_dir / JOURNAL, RootSecret.load(settings)).read()


def known(settings: Settings) -> set[bytes]:
    return {tag for tags in journal(settings).records.values() for tag in tags}


def stones(ready: Installation) -> dict[bytes, dict[str, Any]]:
    with Session(ready.services.engine) as session:
        found = session.exec(select(Tombstone)).all()
        return {bytes(stone.tag): stone.model_dump() for stone in found}


def plant(ready: Installation, stone: dict[str, Any]) -> None:
    with Session(ready.services.engine) as session:
        session.add(Tombstone(**stone))
        session.commit()


def findings() -> str:
    return CliRunner().invoke(log, ["fsck"]).output


def test_tombstones_that_the_log_confirms_are_shown_and_then_added(ready: Installation) -> None:
    first, second = erase(ready, "r1", "r2"), erase(ready, "r3")
    path = lose_journal(ready)
    asked = run(answer="n\n")
    assert "lacks 3 tombstones of the database" in asked.output
    assert f"request {first}: 2 tombstones; the log confirms them" in asked.output
    assert f"request {second}: 1 tombstone; the log confirms them" in asked.output
    assert "add 3 tombstones to the erasure journal?" in asked.output
    assert "nothing was added" in asked.output
    assert path.read_bytes() == LOST
    assert "journal: the erasure journal lacks 3 tombstones" in findings()
    told = run(answer="y\n")
    assert "added to the erasure journal: 2 lines with 3 tombstones" in told.output
    assert known(ready.settings) == set(stones(ready))
    assert journal(ready.settings).requests == {first, second}
    assert not any(record in told.output for record in ("r1", "r2", "r3"))
    ready.check()
    again = run("--yes")
    assert "has all tombstones" in again.output
    assert len(journal(ready.settings).lines) == 2


def test_a_tombstone_that_was_kept_and_planted_after_the_return_is_not_added(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1", "r2")
    before = stones(ready)
    bring_back(client, 1)
    ready.drain()
    (kept,) = before.keys() - stones(ready).keys()
    plant(ready, before[kept])
    path = ready.settings.keys_dir / JOURNAL
    written = path.read_bytes()
    open_services(ready.settings).close()
    told = run("--yes")
    assert "not added: these records are in the training set" in told.output
    assert path.read_bytes() == written
    assert kept not in known(ready.settings)
    assert "journal: the erasure journal lacks 1 tombstones" in findings()
    # Removing its row too makes the training set differ from the log.
    with Session(ready.services.engine) as session:
        rows_of = session.exec(select(Record)).all()
        session.delete(next(row for row in rows_of if row.record == "r1"))
        session.commit()
    told = run("--yes")
    assert "not added: erased records were added back since" in told.output
    assert path.read_bytes() == written


def test_whoever_hides_that_a_record_came_back_is_found_out(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1")
    (stone,) = stones(ready).values()
    bring_back(client, 1)
    ready.drain()
    erase(ready, "r2")  # so the hidden entry is not the last, which a start checks
    plant(ready, stone)
    with Session(ready.services.engine) as session:
        rows_of = session.exec(select(Record)).all()
        session.delete(next(row for row in rows_of if row.record == "r1"))
        session.commit()
        learned = select(LogEntry.index).where(LogEntry.event == "contribution.learned")
        last = max(session.exec(learned).all())
    tamper(
        ready.services.engine,
        'UPDATE log_entries SET leaf = (SELECT leaf FROM log_entries WHERE "index" = 0) '
        f'WHERE "index" = {last}',
    )
    path = ready.settings.keys_dir / JOURNAL
    written = path.read_bytes()
    told = CliRunner().invoke(restore, ["--journal-only", "--yes"])
    assert told.exit_code != 0
    assert "not those that were signed" in str(told.exception)
    assert path.read_bytes() == written


def test_tombstones_of_before_a_return_are_added_where_the_set_is_the_log_s(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1", "r2")
    bring_back(client, 1)
    ready.drain()
    lose_journal(ready)
    told = run("--yes")
    assert "1 lines with 1 tombstones" in told.output
    assert known(ready.settings) == set(stones(ready))
    # The journal also lost the line of r1 being added back, and fsck reports it.
    assert "the log has erased records added back, and the erasure journal lacks them" in (
        findings()
    )


NAMELESS, OTHER, NEVER, UNNAMED, ENDED = "none", "another", "never", "unnamed", "ended"
REASONS = {
    NAMELESS: "they name no request",
    NEVER: "the log has no execution of this request for this model",
    OTHER: "the evidence of this request does not name these records",
    UNNAMED: "the evidence of this request does not name these records",
    ENDED: "the evidence of this request is no longer kept",
}


@pytest.mark.parametrize("case", REASONS)
def test_tombstones_that_the_log_does_not_confirm_are_listed_and_not_added(
    ready: Installation, case: str
) -> None:
    refs = {"r1": erase(ready, "r1"), "r2": erase(ready, "r2")}
    waiting = ready.caller.erase_records("r3").json()["id"]
    with Session(ready.services.engine) as session:
        ids = {
            record: session.exec(
                select(ErasureRequest.id).where(ErasureRequest.ref == ref)
            ).one()
            for record, ref in refs.items()
        }
        of_r1 = col(Tombstone.request_id) == ids["r1"]
        change = update(Tombstone).where(of_r1)
        if case == UNNAMED:
            (model,) = set(session.exec(select(Tombstone.model_id)).all())
            session.add(Tombstone(model_id=model, tag=b"x" * 32, request_id=ids["r1"]))
            session.connection().execute(delete(Tombstone).where(of_r1))
        elif case != ENDED:
            named = {NAMELESS: None, OTHER: ids["r2"], NEVER: waiting}[case]
            session.connection().execute(change.values(request_id=named))
        session.commit()
    if case == ENDED:
        past = ready.settings.model_copy(update={"request_retention_days": -1})
        ended = retention.run(replace(ready.services, settings=past)).removed
        assert ended == {"evidence": 2, "scope": 2}
    lose_journal(ready)
    told = run("--yes")
    assert f"not added: {REASONS[case]}" in told.output
    added = 0 if case == ENDED else 1
    assert len(known(ready.settings)) == added
    assert journal(ready.settings).requests == ({refs["r2"]} if added else set())
    assert ("nothing was added" in told.output) == (not added)


def test_yes_is_for_the_journal_alone(ready: Installation, tmp_path: Path) -> None:
    told = CliRunner().invoke(restore, [str(tmp_path), "--yes"])
    assert told.exit_code == 2
    assert "--yes needs --journal-only" in told.output


def crash_while_returning(ready: Installation, client: Caller) -> None:
    """Die after journaling that r1 is added back, before the transaction commits."""
    bring_back(client, 1)
    steps.plant("execute.journaled=raise")
    try:
        with pytest.raises(steps.PlantedFaultError):
            ready.drain()
    finally:
        steps.install(None)
    assert any(line.returned for line in journal(ready.settings).lines)
    assert known(ready.settings) == set()  # the file alone


def test_a_return_that_never_committed_does_not_undo_an_erasure(
    ready: Installation,
    client: Caller,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It crashed, and was refused when retried: every restore erases r1."""
    old = str(tmp_path / "old")
    assert CliRunner().invoke(backup, ["new", old]).exit_code == 0
    erase(ready, "r1")
    crash_while_returning(ready, client)
    assert "PASS" in findings()

    def refuse(*_: object) -> None:
        raise RefusedError("the method lacks what it needs")

    monkeypatch.setattr(learn, "run", refuse)
    ready.recover()
    ready.drain()
    with Session(ready.services.engine) as session:
        states = set(session.exec(select(Contribution.state)).all())
    assert "failed" in states
    assert "PASS" in findings()
    mirror(ready, tmp_path / "mirror")
    new = ready.settings.model_copy(
        update={"database_url": elsewhere, "data_dir": tmp_path / "new"}
    )
    shutil.copytree(ready.settings.keys_dir, new.keys_dir)
    point_at(new, monkeypatch)
    assert CliRunner().invoke(restore, [old]).exit_code == 0
    assert CliRunner().invoke(log, ["recover", str(tmp_path / "mirror")]).exit_code == 0
    assert "r1" not in stored(new)
    with rows(new) as session:  # nor can it be contributed like a new record
        assert set(session.exec(select(Tombstone.tag)).all()) == set(stones(ready))
    for settings in (new, ready.settings):
        open_services(settings).close()
    assert [one for one in caplog.records if "tombstone" in one.getMessage()] == []


def test_a_return_that_crashed_and_was_done_again_counts_once(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1")
    crash_while_returning(ready, client)
    ready.recover()
    ready.drain()
    assert "r1" in stored(ready.settings)
    ready.check()
    open_services(ready.settings).close()
    assert "erased again: 0 records" in run("--yes").output
    assert "r1" in stored(ready.settings)


def test_an_entry_that_took_the_place_of_a_crashed_return_is_not_it(
    ready: Installation, client: Caller
) -> None:
    erase(ready, "r1")
    crash_while_returning(ready, client)

    def effect(tx: Transaction) -> int:
        return [record_model_event(tx, MODEL, "contribution.learned", {}) for _ in "ab"][-1]

    index = ready.services.ledger.transact(effect)
    assert index == max(line.entry or 0 for line in journal(ready.settings).lines)
    ready.check()
    assert "has all tombstones" in run("--yes").output


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_what_is_destroyed_again_is_so_by_the_databases_clock(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep looks there whether old versions of rows may be left, with keys in them."""
    with Session(ready.services.engine) as session:
        keys = session.exec(select(Artifact.id, Artifact.wrapped_key)).all()
    erase(ready, "r1")
    with Session(ready.services.engine) as session:
        for artifact_id, key in keys:
            if (one := session.get(Artifact, artifact_id)) is not None and key is not None:
                one.wrapped_key = key
                one.shredded_at = one.unlinked_at = None
        session.commit()
        begun = clock(session)
    set_ahead(monkeypatch, timedelta(hours=-1))
    run()
    with Session(ready.services.engine) as session:
        late = select(Artifact).where(col(Artifact.shredded_at) >= begun)
        assert session.exec(late).first() is not None
