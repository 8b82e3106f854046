"""The log and the artifacts at size: what must cost the same among many as among few.

A log of 10 million entries is written into the product's own tables on SQLite, with the nodes,
MACs, guard and checkpoint of a real one. Appends and proofs take turns on it and on a small
one, so that a slow minute of the machine slows both. A third log is mirrored and verified over
HTTP from a running service, twice.
"""

import time
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import date
from hmac import digest
from pathlib import Path
from random import Random
from statistics import median

from sqlalchemy import insert
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.ledger.startup import ENTRIES_KEY, load_ledger, open_ledger
from app.ledger.storage import NodeTable
from app.ledger.transaction import Transaction
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.master import RootSecret
from benchmarks.service.installation import Installation
from lethe.log.checkpoint import Checkpoint
from lethe.log.entries import ERASURE_EVENT, event_leaf
from lethe.log.tree import EMPTY_ROOT, Peaks, leaf_hashes, node_hashes
from migrations.runner import upgrade
from models import Artifact, LogCheckpoint
from models.database.session import make_engine
from models.database.types import utcnow

DAY = date(2026, 1, 1)
RECEIVED = "request.received"
SMALL, MIRRORED = 1000, 100_000  # entries
FEW, MANY = 1000, 50_000  # artifacts
PAGE_LEVEL = 16
PAGE = 1 << PAGE_LEVEL  # entries in one transaction: a complete subtree
TURNS = 100
# Sorted once at the end: ten million random refs inserted one by one would be written twice.
INDEXED = ("day", "event", "kind", "ref")


def measure(folder: Path, entries: int) -> dict[str, float]:
    """Return times, rates and ratios; `entries`: of the large log, a multiple of a million."""
    name = f"{entries // 1_000_000}m"
    return {
        **_appends(folder, entries, name),
        **_mirror(folder / "mirrored"),
        "artifact_unlink_growth": _unlinking(folder / "artifacts"),
    }


def _appends(folder: Path, entries: int, name: str) -> dict[str, float]:
    small = _ledger(Installation(folder / "small", {}), SMALL)
    start = time.perf_counter()
    large = _ledger(Installation(folder / "large", {}), entries)
    built = time.perf_counter() - start
    rng = Random(0)
    appends = _in_turns(small, large, lambda ledger: ledger.transact(append))
    inclusions = _in_turns(small, large, lambda ledger: _prove_inclusion(ledger, rng))
    consistencies = _in_turns(small, large, lambda ledger: _prove_consistency(ledger, rng))
    return {
        f"log_built_{name}_seconds": built,
        f"log_append_{name}_ms": 1000 * appends[1],
        f"log_append_growth_{name}": appends[1] / appends[0],
        f"log_inclusion_proof_{name}_ms": 1000 * inclusions[1],
        f"log_inclusion_proof_growth_{name}": inclusions[1] / inclusions[0],
        f"log_consistency_proof_{name}_ms": 1000 * consistencies[1],
    }


def _in_turns(
    small: Ledger, large: Ledger, work: Callable[[Ledger], object]
) -> tuple[float, float]:
    """Return the median seconds of `work` on each of two logs."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 10):
        for ledger, spent in zip((small, large), times, strict=True):
            start = time.perf_counter()
            work(ledger)
            if turn >= 10:  # statements are compiled and pages are read in the first ones
                spent.append(time.perf_counter() - start)
    return median(times[0]), median(times[1])


def append(tx: Transaction) -> int:
    """Append an entry as that of a request; returns its index."""
    return tx.append(event_leaf(RECEIVED, str(uuid.uuid4()), bytes(32), DAY))


def _prove_inclusion(ledger: Ledger, rng: Random) -> None:
    size = ledger.latest().size
    ledger.inclusion(rng.randrange(size), size)


def _prove_consistency(ledger: Ledger, rng: Random) -> None:
    size = ledger.latest().size
    ledger.consistency(rng.randrange(1, size), size)


def _ledger(installation: Installation, size: int) -> Ledger:
    settings = _settings(installation)
    engine = make_engine(settings.resolved_database_url)
    secret = b64decode((settings.keys_dir / ENTRIES_KEY).read_bytes())
    fill(open_ledger(settings, engine), secret, size)
    return load_ledger(settings, engine)  # which checks the tree and an entry's MAC


def _settings(installation: Installation) -> Settings:
    return Settings(
        data_dir=installation.folder / "data",
        origin=installation.environment["LETHE_ORIGIN"],
    )


def fill(ledger: Ledger, secret: bytes, size: int) -> None:
    """Write the first `size` entries of a log that was begun, on SQLite, and sign them."""
    tops = Peaks()  # over the roots of full pages
    connection = ledger.engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous=OFF")
        for column in INDEXED:
            cursor.execute(f"DROP INDEX ix_log_entries_{column}")
        for start in range(0, size, PAGE):
            rows = list(_rows(ledger.origin, secret, start, min(start + PAGE, size)))
            nodes = list(_nodes(tops, start, leaf_hashes(row[1] for row in rows)))
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany("INSERT INTO log_entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            cursor.executemany("INSERT INTO log_nodes VALUES (?, ?, ?)", nodes)
            cursor.execute("COMMIT")
        for column in INDEXED:
            cursor.execute(f"CREATE INDEX ix_log_entries_{column} ON log_entries ({column})")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.execute("PRAGMA synchronous=FULL")
    finally:
        connection.close()
    with Session(ledger.engine) as session:
        checkpoint = Checkpoint(ledger.origin, size, NodeTable(session).root_at(size))
        ledger.guard.advance(checkpoint, lambda _: EMPTY_ROOT)
        note = ledger.sign(checkpoint)
        session.add(LogCheckpoint(size=size, root=checkpoint.root, note=note))
        session.commit()


def _nodes(tops: Peaks, start: int, row: list[bytes]) -> Iterator[tuple[int, int, bytes]]:
    level = 0
    while row:
        for index, value in enumerate(row, start >> level):
            yield level, index, value
        if level == PAGE_LEVEL:
            for above, index, value in tops.append(row[0]):
                if above:
                    yield level + above, index, value
        row, level = node_hashes(row), level + 1


Row = tuple[int, bytes, str, str, str, str, bytes]


def _rows(origin: str, secret: bytes, start: int, end: int) -> Iterator[Row]:
    """Yield rows of log_entries: leaf, columns and MAC as an append writes them."""
    day = DAY.isoformat()
    first = str(uuid.UUID(int=0, version=4))
    before, after = event_leaf(RECEIVED, first, bytes(32), DAY).split(first.encode())
    # The message of `EntryKey.mac`, which takes five times as long to spell it.
    columns = f'"{ERASURE_EVENT}","{RECEIVED}","%s","{day}"]'
    message = f'["lethe-entry-1","{origin}","%d","%s",{columns}'
    rng = Random(start)
    for index in range(start, end):
        bits = f"{rng.getrandbits(128):032x}"
        ref = f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-8{bits[17:20]}-{bits[20:]}"
        leaf = before + ref.encode() + after
        mac = digest(secret, (message % (index, leaf.hex(), ref)).encode(), "sha256")
        yield index, leaf, ERASURE_EVENT, RECEIVED, ref, day, mac


def _mirror(folder: Path) -> dict[str, float]:
    """Return how fast a log is mirrored over HTTP and checked, and the second calls."""
    installation = Installation(folder, {})
    ledger = _ledger(installation, MIRRORED)
    vkey, state = ledger.verifier.vkey, folder / "verified.json"
    with installation.serving() as (port,):
        url = f"http://127.0.0.1:{port}/v1/log"
        mirror = ("mirror", url, str(folder / "mirror"), "--vkey", vkey)
        verify = ("verify", url, "--vkey", vkey, "--state", str(state))
        started = _seconds(installation, "--help")
        first, verified = (_seconds(installation, *one) for one in (mirror, verify))
        for _ in range(10):  # what the second calls fetch and check
            ledger.transact(append)
        again, verified_again = (_seconds(installation, *one) for one in (mirror, verify))
    fsck = ("fsck", "--state", str(folder / "fsck.json"))
    checked, checked_again = (_seconds(installation, *fsck) for _ in range(2))
    return {
        "fsck_entries_per_second": MIRRORED / (checked - started),
        "fsck_second_call_seconds": checked_again,
        "mirror_entries_per_second": MIRRORED / (first - started),
        "mirror_second_call_seconds": again,
        "verify_entries_per_second": MIRRORED / (verified - started),
        "verify_second_call_seconds": verified_again,
    }


def _seconds(installation: Installation, *arguments: str) -> float:
    start = time.perf_counter()
    installation.cli("log", *arguments)
    return time.perf_counter() - start


def _unlinking(folder: Path) -> float:
    """Return how much longer an erasure's unlinking takes among MANY artifacts than FEW."""
    few, many = (_stored(folder / str(count), count) for count in (FEW, MANY))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS):
        for (engine, store, ids), spent in zip((few, many), times, strict=True):
            with Session(engine) as session:
                store.shred(session, ids[turn])
                session.commit()
            start = time.perf_counter()
            unlinked = store.unlink_shredded(engine)
            spent.append(time.perf_counter() - start)
            assert unlinked == 1
    return median(times[1]) / median(times[0])


def _stored(folder: Path, count: int) -> tuple[Engine, ArtifactStore, list[str]]:
    files = folder / "artifacts"
    files.mkdir(parents=True)
    engine = make_engine(f"sqlite:///{folder / 'lethe.db'}")
    upgrade(engine)
    ids = [str(uuid.uuid4()) for _ in range(count)]
    for one in ids:
        (files / one).touch()
    row = {"kind": "head", "digest": "", "size": 0, "wrapped_key": bytes(60)}
    with engine.begin() as connection:
        rows = [{**row, "id": one, "created_at": utcnow()} for one in ids]
        connection.execute(insert(Artifact), rows)
    return engine, ArtifactStore(files, RootSecret(bytes(32))), ids
