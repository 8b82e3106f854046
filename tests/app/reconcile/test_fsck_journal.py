"""fsck of the erasure journal against tombstones and the log's contributions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, event
from sqlmodel import Session, select

from app.reconcile.findings import Finding, FsckReport
from app.reconcile.fsck.journal import BACK, fsck_journal
from app.reconcile.journal import require_applied
from app.vault.journal import FILE, Line
from models import LogEntry, Record, Tombstone
from tests.installation import Installation
from tests.small import MODEL, Caller, pack, rows


def found(ready: Installation) -> list[Finding]:
    report = FsckReport()
    fsck_journal(
        ready.services.engine, ready.services.root_secret, ready.services.journal, report
    )
    assert {finding.check for finding in report.findings} <= {"journal"}
    return report.findings


@pytest.fixture
def returned(ready: Installation) -> Installation:
    """r1 and r2 were erased, and r1 was added back."""
    assert ready.caller.erase_records("r1", "r2").status_code == 202
    ready.drain()
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    assert client.register_key(role="client", client="c1").status_code == 201
    arrays: dict[str, Any] = {name: values[[1]] for name, values in rows().items()}
    arrays["clients"] = np.array(["c1"])
    path = f"/v1/models/{MODEL}/contributions?add_back=true"
    sent = client.signed("POST", path, pack(arrays), content_type="application/x-npz")
    assert sent.status_code == 202
    ready.drain()
    assert found(ready) == []
    ready.check()
    return ready


def plant(ready: Installation) -> None:
    with Session(ready.services.engine) as session:
        (model,) = session.exec(select(Tombstone.model_id)).all()
        session.add_all(Tombstone(model_id=model, tag=bytes([n]) * 32) for n in (1, 2))
        session.commit()


def write_tombstones(ready: Installation) -> None:
    with Session(ready.services.engine) as session:
        session.connection().execute(delete(Tombstone))
        session.commit()


def lose(ready: Installation) -> None:
    (ready.settings.keys_dir / FILE).write_bytes(b"")


def remove(ready: Installation) -> None:
    (ready.settings.keys_dir / FILE).unlink()


def damage(ready: Installation) -> None:
    path = ready.settings.keys_dir / FILE
    path.write_bytes(path.read_bytes().replace(b"erased", b"erasee", 1))


def rewrite(ready: Installation) -> None:
    """Rewrite the journal so that another record was added back than the log says."""
    journal = ready.services.journal
    lines = journal.read().lines
    (back,) = (line for line in lines if line.returned)
    other = Line(back.model, returned=(b"x" * 32,), entry=back.entry, digest=back.digest)
    lose(ready)
    journal.append([other if line is back else line for line in lines])


def put_back(ready: Installation) -> None:
    """Restore only a row from before its erasure; the tombstone stays."""
    with Session(ready.services.engine) as session:
        one = session.exec(select(Record)).first()
        assert one is not None
        values = {**one.model_dump(exclude={"id"}), "record": "r2", "commitment": b"c" * 32}
        session.add(Record(**values))
        session.commit()


LACKS, STONES = "the erasure journal lacks", "have no tombstone"
STORED = "are stored that the erasure journal has as erased"
PLANTED: dict[str, tuple[Callable[[Installation], None], list[str]]] = {
    "tombstones that are not in it": (plant, [f"{LACKS} 2 tombstones of model {MODEL}"]),
    "lines without a tombstone": (write_tombstones, [f"1 records of model {MODEL}", STONES]),
    "an empty journal": (lose, [f"{LACKS} 1 tombstones of model {MODEL}", BACK]),
    "no journal": (remove, ["is missing"]),
    "a damaged journal": (damage, ["is damaged at line"]),
    "another return": (rewrite, [STONES, BACK]),
    "an erased record": (put_back, [f"1 records of model {MODEL} {STORED}"]),
}


@pytest.mark.parametrize("case", PLANTED)
def test_each_difference_is_found(returned: Installation, case: str) -> None:
    change, wanted = PLANTED[case]
    change(returned)
    said = "\n".join(finding.detail for finding in found(returned))
    assert all(one in said for one in wanted), said
    assert "r1" not in said.split()


def test_a_return_that_the_journal_lacks_is_named_by_its_entry(returned: Installation) -> None:
    lose(returned)
    with Session(returned.services.engine) as session:
        query = select(LogEntry.index).where(LogEntry.event == "contribution.learned")
        last = max(session.exec(query).all())
    assert [one.log_index for one in found(returned) if one.detail == BACK] == [last]


def test_a_start_reads_no_records(returned: Installation) -> None:
    services, read = returned.services, list[str]()

    def note(_: object, __: object, statement: str, *___: object) -> None:
        read.append(statement)

    event.listen(services.engine, "before_cursor_execute", note)
    require_applied(services.engine, services.journal)
    event.remove(services.engine, "before_cursor_execute", note)
    assert any("FROM tombstones" in one for one in read)
    assert not any("FROM records" in one for one in read)
