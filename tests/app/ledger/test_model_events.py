"""What is counted of a model is what was signed, whatever the database says since."""

import pytest

from app.ledger.guard import ForkedError
from app.ledger.model_events import PAGE, model_events
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.ledger.storage import LogDamagedError
from app.settings import Settings
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
