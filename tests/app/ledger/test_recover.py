"""Entries are restored only if all are available, and only signed ones."""

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.ledger.guard import RolledBackError
from app.ledger.recover import RecoverError, recover
from app.ledger.sequencer import Ledger
from app.ledger.startup import last_signed, open_ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from lethe.errors import LetheError
from lethe.log.entries import EntryError, Leaf, parse_leaf, succession_leaf
from lethe.log.fetch import LogError
from lethe.log.note import sign_note
from lethe.log.tiles import entries_path
from migrations.runner import upgrade
from models import LogEntry
from models.database.session import make_engine
from tests.app.ledger.samples import append, entry, stored_leaves
from tests.lethe.log.logs import STRANGER, fetch_files, log_files

Files = dict[str, bytes]


def nothing(session: Session, leaves: list[Leaf]) -> int:
    return len(leaves)


@pytest.fixture
def emptied(
    settings: Settings, ledger: Ledger, tmp_path: Path
) -> Iterator[tuple[Ledger, list[bytes]]]:
    """A log of 300 signed entries that lost its database, and the entries."""
    leaves = [entry(number) for number in range(300)]
    append(ledger, *leaves)
    engine = make_engine(f"sqlite:///{tmp_path / 'emptied.db'}")
    upgrade(engine)
    yield open_ledger(settings, engine), leaves
    engine.dispose()


def published(ledger: Ledger, leaves: list[bytes]) -> Files:
    return log_files(leaves, ledger.signers.signers[0])


def test_a_whole_mirror_brings_every_entry_back(emptied: tuple[Ledger, list[bytes]]) -> None:
    ledger, leaves = emptied
    with pytest.raises(LetheError):
        ledger.start()
    done = recover(ledger, [fetch_files(published(ledger, leaves))], nothing)
    assert (done.start, done.size, done.result) == (0, 300, 300)
    assert stored_leaves(ledger.engine) == tuple(leaves)
    assert ledger.entry_key is not None
    with Session(ledger.engine) as session:
        for row in session.exec(select(LogEntry)):
            assert ledger.entry_key.is_authentic(row)
    assert fsck(ledger).ok
    append(ledger, entry(300))
    assert ledger.latest().size == 301
    again = recover(ledger, [fetch_files(published(ledger, leaves))], nothing)
    assert (again.start, again.size, again.result) == (301, 301, 0)


def without_the_last(ledger: Ledger, leaves: list[bytes]) -> Files:
    return published(ledger, leaves[:-1])


def flipped(ledger: Ledger, leaves: list[bytes]) -> Files:
    files = published(ledger, leaves)
    path = entries_path(0)
    files[path] = files[path][:-1] + bytes([files[path][-1] ^ 1])
    return files


def another_leaf(ledger: Ledger, leaves: list[bytes]) -> Files:
    """The log's own key signed a different history of the same size."""
    return published(ledger, [*leaves[:7], entry(999), *leaves[8:]])


def a_strangers(ledger: Ledger, leaves: list[bytes]) -> Files:
    return log_files(leaves, STRANGER)


@pytest.mark.parametrize("plant", [without_the_last, flipped, another_leaf, a_strangers])
def test_nothing_is_written_from_a_mirror_that_is_not_all(
    emptied: tuple[Ledger, list[bytes]], plant: Callable[[Ledger, list[bytes]], Files]
) -> None:
    ledger, leaves = emptied
    guard = ledger.guard.path.read_bytes()
    with pytest.raises(LetheError) as refused:
        recover(ledger, [fetch_files(plant(ledger, leaves))], nothing)
    if plant is without_the_last:
        assert isinstance(refused.value, RecoverError)
        assert "hold 299: 1 are missing" in refused.value.detail
    if plant is flipped:
        assert isinstance(refused.value, LogError)
    assert stored_leaves(ledger.engine) == ()
    assert ledger.guard.path.read_bytes() == guard


def test_two_mirrors_of_different_age_do(emptied: tuple[Ledger, list[bytes]]) -> None:
    ledger, leaves = emptied
    files = [published(ledger, leaves[:150]), published(ledger, leaves)]
    assert recover(ledger, [fetch_files(one) for one in files], nothing).size == 300


def test_a_newer_mirror_is_believed_over_an_older_guard(
    emptied: tuple[Ledger, list[bytes]],
) -> None:
    ledger, leaves = emptied
    more = [*leaves, entry(300)]
    assert recover(ledger, [fetch_files(published(ledger, more))], nothing).size == 301
    assert ledger.guard.read().size == 301


def test_a_database_that_is_behind_stays_refused_until_then(
    ledger: Ledger, settings: Settings, engine: Engine
) -> None:
    append(ledger, entry(1))
    line = ledger.guard.path.read_bytes().splitlines(keepends=True)[-1]
    text = line.replace(b'"size":1', b'"size":2')
    ledger.guard.path.write_bytes(ledger.guard.path.read_bytes() + text)
    with pytest.raises(RolledBackError):
        open_ledger(settings, engine).start()
    with pytest.raises(RecoverError, match="1 are missing"):
        recover(open_ledger(settings, engine), [], nothing)


def test_the_first_entry_of_a_successor_names_what_the_old_key_signed(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(1), entry(2))
    vkey, note = last_signed(settings, settings.keys_dir)
    assert note == ledger.latest().note
    day = date(2026, 11, 22)
    leaf = succession_leaf(vkey, note, day)
    said = parse_leaf(leaf)
    assert (said.event, said.checkpoint, said.day) == ("log.succeeded", note, day)
    text = note.partition("\n\n")[0] + "\n"
    line = sign_note(text, STRANGER).removeprefix(text + "\n")
    for forged in (note.replace("\n2\n", "\n3\n"), note + line, note + note.splitlines()[-1]):
        with pytest.raises(EntryError):
            succession_leaf(vkey, forged, day)
    with pytest.raises(EntryError):
        succession_leaf(STRANGER.verifier.vkey, note, day)
    for damaged in (
        leaf.replace(b'"size"', b'"sise"'),
        leaf.replace(b"succeeded", b"replaced"),
    ):
        if damaged != leaf:
            with pytest.raises(EntryError):
                parse_leaf(damaged)
