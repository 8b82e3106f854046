"""What is counted of a model is what was signed, whatever the database says since."""

import pytest

from app.ledger.guard import ForkedError
from app.ledger.journal import record_request_event
from app.ledger.sequencer import Ledger, Transaction
from app.ledger.startup import load_ledger
from app.ledger.storage import LogDamagedError
from app.reconcile.model_events import CLOSED, PAGE, model_events, request_events
from app.settings import Settings
from models import ErasureRequest
from tests.app.ledger.samples import append, entry, submit, tamper


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the leaves are read by one plain query."""
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
    assert len(heads(ledger)) == 3  # what was read and hashed once stays read


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
    happens(ledger, first, "request.verified")  # which the log of an honest service never has
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
