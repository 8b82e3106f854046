import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlmodel import Session, select

from app import steps
from app.ledger import storage
from app.ledger.receipt import EntryReceipt, UnpublishedError
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.ledger.storage import NodeCache, NodeTable, read_row
from app.ledger.transaction import Transaction
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from app.steps import PlantedFaultError
from lethe.errors import LetheError
from lethe.log.checkpoint import open_checkpoint
from lethe.log.entries import EntryError
from lethe.log.proofs import (
    ProofError,
    check_consistency,
    check_inclusion,
    consistency_proof,
    inclusion_proof,
)
from lethe.log.tree import NodeReader, leaf_hash
from models import Model
from models.database import bulk
from models.database.bulk import Statement
from models.database.session import reading
from tests.app.ledger.samples import add_model, append, entry, stored_leaves, tamper
from tests.lethe.log import oracle


@pytest.fixture
def plant() -> Iterator[Callable[[str], None]]:
    """Raise at a named step, once."""

    def plant(step: str) -> None:
        steps.plant(f"{step}=raise")

    yield plant
    steps.install(None)


def test_every_entry_is_proved_under_a_signed_checkpoint_that_never_changes(
    ledger: Ledger,
) -> None:
    rng = random.Random(1)
    leaves: tuple[bytes, ...] = ()
    receipts: list[EntryReceipt] = []
    for _ in range(12):
        new = [entry(len(leaves) + i) for i in range(rng.choice((1, 1, 2, 5, 9)))]
        assert append(ledger, *new) == list(range(len(leaves), len(leaves) + len(new)))
        leaves += tuple(new)
        assert ledger.latest().size == len(leaves)
        assert ledger.latest().root == oracle.mth(leaves)
        receipts += [ledger.receipt(len(receipts) + i) for i in range(len(new))]
    assert stored_leaves(ledger.engine) == leaves
    for index, receipt in enumerate(receipts):
        assert ledger.receipt(index) == receipt
        checkpoint = open_checkpoint(receipt.checkpoint, ledger.verifier)
        assert checkpoint.size == receipt.tree_size > index
        assert checkpoint.root == oracle.mth(leaves[: checkpoint.size])
        check_inclusion(
            index, checkpoint.size, leaf_hash(leaves[index]), receipt.hashes, checkpoint.root
        )


def test_proofs_between_any_sizes_match_the_definition(ledger: Ledger) -> None:
    leaves = tuple(entry(i) for i in range(21))
    append(ledger, *leaves)
    for size in (1, 2, 7, 8, 21):
        for index in range(size):
            assert ledger.inclusion(index, size) == oracle.path(index, leaves[:size])
        proof = ledger.consistency(size, 21)
        assert proof == oracle.proof(size, leaves)
        check_consistency(size, 21, proof, oracle.mth(leaves[:size]), oracle.mth(leaves))


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger: ledger.receipt(3),
        lambda ledger: ledger.receipt(-1),
        lambda ledger: ledger.inclusion(2, 4),
        lambda ledger: ledger.inclusion(2, 2),
        lambda ledger: ledger.inclusion(-1, 2),
        lambda ledger: ledger.consistency(1, 4),
        lambda ledger: ledger.consistency(0, 3),
        lambda ledger: ledger.consistency(3, 2),
    ],
)
def test_what_is_not_there_is_not_proved(
    ledger: Ledger, ask: Callable[[Ledger], object]
) -> None:
    append(ledger, entry(0), entry(1), entry(2))
    with pytest.raises(ProofError):
        ask(ledger)


def test_nodes_are_read_by_row_and_by_what_an_algorithm_reads(ledger: Ledger) -> None:
    leaves = tuple(entry(i) for i in range(300))
    append(ledger, *leaves)
    strict = oracle.StrictReader(leaves)
    with Session(ledger.engine) as session:
        for level, count in ((0, 300), (1, 150), (8, 1)):
            wanted = [strict(level, i) for i in range(count)]
            assert read_row(session, level, 0, count) == wanted
            # More than fit into one query.
            assert NodeTable(session).compute(partial(_row, level, count)) == wanted
        with pytest.raises(LetheError, match="log fsck"):
            read_row(session, 0, 256, 45)
        with pytest.raises(LetheError, match="log fsck"):
            NodeTable(session).compute(lambda read: read(0, 300))


def _row(level: int, count: int, read: NodeReader) -> list[bytes]:
    return [read(level, index) for index in range(count)]


def test_nodes_are_found_by_their_key_and_not_by_looking_at_all(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(ledger, *(entry(i) for i in range(300)))
    plans: list[str] = []

    def explain(connection: Connection, *statements: Statement) -> list[Any]:
        (one,) = statements
        explained = replace(one, text=f"{EXPLAIN[ledger.engine.name]} {one.text}")
        plans.append("\n".join(str(row) for row in run(connection, explained)[0]))
        return run(connection, one)

    run = bulk.run
    with Session(ledger.engine) as session:
        if ledger.engine.name == "postgresql":  # which would scan such a small table
            session.connection().execute(text("SET LOCAL enable_seqscan = off"))
        monkeypatch.setattr(bulk, "run", explain)
        NodeTable(session).compute(lambda read: inclusion_proof(5, 299, read))
    (plan,) = plans
    assert not re.search(r"SCAN (log_nodes|node)|Seq Scan", plan), plan


def test_proofs_read_what_they_share_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = tuple(entry(i) for i in range(300))
    append(ledger, *leaves)
    ledger.latest()
    read: list[int] = []

    def note(session: Session, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        read.append(len(keys))
        return found(session, keys)

    found = storage.read_nodes
    monkeypatch.setattr(storage, "read_nodes", note)
    strict = oracle.StrictReader(leaves)
    for _ in range(2):
        assert ledger.inclusion(5, 300) == inclusion_proof(5, 300, strict)
        assert ledger.consistency(40, 300) == consistency_proof(40, 300, strict)
        assert ledger.inclusion(4, 300) == inclusion_proof(4, 300, strict)
    # Nine siblings, the last made of two nodes; the node of entry 4 is not among them.
    assert read == [len(inclusion_proof(5, 300, strict)) + 2, read[1], 1]
    assert read[1] < len(consistency_proof(40, 300, strict))


def test_the_nodes_that_proofs_share_are_bounded() -> None:
    cache = NodeCache(most=3)
    cache.add({(0, number): bytes([number]) for number in range(3)})
    assert cache.find([(0, 0), (1, 0)]) == {(0, 0): b"\0"}
    cache.add({(0, 3): b"\3"})
    left = {(0, 0): b"\0", (0, 2): b"\2", (0, 3): b"\3"}  # 1 was used least recently
    assert cache.find((0, number) for number in range(4)) == left


def test_what_checks_the_stored_log_reads_it_again(ledger: Ledger) -> None:
    append(ledger, *(entry(i) for i in range(3)))
    proof = ledger.inclusion(0, 3)
    tamper(ledger.engine, "DELETE FROM log_nodes")
    assert ledger.inclusion(0, 3) == proof
    with Session(ledger.engine) as session, pytest.raises(LetheError, match="log fsck"):
        NodeTable(session).root_at(3)


EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}


@pytest.mark.parametrize("size", [2, 100, 300])
def test_a_proof_takes_one_statement_in_every_tree(
    ledger: Ledger, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(ledger, *(entry(i) for i in range(size)))
    statements: list[str] = []

    def note(connection: Connection, *given: Statement) -> list[Any]:
        statements.extend(one.text for one in given)
        return run(connection, *given)

    run = bulk.run
    monkeypatch.setattr(bulk, "run", note)
    for number, prove in enumerate((ledger.inclusion, ledger.consistency), 1):
        ledger.nodes = NodeCache()
        prove(number - 1, size)
        assert len([one for one in statements if "log_nodes" in one]) == number


def test_entries_and_rows_commit_together_or_not_at_all(ledger: Ledger) -> None:
    def effect(tx: Transaction) -> None:
        add_model(tx.session)
        tx.append(entry(0))
        raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        ledger.transact(effect)
    with Session(ledger.engine) as session:
        assert session.get(Model, 1) is None
        assert ledger.size(session) == 0
    assert ledger.latest().size == 0
    assert append(ledger, entry(1)) == [0]


def test_a_savepoint_undoes_its_rows_and_entries(ledger: Ledger) -> None:
    def effect(tx: Transaction) -> None:
        tx.append(entry(0))
        with suppress(KeyError), tx.savepoint():
            add_model(tx.session, "undone")
            tx.append(entry(99))
            raise KeyError
        add_model(tx.session, "kept")
        tx.append(entry(1))

    ledger.transact(effect)
    assert stored_leaves(ledger.engine) == (entry(0), entry(1))
    with Session(ledger.engine) as session:
        assert list(session.exec(select(Model.ref))) == ["kept"]


def test_what_is_no_entry_is_refused_before_anything_is_stored(ledger: Ledger) -> None:
    with pytest.raises(EntryError):
        append(ledger, entry(0), b"a stray leaf")
    assert stored_leaves(ledger.engine) == ()


def test_returned_objects_stay_readable(ledger: Ledger) -> None:
    model = ledger.transact(lambda tx: add_model(tx.session))
    assert model.ref == "m"


def test_transactions_do_not_nest(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="nest"):
        ledger.transact(lambda tx: append(ledger, entry(0)))
    assert append(ledger, entry(0)) == [0]


def test_unpublished_entries_wait_for_the_next_checkpoint(ledger: Ledger) -> None:
    append(ledger, entry(0), checkpoint=False)
    with pytest.raises(UnpublishedError):
        ledger.receipt(0)
    ledger.transact(lambda tx: None, checkpoint=False)
    assert ledger.latest().size == 0
    ledger.transact(lambda tx: None)  # appends nothing and publishes what is pending
    assert ledger.receipt(0).tree_size == 1
    note = ledger.latest().note
    assert ledger.publish_checkpoint().note == note


def test_what_must_be_durable_first_is_asked_before_the_commit(ledger: Ledger) -> None:
    """For the erasure journal: written after the commit, a crash could lose a tombstone."""
    seen: list[int] = []

    others = reading(ledger.engine)

    def effect(tx: Transaction) -> None:
        tx.append(entry(0))
        note = lambda _: seen.append(len(stored_leaves(others)))  # noqa: E731
        event.listen(tx.session, "before_commit", note)

    ledger.transact(effect)
    assert seen[0] == 0
    assert len(stored_leaves(ledger.engine)) == 1


@pytest.mark.parametrize(
    ("step", "durable"),
    [
        ("ledger.appended", False),
        ("ledger.committed", True),
        ("checkpoint.guarded", True),
        ("checkpoint.committed", True),
    ],
)
@pytest.mark.parametrize("recovery", ["start", "transaction"])
def test_a_crash_at_any_step_loses_nothing_and_signs_one_history(
    ledger: Ledger,
    settings: Settings,
    plant: Callable[[str], None],
    *,
    step: str,
    durable: bool,
    recovery: str,
) -> None:
    append(ledger, entry(0))
    plant(step)
    with pytest.raises(PlantedFaultError):
        append(ledger, entry(1))
    assert len(stored_leaves(ledger.engine)) == 1 + durable
    assert ledger.latest().size == 1 + (step == "checkpoint.committed")
    assert ledger.guard.read().size == 1 + step.startswith("checkpoint.")
    leaves: tuple[bytes, ...] = (entry(0), entry(1)) if durable else (entry(0),)
    if recovery == "start":
        again = load_ledger(settings, ledger.engine)
    else:
        again = ledger
        append(again, entry(2))
        leaves += (entry(2),)
    assert stored_leaves(again.engine) == leaves
    assert again.latest().root == oracle.mth(leaves)
    assert again.guard.read().root == oracle.mth(leaves)
    assert fsck(again).ok
