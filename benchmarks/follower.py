"""What `lethe backup follow` costs: seconds and bytes of a round, beside a whole backup.

    python -m benchmarks.follower [--records N] [--entries N] [--json FILE]

A SQLite database with a log of so many entries and so many records is followed into a directory
on the same disk. Rounds after an append, after a hundred changed records, and after nothing are
medians of several; then the directory is restored into an empty database.
"""

import argparse
import json
import os
import tempfile
import time
import uuid
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sqlalchemy import text
from sqlmodel import Session

from app.backup.archive import write_backup
from app.backup.follower import following
from app.backup.restore import restore
from app.backup.round import Follower
from app.ledger.sequencer import Ledger
from app.ledger.startup import ENTRIES_KEY, load_ledger, open_ledger
from app.ledger.transaction import Transaction
from app.settings import Settings
from app.vault.master import RootSecret
from benchmarks.service.installation import Installation
from benchmarks.service.log import DAY, RECEIVED, fill
from lethe.log.entries import event_leaf
from models import Model, Record, Subject
from models.database.session import make_engine, opened_engine

TURNS = 7
CHANGED = 100  # records, at even distances


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), arguments.records, arguments.entries)
    for name, value in measured.items():
        print(f"{name:32} {value:10.3f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


def measure(folder: Path, records: int, entries: int) -> dict[str, float]:
    """Return seconds of each kind of round, and MiB."""
    installation = Installation(folder, {})
    settings = Settings(
        data_dir=installation.folder / "data", origin=installation.environment["LETHE_ORIGIN"]
    )
    engine = make_engine(settings.resolved_database_url)
    secret = b64decode((settings.keys_dir / ENTRIES_KEY).read_bytes())
    fill(open_ledger(settings, engine), secret, entries)
    ledger = load_ledger(settings, engine)
    _register(ledger, RootSecret.load(settings), records)
    found: dict[str, float] = {}
    with following(settings, engine, folder / "followed") as follower:
        found["first_round_seconds"] = _seconds(follower.run)
        found["database_mib"] = _size(folder / "followed" / "pieces")
        found |= _rounds(follower, "append", lambda: ledger.transact(_append))
        found |= _rounds(follower, "changed_records", lambda: _change(ledger, records))
        found["idle_round_seconds"] = median(_seconds(follower.run) for _ in range(TURNS))
    found["whole_backup_seconds"] = _seconds(
        lambda: write_backup(settings, engine, folder / "whole")
    )
    found["whole_backup_mib"] = _size(folder / "whole")
    new = settings.model_copy(update={"data_dir": folder / "new"})
    new.data_dir.mkdir()
    settings.keys_dir.rename(new.keys_dir)
    with opened_engine(new.resolved_database_url) as empty:
        found["restore_seconds"] = _seconds(lambda: restore(new, empty, folder / "followed"))
    return found


def _append(tx: Transaction) -> int:
    return tx.append(event_leaf(RECEIVED, str(uuid.uuid4()), bytes(32), DAY))


def _register(ledger: Ledger, root_secret: RootSecret, count: int) -> None:
    """Store rows as large as those of a registration; nobody opens them."""
    with Session(ledger.engine) as session:
        model = Model(
            ref="m", method="ridge-exact", config={}, classes=[], extractor={},
            tombstone_key=root_secret.seal(bytes(32), aad=b"tombstone|m"),
        )  # fmt: skip
        session.add(model)
        session.flush()
        assert model.id is not None
        subject = Subject(
            model_id=model.id, client="c", subject="s", client_tag="c", subject_tag="s"
        )
        session.add(subject)
        session.flush()
        assert subject.id is not None
        for start in range(0, count, 10_000):
            session.add_all(
                Record(
                    model_id=model.id, subject_id=subject.id, record=f"r{number}",
                    salt=os.urandom(16), commitment=os.urandom(32), content=os.urandom(32),
                )
                for number in range(start, min(start + 10_000, count))
            )  # fmt: skip
            session.flush()
            session.expunge_all()
        session.commit()


def _change(ledger: Ledger, records: int) -> None:
    query = text("UPDATE records SET salt = randomblob(16) WHERE id % :n = 0")
    with ledger.engine.begin() as connection:
        connection.execute(query, {"n": max(1, records // CHANGED)})


def _rounds(follower: Follower, name: str, change: Callable[[], object]) -> dict[str, float]:
    seconds, written = [], []
    for _ in range(TURNS):
        change()
        begun = time.perf_counter()
        done = follower.run()
        seconds.append(time.perf_counter() - begun)
        assert done is not None
        written.append(done.written / 2**20)
    return {f"{name}_round_seconds": median(seconds), f"{name}_round_mib": median(written)}


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _size(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 2**20


if __name__ == "__main__":
    main()
