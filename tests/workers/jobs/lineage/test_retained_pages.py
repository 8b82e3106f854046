"""Pages of a retained set: correct after any history, and never trusted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event
from sqlmodel import Session, col, select

from app import retained_pages
from app.reconcile.fsck.run import fsck
from app.retained_pages import RetainedSet, encode_page, leaves
from models import Certificate, Contribution, Model, ModelVersion, Record, RetainedPage
from tests.installation import Installation
from tests.workers.jobs.attempts.test_decisions import decide
from tests.workers.jobs.lineage.histories import contribute, outcome
from workers.lineage import chain
from workers.lineage.chain import STORED


@pytest.fixture(autouse=True)
def small_pages(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide sets of forty like larger ones of 40,000, and read only what changes."""
    monkeypatch.setattr(retained_pages, "CAP", 3)
    monkeypatch.setattr(chain, "SHARE", 0)
    with Session(ready.services.engine) as session:  # pages may have been written before
        model = session.exec(select(Model)).one()
        assert model.id is not None
        anew = RetainedSet.of(leaves(session, model.id))
        retained_pages.write(session, model.id, anew)
        session.commit()


def stored(at: Installation) -> dict[bytes, bytes]:
    with Session(at.services.engine) as session:
        found = session.exec(select(RetainedPage.prefix, RetainedPage.body)).all()
    return {bytes(prefix): bytes(body) for prefix, body in found}


def check(at: Installation) -> None:
    """The pages, and root and count of the version, are those recomputed from the records."""
    with Session(at.services.engine) as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        anew = RetainedSet.of(leaves(session, model.id))
        query = select(ModelVersion).where(ModelVersion.number == model.current_version)
        version = session.exec(query).one()
    assert (anew.root, anew.count) == (bytes(version.retained_root), version.retained_count)
    pages = {prefix: encode_page(parts) for prefix, parts in anew.pages.items() if parts}
    assert stored(at) == pages
    assert not fsck(at.services.ledger).findings


# These tests do not depend on the kind of database.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_any_history_leaves_the_pages_of_the_set(ready: Installation) -> None:
    check(ready)
    assert stored(ready)
    for seed in range(1, 4):
        assert outcome(ready, f"r{seed}", f"r{seed + 10}")[0] == "certified"
        check(ready)
        contribute(ready, seed, 2 + 10 * seed)
        check(ready)
    for client in range(5):
        ready.caller.erase({"level": "client", "client": f"c{client}"})
        ready.drain()
        check(ready)
    assert stored(ready) == {}


@pytest.mark.parametrize("share", [0, 64])
def test_what_is_read_at_once_and_in_parts_comes_to_the_same(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    monkeypatch.setattr(chain, "SHARE", share)
    assert outcome(ready, "r1", "r6")[0] == "certified"
    contribute(ready, 1, 7)
    assert outcome(ready, "r2")[0] == "certified"
    check(ready)


@contextmanager
def commitments_read(at: Installation) -> Iterator[list[str]]:
    """Record the statements that read leaves of the tree."""
    found: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if "ORDER BY records.commitment" in statement:
            found.append(statement)

    event.listen(at.services.engine, "before_cursor_execute", note)
    yield found
    event.remove(at.services.engine, "before_cursor_execute", note)


def test_an_erasure_reads_one_part_of_the_records(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    with commitments_read(ready) as found:
        ready.drain()
    assert len(found) == 1, found
    assert "records.commitment >=" in found[0]
    check(ready)


ENTRY = 41  # bytes of a page for each part
PLANTED: dict[str, Callable[[bytes], bytes]] = {
    "another hash": lambda body: body[: ENTRY - 32] + bytes(32) + body[ENTRY:],
    "one bit of a hash": lambda body: body[:-1] + bytes([body[-1] ^ 1]),
    "another count": lambda body: body[:8] + bytes([body[8] + 1]) + body[9:],
    "a part missing": lambda body: body[ENTRY:],
    "a part twice": lambda body: body + body[-ENTRY:],
    "a part added": lambda body: body + b"\xff" + bytes(7) + b"\x01" + bytes(32),
    "cut short": lambda body: body[1:],
    "empty": lambda body: b"",
}


def plant(at: Installation, change: Callable[[bytes], bytes]) -> None:
    """Change the page above the part with r1."""
    with Session(at.services.engine) as session:
        records = session.exec(select(Record)).all()
        commitment = next(one.commitment for one in records if one.record == "r1")
        pages = session.exec(select(RetainedPage)).all()
        above = max(
            (page for page in pages if commitment.startswith(page.prefix)),
            key=lambda page: len(page.prefix),
        )
        above.body = change(above.body)
        session.add(above)
        session.commit()


@on_sqlite
@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_published_on_a_planted_page(ready: Installation, name: str) -> None:
    plant(ready, PLANTED[name])
    kept = stored(ready)
    assert {finding.check for finding in fsck(ready.services.ledger).findings} == {"pages"}
    assert outcome(ready, "r1") == ("needs-decision", STORED)
    with Session(ready.services.engine) as session:
        assert not session.exec(select(Certificate)).all()
        assert len(session.exec(select(ModelVersion)).all()) == 1
        assert session.exec(select(Model)).one().state == "quarantined"
    assert stored(ready) == kept


@on_sqlite
def test_a_contribution_to_a_planted_set_is_refused(ready: Installation) -> None:
    plant(ready, PLANTED["another hash"])
    contribute(ready, 1, 200)  # to every part
    with Session(ready.services.engine) as session:
        found = session.exec(select(Contribution.state, Contribution.failure)).all()
        assert set(found) == {("learned", None), ("failed", STORED)}
        assert len(session.exec(select(ModelVersion)).all()) == 1


@on_sqlite
def test_a_record_that_was_changed_is_refused_with_its_part(ready: Installation) -> None:
    with Session(ready.services.engine) as session:
        records = session.exec(select(Record).order_by(col(Record.commitment))).all()
        place = [one.record for one in records].index("r1")
        beside = records[place - 1] if place else records[1]
        own = records[place].commitment
        beside.commitment = own[:31] + bytes([own[31] ^ 1])
        session.add(beside)
        session.commit()
    assert outcome(ready, "r1") == ("needs-decision", STORED)


@on_sqlite
def test_a_missing_page_is_named_and_costs_time_only(ready: Installation) -> None:
    """The records are read instead and compared with the same root."""
    with Session(ready.services.engine) as session:
        for page in session.exec(select(RetainedPage)).all():
            session.delete(page)
        session.commit()
    assert {finding.check for finding in fsck(ready.services.ledger).findings} == {"pages"}
    assert outcome(ready, "r1")[0] == "certified"
    check(ready)


@on_sqlite
def test_a_part_under_another_byte_is_named_and_changes_no_root(ready: Installation) -> None:
    """The root does not cover a part's place in its page: it is compared once it is read."""
    with Session(ready.services.engine) as session:
        page = session.exec(select(RetainedPage).where(RetainedPage.prefix == b"")).one()
        own = next(one for one in session.exec(select(Record)).all() if one.record == "r1")
        taken = page.body[::ENTRY]
        place, other = next(
            (place, byte ^ 1)
            for place, byte in enumerate(taken)
            if byte != own.commitment[0] and byte ^ 1 not in taken
        )
        page.body = page.body[: place * ENTRY] + bytes([other]) + page.body[place * ENTRY + 1 :]
        session.add(page)
        session.commit()
    assert {finding.check for finding in fsck(ready.services.ledger).findings} == {"pages"}
    assert outcome(ready, "r1")[0] == "certified"
    with Session(ready.services.engine) as session:
        version = session.exec(select(ModelVersion).where(ModelVersion.number == 2)).one()
        anew = RetainedSet.of(leaves(session, version.model_id))
    assert (anew.root, anew.count) == (version.retained_root, version.retained_count)


@on_sqlite
def test_a_page_too_many_is_named(ready: Installation) -> None:
    with Session(ready.services.engine) as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        session.add(RetainedPage(model_id=model.id, prefix=b"0123", body=bytes(ENTRY)))
        session.commit()
    assert {finding.check for finding in fsck(ready.services.ledger).findings} == {"pages"}


@on_sqlite
def test_a_request_is_executed_once_the_pages_are_restored(ready: Installation) -> None:
    plant(ready, PLANTED["another hash"])
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    kept = stored(ready)
    with Session(ready.services.engine) as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        anew = RetainedSet.of(leaves(session, model.id))
        retained_pages.write(session, model.id, anew)
        session.commit()
    assert stored(ready) != kept
    assert decide(ready, request, "retry") == 200
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "certified", shown
    check(ready)
