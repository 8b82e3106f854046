"""Receipts from memory equal those from the database, now and forever."""

from collections.abc import Iterator

import pytest
from sqlmodel import Session

from app import steps
from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import RECENT, Ledger
from app.ledger.startup import load_ledger
from app.settings import Settings
from lethe.log.entries import EntryError
from models import LogCheckpoint
from tests.app.ledger.samples import append, entry


@pytest.fixture(autouse=True)
def no_steps() -> Iterator[None]:
    yield
    steps.install(None)


@pytest.fixture
def other(ledger: Ledger, settings: Settings) -> Iterator[Ledger]:
    """Another process's ledger, on the same log."""
    found = load_ledger(settings)
    yield found
    found.engine.dispose()


@pytest.mark.parametrize("before", range(9))
def test_each_entry_of_each_batch_after_each_tree(ledger: Ledger, before: int) -> None:
    if before:
        append(ledger, *(entry(number) for number in range(before)))
    indices = append(ledger, *(entry(100 + number) for number in range(6)))
    for index in indices:
        assert ledger.recent_receipt(index) == ledger.receipt(index)


def test_another_process_knows_none_and_old_ones_are_forgotten(
    ledger: Ledger, other: Ledger
) -> None:
    append(ledger, entry(0))
    assert other.recent_receipt(0) is None
    for number in range(RECENT):
        append(ledger, entry(1 + number))
    assert ledger.recent_receipt(0) is None
    assert ledger.recent_receipt(RECENT) == ledger.receipt(RECENT)


@pytest.mark.parametrize("published", [True, False])
def test_who_is_overtaken_before_its_checkpoint_has_the_receipt_of_the_smallest_tree(
    ledger: Ledger, other: Ledger, published: bool
) -> None:
    """Another process appends between commit and checkpoint."""
    overtaken: list[int] = []

    def overtake(step: str) -> None:
        if step == "ledger.committed" and not overtaken:
            overtaken.append(1)
            other.transact(lambda tx: tx.append(entry(50)), checkpoint=published)

    append(ledger, entry(0))
    steps.install(overtake)
    # The lock is not held between the two transactions; the other ledger is another process.
    (index,) = append(ledger, entry(1))
    assert overtaken
    assert ledger.recent_receipt(index) == ledger.receipt(index)
    assert ledger.receipt(index).tree_size == 3


def test_who_is_overtaken_twice_has_the_receipt_of_the_first_checkpoint(
    ledger: Ledger, other: Ledger
) -> None:
    overtaken: list[int] = []

    def overtake(step: str) -> None:
        if step == "ledger.committed" and not overtaken:
            overtaken.append(1)
            append(other, entry(50))
            append(other, entry(51), entry(52))

    append(ledger, *(entry(number) for number in range(3)))
    steps.install(overtake)
    for index in append(ledger, entry(3), entry(4)):
        assert ledger.recent_receipt(index) == ledger.receipt(index)
        assert ledger.receipt(index).tree_size == 6


def test_what_was_never_committed_has_no_receipt(ledger: Ledger) -> None:
    append(ledger, entry(0))
    with pytest.raises(EntryError):
        append(ledger, b"no entry")
    assert ledger.recent_receipt(1) is None


def test_a_checkpoint_that_somebody_inserts_meanwhile_is_in_no_receipt(ledger: Ledger) -> None:
    append(ledger, entry(0))

    def forge(step: str) -> None:
        if step == "ledger.committed":
            with Session(ledger.engine) as session:
                session.add(LogCheckpoint(size=2, root=bytes(32), note="forged"))
                session.commit()

    steps.install(forge)
    with pytest.raises(UnpublishedError):
        append(ledger, entry(1))
    assert ledger.recent_receipt(1) is None
