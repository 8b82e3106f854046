"""A model's events are the signed ones, whatever the database says later."""

import gc
from datetime import date

import pytest
import sqlalchemy.event
from sqlmodel import Session

from app.ledger.guard import ForkedError
from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.ledger.storage import LogDamagedError, read_leaves
from app.ledger.transaction import Transaction
from app.reconcile import paged
from app.reconcile.model_events import CLOSED, PAGE, model_events, request_events
from app.settings import Settings
from lethe.log.entries import Leaf, model_leaf
from models import ErasureRequest
from tests.app.ledger.samples import append, entry, submit, tamper


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database is enough: one simple query reads the leaves."""
    return sqlite_url


def heads(ledger: Ledger, ref: str = "m") -> list[tuple[int, int]]:
    return [(i, int(leaf.digests["head"], 16)) for i, leaf in model_events(ledger, ref)]


def test_entries_are_found_as_they_come_and_no_others(ledger: Ledger) -> None:
    assert heads(ledger) == []
    append(ledger, entry(5), entry(6))
    assert heads(ledger) == [(0, 5), (1, 6)]
    submit(ledger)
    append(ledger, *map(entry, range(PAGE)))
    assert heads(ledger)[:3] == [(0, 5), (1, 6), (3, 0)]
    assert len(heads(ledger)) == 2 + PAGE
    assert heads(ledger, "n") == []


def test_what_is_not_signed_yet_is_not_counted_yet(ledger: Ledger) -> None:
    append(ledger, entry(1), checkpoint=False)
    assert heads(ledger) == []
    ledger.publish_checkpoint()
    assert heads(ledger) == [(0, 1)]


def test_inside_a_transaction_what_is_not_signed_yet_counts(ledger: Ledger) -> None:
    append(ledger, entry(1), checkpoint=False)
    assert ledger.transact(lambda tx: heads(ledger), checkpoint=False) == [(0, 1)]
    assert ledger.guard.read().size == 1
    assert ledger.latest().size == 0
    append(ledger, entry(2))
    assert (heads(ledger), ledger.latest().size) == ([(0, 1), (1, 2)], 2)


def test_a_transaction_counts_no_row_that_somebody_else_wrote(ledger: Ledger) -> None:
    append(ledger, entry(1), entry(2), checkpoint=False)
    tamper(ledger.engine, LEAF)
    with pytest.raises(ForkedError):
        ledger.transact(lambda tx: heads(ledger))
    assert ledger.guard.read().size == 0


COLUMNS = "UPDATE log_entries SET ref = 'n', event = 'x.y', kind = 'z'"
LEAF = 'UPDATE log_entries SET leaf = (SELECT leaf FROM log_entries WHERE "index" = 0)'


def test_columns_beside_a_leaf_hide_nothing(settings: Settings, ledger: Ledger) -> None:
    append(ledger, entry(1), entry(2))
    tamper(ledger.engine, COLUMNS)
    assert heads(load_ledger(settings, ledger.engine)) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (LEAF, ForkedError),
        ('DELETE FROM log_entries WHERE "index" = 1', LogDamagedError),
        (f'{LEAF} WHERE "index" = 1', ForkedError),
    ],
)
def test_other_leaves_are_no_log(
    settings: Settings, ledger: Ledger, change: str, error: type[Exception]
) -> None:
    append(ledger, entry(1), entry(2), entry(3))
    other = load_ledger(settings, ledger.engine)  # a process that has read nothing yet
    assert len(heads(ledger)) == 3
    tamper(ledger.engine, change)
    with pytest.raises(error):
        heads(other)
    assert len(heads(ledger)) == 3  # entries once read and verified are kept


EVERY = ("model.registered", "model.version", "audit.started", "contribution.accepted")


def log_events(ledger: Ledger, count: int, ref: str = "m", start: int = 0) -> None:
    """Log events of EVERY kind in turn; the digest of each is its number."""
    leaves = [
        model_leaf(EVERY[number % 4], ref, {"head": f"{number:064x}"}, date(2026, 1, 1))
        for number in range(start, start + count)
    ]
    append(ledger, *leaves)


def listed(ledger: Ledger, event: str, ref: str = "m") -> list[int]:
    return [int(leaf.digests["head"], 16) for _, leaf in model_events(ledger, ref, event)]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "EVENTS", 4)
    monkeypatch.setattr(paged, "KEPT", 3)
    monkeypatch.setattr(paged, "ROWS", 5)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("grown", [(80,), (1, 6, 33, 40)], ids=["at once", "as it grew"])
def test_each_list_has_its_events_by_pages(ledger: Ledger, grown: tuple[int, ...]) -> None:
    start = 0
    for count in grown:
        log_events(ledger, count, start=start)
        log_events(ledger, count, ref="n")
        start += count
        assert len(model_events(ledger, "n")) > 0  # read as it grows
    assert listed(ledger, "model.version") == list(range(1, 80, 4))
    assert listed(ledger, "audit.") == listed(ledger, "audit.started") == list(range(2, 80, 4))
    assert listed(ledger, "model.") == [n for n in range(80) if n % 4 < 2]
    assert listed(ledger, "") == [n for n in range(80) if n % 4 < 3]
    assert listed(ledger, "model.repeated") == listed(ledger, "", "absent") == []
    assert listed(ledger, "contribution.") == []  # not counted
    versions = model_events(ledger, "m", "model.version")
    every = list(versions)
    assert (len(versions), versions[0], versions[-1]) == (20, every[0], every[-1])
    assert list(reversed(versions)) == every[::-1]
    assert (versions[3:9], versions[18:30]) == (every[3:9], every[18:])
    assert [versions.before(index) for index, _ in every] == list(range(20))
    assert versions.before(every[-1][0] + 1) == 20
    with pytest.raises(IndexError):
        versions[20]


@pytest.mark.usefixtures("small_pages")
def test_no_entry_of_a_model_is_kept_but_those_of_the_last_pages(ledger: Ledger) -> None:
    log_events(ledger, 400, ref="kept-by-pages")
    assert len(listed(ledger, "", "kept-by-pages")) == 300
    # isinstance() asks each object for its class, of which torch's deprecated ones warn.
    leaves = [one for one in gc.get_objects() if type(one) is Leaf]
    assert 0 < len([one for one in leaves if one.ref == "kept-by-pages"]) <= 3 * 4


@pytest.mark.usefixtures("small_pages")
def test_an_entry_is_read_with_its_page_alone(ledger: Ledger) -> None:
    log_events(ledger, 400)
    versions = model_events(ledger, "m", "model.version")
    read: list[str] = []
    spy = "before_cursor_execute"
    sqlalchemy.event.listen(ledger.engine, spy, lambda *call: read.append(str(call[2:4])))
    versions[50]
    versions[51]
    (query,) = [one for one in read if "log_entries" in one]
    assert "('m', 193, 205, 'model.version')" in query  # the range of entries


@pytest.mark.usefixtures("small_pages")
def test_changed_columns_change_no_page(ledger: Ledger) -> None:
    log_events(ledger, 120)
    versions = model_events(ledger, "m", "model.version")
    tamper(ledger.engine, COLUMNS)
    assert [int(leaf.digests["head"], 16) for _, leaf in versions] == list(range(1, 120, 4))
    assert listed(ledger, "audit.") == list(range(2, 120, 4))


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(
    "change",
    [
        f'{LEAF} WHERE "index" = 5',
        "UPDATE log_entries SET leaf = x'7b7d' WHERE \"index\" = 5",
        'DELETE FROM log_entries WHERE "index" = 5',
        # The leaves of the previous and the next version: both are signed, at another index.
        'UPDATE log_entries SET leaf = (SELECT leaf FROM log_entries WHERE "index" = 1) '
        'WHERE "index" = 5',
    ],
    ids=["other event", "not an entry", "deleted", "moved"],
)
def test_a_page_that_was_changed_since_it_was_hashed_is_refused(
    ledger: Ledger, change: str
) -> None:
    log_events(ledger, 120)
    versions = model_events(ledger, "m", "model.version")
    tamper(ledger.engine, change)
    with pytest.raises(ForkedError, match="log entries 1 to 13"):
        versions[0]
    assert versions[4][1].digests["head"] == f"{17:064x}"  # on another page
    with pytest.raises(ForkedError):
        listed(ledger, "model.version")


@pytest.mark.usefixtures("small_pages")
def test_nothing_is_learned_from_entries_that_are_not_those_signed(ledger: Ledger) -> None:
    log_events(ledger, 8)
    ref = happens(ledger, submit(ledger), "request.executed")
    assert listed(ledger, "model.version") == [1, 5]
    log_events(ledger, 4, start=8)
    with Session(ledger.engine) as session:
        (leaf,) = read_leaves(session, 13, 14)
    tamper(ledger.engine, f'{LEAF} WHERE "index" = 13')
    with pytest.raises(ForkedError):
        listed(ledger, "model.version")
    tamper(ledger.engine, f"UPDATE log_entries SET leaf = x'{leaf.hex()}' WHERE \"index\" = 13")
    assert listed(ledger, "model.version") == [1, 5, 9]
    assert len(request_events(ledger, ref)) == 2


def happens(ledger: Ledger, request_id: str, *events: str) -> str:
    """Log events of a request; return its reference."""

    def effect(tx: Transaction) -> str:
        request = tx.session.get_one(ErasureRequest, request_id)
        for event in events:
            record_request_event(tx, request, event, {})
        return request.ref

    return ledger.transact(effect)


def test_an_open_request_is_found_whole_and_a_closed_one_not_at_all(ledger: Ledger) -> None:
    first, second = submit(ledger), submit(ledger)
    refs = [happens(ledger, one, "request.executed") for one in (first, second)]
    append(ledger, entry(1))
    happens(ledger, first, "request.verified")
    found = request_events(ledger, refs[0])
    assert [(index, leaf.event) for index, leaf in found] == [
        (0, "request.received"),
        (2, "request.executed"),
        (5, "request.verified"),
    ]
    assert {leaf.ref for _, leaf in found} == {refs[0]}
    assert request_events(ledger, "of nobody") == []
    happens(ledger, first, "request.certified")
    assert request_events(ledger, refs[0]) == []
    happens(ledger, first, "request.verified")  # which an honest service's log never has
    assert [index for index, _ in request_events(ledger, refs[0])] == [7]
    assert len(request_events(ledger, refs[1])) == 2


@pytest.mark.parametrize("end", CLOSED)
def test_a_request_ends_in_several_ways(ledger: Ledger, end: str) -> None:
    request_id = submit(ledger)
    ref = happens(ledger, request_id, "request.needs-decision")
    assert len(request_events(ledger, ref)) == 2
    happens(ledger, request_id, f"request.{end}")
    assert request_events(ledger, ref) == []


def test_hiding_an_entry_of_a_request_hides_nothing(settings: Settings, ledger: Ledger) -> None:
    ref = happens(ledger, submit(ledger), "request.verified", "request.escalated")
    tamper(ledger.engine, COLUMNS)
    assert len(request_events(load_ledger(settings, ledger.engine), ref)) == 3
