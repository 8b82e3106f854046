"""Rows written by an attacker with access to the database alone are never signed.

The attacker in these tests has everything except the files in the keys directory.
"""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app import steps
from app.ledger.entry_macs import EntryKey, KeyMissingError, new_entry_key
from app.ledger.guard import ForkedError, GuardError
from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger
from app.ledger.startup import init_log, load_ledger, open_ledger
from app.ledger.transaction import Transaction
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from lethe.log.entries import event_leaf, parse_leaf
from lethe.log.tree import Peaks, leaf_hash
from migrations.grants import grant
from models import LogEntry
from models.database.session import make_engine
from tests.app.ledger.samples import append, entry, rewind, stored_leaves, tamper

FORGED = event_leaf(
    "request.verified", "6f1c9d0a-3c1e-4b6c-9d33-2f6f0a1b2c3d", b"c" * 32, date(2026, 1, 2)
)


def insert(
    session: Session,
    leaf: bytes,
    mac: Callable[[LogEntry], bytes] | bytes = bytes(32),
    *,
    nodes: bool = True,
) -> int:
    """Append a row and its nodes with plain SQL, as anyone with INSERT can."""
    leaves = list(session.exec(select(LogEntry.leaf).order_by(col(LogEntry.index))))
    parsed, index = parse_leaf(leaf), len(leaves)
    day = str(parsed.day or date(2026, 1, 2))
    row = LogEntry(
        index=index,
        leaf=leaf,
        kind=parsed.kind,
        event=parsed.event,
        ref=parsed.ref,
        day=day,
        mac=b"",
    )
    row.mac = mac if isinstance(mac, bytes) else mac(row)
    session.connection().execute(
        text(
            'INSERT INTO log_entries ("index", leaf, kind, event, ref, day, mac) '
            "VALUES (:index, :leaf, :kind, :event, :ref, :day, :mac)"
        ),
        row.model_dump(),
    )
    peaks = Peaks()
    for one in [*leaves, leaf]:
        made = list(peaks.append(leaf_hash(one)))
    for level, at, value in made if nodes else ():
        session.connection().execute(
            text('INSERT INTO log_nodes (level, "index", hash) VALUES (:l, :i, :h)'),
            {"l": level, "i": at, "h": value},
        )
    return index


def refused(ledger: Ledger, settings: Settings, message: str) -> None:
    """Assert that neither a running nor a new process signs anything or runs an effect."""
    signed, published = ledger.guard.read(), ledger.latest().size
    called: list[Transaction] = []
    for tries in (
        lambda: ledger.transact(called.append),
        lambda: ledger.transact(called.append, checkpoint=False),
        ledger.publish_checkpoint,
        lambda: load_ledger(settings, ledger.engine),
    ):
        with pytest.raises(ForkedError, match=message):
            tries()
    assert called == []
    assert ledger.guard.read() == signed
    assert ledger.latest().size == published


def _of_another_key(row: LogEntry) -> bytes:
    return EntryKey(bytes(32), "ledger.test/lethe").mac(row)


@pytest.mark.parametrize("mac", [b"", bytes(32), _of_another_key], ids=["none", "zeros", "key"])
def test_a_row_that_lethe_did_not_write_is_never_signed(
    ledger: Ledger, settings: Settings, mac: Callable[[LogEntry], bytes] | bytes
) -> None:
    append(ledger, entry(0), entry(1))
    with Session(ledger.engine) as session:
        insert(session, FORGED, mac)
        session.commit()
    refused(
        ledger,
        settings,
        "entry 2 was not written by this installation.*docs/troubleshooting.md",
    )
    findings = [(found.check, found.log_index) for found in fsck(ledger).findings]
    assert ("mac", 2) in findings


def test_a_mac_counts_for_its_own_entry_at_its_own_place_only(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(0), entry(1))
    with Session(ledger.engine) as session:
        copied = session.get_one(LogEntry, 1)
        insert(session, bytes(copied.leaf), bytes(copied.mac))
        session.commit()
    refused(ledger, settings, "entry 2 was not written")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE log_entries SET day = '2026-01-03'",
        "UPDATE log_entries SET event = 'request.executed'",
        "UPDATE log_entries SET ref = 'another'",
        "UPDATE log_entries SET kind = 'erasure-event'",
    ],
)
def test_a_column_beside_an_unsigned_leaf_is_not_changed_either(
    ledger: Ledger, settings: Settings, change: str
) -> None:
    append(ledger, entry(0), checkpoint=False)
    tamper(ledger.engine, change)
    refused(ledger, settings, "entry 0 was not written")


def test_nodes_that_lead_to_another_leaf_are_not_signed(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(0))
    append(ledger, entry(1), entry(2), checkpoint=False)

    def replace(session: Session) -> None:
        session.connection().execute(
            text('UPDATE log_nodes SET hash = :h WHERE level = 0 AND "index" = 2'),
            {"h": leaf_hash(FORGED)},
        )

    tamper(ledger.engine, replace)
    refused(ledger, settings, "node 2 of level 0 is not that of the 3 entries")


def test_nodes_laid_out_before_their_entries_stop_the_append(ledger: Ledger) -> None:
    append(ledger, entry(0))
    with Session(ledger.engine) as session:
        session.connection().execute(
            text('INSERT INTO log_nodes (level, "index", hash) VALUES (0, 1, :h)'),
            {"h": leaf_hash(FORGED)},
        )
        session.commit()
    with pytest.raises(ForkedError, match="at or above entry 1"):
        append(ledger, entry(1))
    assert stored_leaves(ledger.engine) == (entry(0),)


def test_a_gap_is_not_signed(ledger: Ledger, settings: Settings) -> None:
    append(ledger, entry(0))
    append(ledger, entry(1), checkpoint=False)
    append(ledger, entry(2), checkpoint=False)
    tamper(ledger.engine, 'DELETE FROM log_entries WHERE "index" = 1')
    refused(ledger, settings, "entry 1 of the log is missing")


@pytest.mark.parametrize("size", [2, 10**6])
def test_a_checkpoint_that_nobody_signed_does_not_pass_for_published(
    ledger: Ledger, settings: Settings, size: int
) -> None:
    append(ledger, entry(0))
    with Session(ledger.engine) as session:
        session.connection().execute(
            text(
                "INSERT INTO log_checkpoints (size, root, note, signed_at) "
                "SELECT :size, root, note, signed_at FROM log_checkpoints WHERE size = 1"
            ),
            {"size": size},
        )
        session.commit()
    called: list[Transaction] = []
    for tries in (
        lambda: ledger.transact(called.append),
        lambda: load_ledger(settings, ledger.engine),
    ):
        with pytest.raises(GuardError, match="signed note"):
            tries()
    assert called == []


def test_what_another_process_appended_is_verified_before_this_one_goes_on(
    ledger: Ledger, settings: Settings
) -> None:
    """A process that verified the log before reads only new entries, and checks their MACs."""
    append(ledger, entry(0))
    other = load_ledger(settings)
    append(other, entry(1))
    append(other, entry(2), checkpoint=False)
    tamper(ledger.engine, """UPDATE log_entries SET event = 'x' WHERE "index" = 2""")
    with pytest.raises(ForkedError, match="entry 2 was not written by this installation"):
        append(ledger, entry(3))
    assert ledger.guard.read().size == 2
    other.engine.dispose()


def test_an_entry_inserted_between_commit_and_checkpoint_is_not_signed(ledger: Ledger) -> None:
    append(ledger, entry(0))

    def forge(step: str) -> None:
        if step == "ledger.committed":
            with Session(ledger.engine) as session:
                insert(session, FORGED)
                session.commit()

    steps.install(forge)
    with pytest.raises(UnpublishedError):
        append(ledger, entry(1))
    steps.install(None)
    assert ledger.guard.read().size == 1
    with pytest.raises(ForkedError, match="entry 2 was not written"):
        append(ledger, entry(2))


def test_a_last_entry_that_was_exchanged_in_a_running_log_is_noticed(ledger: Ledger) -> None:
    append(ledger, entry(0), entry(1))
    tamper(
        ledger.engine,
        'DELETE FROM log_entries WHERE "index" = 1',
        'DELETE FROM log_nodes WHERE "index" = 1 OR level = 1',
    )
    with Session(ledger.engine) as session:
        insert(session, FORGED)
        session.commit()
    with pytest.raises(GuardError, match="are not those that were signed"):
        append(ledger, entry(2))


def test_the_log_goes_on_once_the_foreign_rows_are_removed(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(0), entry(1))
    with Session(ledger.engine) as session:
        insert(session, FORGED)
        session.commit()
    rewind(ledger.engine, 2)  # the statements of docs/troubleshooting.md
    again = load_ledger(settings, ledger.engine)
    assert append(again, entry(2)) == [2]
    assert fsck(again).ok


def test_the_restricted_role_cannot_have_its_rows_signed(
    postgres_url: str, data_dir: Path
) -> None:
    owner = make_engine(postgres_url)
    with owner.begin() as connection:
        connection.execute(text("CREATE ROLE forger LOGIN PASSWORD 'forger'"))
    grant(owner, "forger")
    service = make_engine(
        owner.url.set(username="forger", password="forger").render_as_string(False)
    )
    settings = Settings(data_dir=data_dir, origin="ledger.test/role")
    try:
        ledger = init_log(settings, service)
        append(ledger, entry(0))
        with Session(service) as session:
            insert(session, FORGED)
            session.commit()
        refused(ledger, settings, "entry 1 was not written")
    finally:
        service.dispose()
        with owner.begin() as connection:
            connection.execute(text("DROP OWNED BY forger"))
            connection.execute(text("DROP ROLE forger"))
        owner.dispose()


def test_a_long_tail_is_verified_from_its_first_entry_on(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(0))
    guard = settings.keys_dir / "log.guard.json"
    backup = guard.read_bytes()
    append(ledger, *[entry(number) for number in range(1, 600)])
    tamper(ledger.engine, 'UPDATE log_entries SET mac = leaf WHERE "index" = 7')
    assert append(ledger, entry(600)) == [600]  # the guard covers it: only fsck looks there
    guard.write_bytes(backup)
    with pytest.raises(ForkedError, match="entry 7 was not written"):
        load_ledger(settings, ledger.engine)


def _missing(path: Path) -> None:
    path.unlink()


def _another(path: Path) -> None:
    path.write_bytes(new_entry_key())


def _none(path: Path) -> None:
    path.write_bytes(b"no key\n")


@pytest.mark.parametrize(
    ("damage", "remedy"),
    [
        (_missing, "entries.key is missing: restore"),
        (_another, "entries.key is not the key of this log.*restore"),
        (_none, "entries.key is not a key.*restore"),
    ],
)
def test_without_its_own_entries_key_a_log_does_not_start(
    ledger: Ledger, settings: Settings, damage: Callable[[Path], None], remedy: str
) -> None:
    append(ledger, entry(0))
    damage(settings.keys_dir / "entries.key")
    with pytest.raises(KeyMissingError, match=remedy):
        load_ledger(settings, ledger.engine)


def test_fsck_without_the_key_checks_the_rest_and_says_so(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(0), entry(1))
    assert fsck(ledger).as_json()["macs"] == "checked"
    tamper(ledger.engine, 'UPDATE log_entries SET mac = leaf WHERE "index" = 1')
    (finding,) = fsck(ledger).findings
    assert (finding.check, finding.log_index) == ("mac", 1)
    (settings.keys_dir / "entries.key").unlink()
    report = fsck(open_ledger(settings, ledger.engine, examine=True))
    assert report.ok
    assert report.as_json()["macs"] == "not checked: entries.key is not here"


def test_a_mac_says_log_place_and_every_column() -> None:
    row = LogEntry(index=1, leaf=b"l", kind="k", event=None, ref="r", day="d", mac=b"")
    key = EntryKey(b"k" * 32, "a")
    macs = {key.mac(row), EntryKey(b"k" * 32, "b").mac(row), EntryKey(b"j" * 32, "a").mac(row)}
    changes = [("index", 2), ("leaf", b"m"), ("kind", "l"), ("event", ""), ("ref", None)]
    for name, value in [*changes, ("day", "e")]:
        macs.add(key.mac(row.model_copy(update={name: value})))
    assert len(macs) == 9
