"""`lethe log fsck --state`: what the next call reads and misses, and what --full does."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.reconcile.fsck import tree as fsck_tree
from app.settings import Settings
from app.vault.artifacts import GRACE
from lethe import canonical
from lethe.cli.log import log
from lethe.signing.keys import PrivateKey
from models import Artifact, Certificate, Model, Record
from models.database.types import utcnow
from tests.app.ledger.samples import append, entry, rewind, tamper
from tests.installation import Installation, install
from tests.workers.jobs.leases.test_deaths import set_ahead


@pytest.fixture
def ready(
    settings: Settings, environment: None, with_certificate: PrivateKey
) -> Iterator[Installation]:
    """An installation with a certificate, whose model does not change afterwards."""
    with install(settings) as made:
        made.caller.key = with_certificate
        yield made


@pytest.fixture
def state(ready: Installation, tmp_path: Path) -> Path:
    """The state of a first call; everything stored is older than its transactions."""
    path = tmp_path / "fsck.json"
    with Session(ready.services.engine) as session:
        long_ago = update(Artifact).values(created_at=utcnow() - 2 * GRACE)
        session.connection().execute(long_ago)
        session.commit()
    assert fsck(path)["before"] == 0
    return path


def fsck(state: Path, *words: str, passes: bool = True) -> dict[str, Any]:
    answer = CliRunner().invoke(log, ["fsck", "--json", "--state", str(state), *words])
    assert answer.exit_code == (0 if passes else 1), answer.output
    found: dict[str, Any] = json.loads(answer.output)
    return found


def names(found: dict[str, Any]) -> set[str]:
    return {one["check"] for one in found["findings"]}


def grow(ready: Installation) -> None:
    append(ready.services.ledger, entry(7), entry(8))


def test_the_next_call_reads_what_is_new(
    ready: Installation, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ready.services.ledger.latest().size
    read: list[int] = []
    check = fsck_tree.check_entry

    def note(found: Any, report: Any) -> None:
        read.append(found.index)
        check(found, report)

    monkeypatch.setattr(fsck_tree, "check_entry", note)
    assert fsck(state)["before"] == size
    assert read == []
    grow(ready)
    found = fsck(state)
    assert (found["before"], found["size"], read) == (size, size + 2, [size, size + 1])
    assert found["checkpoints"] == fsck(state, "--full")["checkpoints"]
    assert read[2:] == list(range(size + 2))
    assert "--full" in found["unread"]
    text = CliRunner().invoke(log, ["fsck", "--state", str(state)]).output
    assert f"{size + 2} entries were verified before; not read again" in text


def test_an_unpublished_entry_is_read_again_until_it_is_signed(
    ready: Installation, state: Path
) -> None:
    ledger = ready.services.ledger
    signed = ledger.latest().size
    append(ledger, entry(7), checkpoint=False)
    for _ in range(2):
        assert fsck(state)["before"] == signed
    append(ledger, entry(8))
    assert fsck(state)["before"] == signed
    assert fsck(state)["before"] == signed + 2


def _leaf(session: Session) -> None:
    text = "UPDATE log_entries SET day = '2020-01-01' WHERE \"index\" = 0"
    session.connection().exec_driver_sql(text)


def _node(session: Session) -> None:
    session.connection().exec_driver_sql(
        'DELETE FROM log_nodes WHERE level = 1 AND "index" = 0'
    )


def _envelope(session: Session) -> None:
    row = session.exec(select(Certificate)).one()
    row.envelope = {**row.envelope, "payload": "e30="}
    session.add(row)


def _record(session: Session) -> None:
    row = session.exec(select(Record).limit(1)).one()
    row.salt = bytes(32)
    session.add(row)


# Each change is in the verified part, and each is found by a different check.
OLD = {"entry": _leaf, "node": _node, "certificate": _envelope, "record": _record}


@pytest.mark.parametrize("check", OLD)
def test_what_was_verified_before_is_seen_by_a_full_read_alone(
    ready: Installation, state: Path, check: str
) -> None:
    tamper(ready.services.engine, OLD[check])
    grow(ready)
    assert fsck(state)["before"] > 0
    assert check in names(fsck(state, "--full", passes=False))
    assert fsck(state)["before"] > 0  # the findings of --full do not change the state


def test_an_old_file_is_opened_by_a_full_read_alone(ready: Installation, state: Path) -> None:
    _damage(ready, lambda artifact: artifact.kind == "evidence")
    assert fsck(state)["before"] > 0
    assert "file" in names(fsck(state, "--full", passes=False))


def _damage(ready: Installation, which: Callable[[Artifact], bool]) -> None:
    with Session(ready.services.engine) as session:
        (one,) = (
            row for row in session.exec(select(Artifact)) if which(row) and row.wrapped_key
        )
        path = ready.settings.data_dir / "artifacts" / one.id
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))


def test_what_is_new_is_checked_and_named_by_a_full_read(
    ready: Installation, state: Path
) -> None:
    before = state.read_bytes()
    size = ready.services.ledger.latest().size
    grow(ready)
    tamper(
        ready.services.engine,
        f"UPDATE log_entries SET day = '2020-01-01' WHERE \"index\" = {size}",
    )
    found = fsck(state, passes=False)
    assert (found["before"], names(found)) == (0, {"entry", "mac"})
    assert state.read_bytes() == before  # a log with findings is not kept as verified


def test_a_new_certificate_its_model_and_its_files_are_checked(
    ready: Installation, state: Path
) -> None:
    assert ready.caller.erase_records("r2").status_code == 202
    ready.drain()
    assert fsck(state)["before"] > 0
    old = state.read_bytes()
    assert ready.caller.erase_records("r3").status_code == 202
    ready.drain()
    # The model has a new version, so all its records are read.
    tamper(ready.services.engine, _record)
    assert "record" in names(fsck(state, passes=False))
    assert state.read_bytes() == old
    newest = _newest(ready)
    _damage(ready, lambda artifact: artifact.id == newest)
    assert "file" in names(fsck(state, passes=False))


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(("stores", "checks"), [(-3, 0), (0, 3)])
def test_a_file_is_new_by_the_databases_clock(
    ready: Installation,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    stores: int,
    checks: int,
) -> None:
    """A machine that is three hours behind stores it, or one three hours ahead checked before.

    No later call would open it.
    """
    set_ahead(monkeypatch, timedelta(hours=checks))
    fsck(state)
    with Session(ready.services.engine) as session:
        known = session.exec(select(Artifact.id)).all()
    set_ahead(monkeypatch, timedelta(hours=stores))
    assert ready.caller.erase_records("r2").status_code == 202
    ready.drain()
    _damage(ready, lambda artifact: artifact.id not in known and artifact.kind == "state")
    assert "file" in names(fsck(state, passes=False))


def _newest(ready: Installation) -> str:
    with Session(ready.services.engine) as session:
        query = select(Artifact.id).where(Artifact.kind == "evidence")
        return session.exec(query.order_by(col(Artifact.created_at).desc()).limit(1)).one()


def test_rows_that_tables_lack_are_missed_in_every_call(
    ready: Installation, state: Path
) -> None:
    tamper(ready.services.engine, lambda session: session.delete(_certificate(session)))
    assert "certificate" in names(fsck(state, passes=False))


def _certificate(session: Session) -> Certificate:
    return session.exec(select(Certificate)).one()


def test_another_configuration_of_a_model_is_seen_in_every_call(
    ready: Installation, state: Path
) -> None:
    def change(session: Session) -> None:
        model = session.exec(select(Model)).one()
        model.config = {**model.config, "bits": 8}
        session.add(model)

    tamper(ready.services.engine, change)
    assert "model" in names(fsck(state, passes=False))


def test_a_shorter_log_is_seen(ready: Installation, state: Path) -> None:
    rewind(ready.services.engine, ready.services.ledger.latest().size - 2)
    assert names(fsck(state, passes=False)) >= {"guard"}


def _longer(said: dict[str, Any]) -> None:
    said["size"] = str(int(said["size"]) + 1)


def _forged(said: dict[str, Any]) -> None:
    said["peaks"] = said["peaks"][::-1]


def _other_mac(said: dict[str, Any]) -> None:
    said["mac"] = "00" * 32


def _no_mac(said: dict[str, Any]) -> None:
    del said["mac"]


@pytest.mark.parametrize("change", [_longer, _forged, _other_mac, _no_mac])
def test_a_state_that_fsck_did_not_write_is_a_finding_and_everything_is_read(
    state: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    said = canonical.decode(state.read_bytes().removesuffix(b"\n"))
    change(said)
    state.write_bytes(canonical.encode(said) + b"\n")
    written = state.read_bytes()
    found = fsck(state, passes=False)
    assert (found["before"], names(found)) == (0, {"state"})
    assert state.read_bytes() == written


@pytest.mark.parametrize("data", [b"", b"{}\n", b"\xff", b"[]"])
def test_a_damaged_state_is_a_finding(state: Path, data: bytes) -> None:
    state.write_bytes(data)
    assert names(fsck(state, passes=False)) == {"state"}


def test_a_state_of_another_key_is_a_finding(
    ready: Installation, state: Path, tmp_path: Path
) -> None:
    key = ready.settings.keys_dir / "entries.key"
    secret = key.read_bytes()
    key.unlink()
    answer = CliRunner().invoke(log, ["fsck", "--state", str(state)])
    key.write_bytes(secret)
    assert answer.exit_code == 2
    assert "entries.key" in answer.output
    answer = CliRunner().invoke(log, ["fsck", "--state", str(tmp_path / "none" / "state")])
    assert answer.exit_code == 2
    assert "cannot be written" in answer.output
