"""Targets and rows of an audit's pairs."""

from dataclasses import replace

import pytest
import torch

from tests.workers.audit_pairs import small
from workers.audit_pairs.draw import Plan, StoredRows, draw
from workers.errors import RefusedError

PLAN = replace(small.PLAN, targets=2, mislabelled=False)


def without(rows: dict[str, StoredRows], record: str) -> dict[str, StoredRows]:
    """Return rows as they are stored after a record is erased."""
    found = {}
    for client, own in rows.items():
        left = [place for place, one in enumerate(own.records) if one != record]
        records, held = [own.records[i] for i in left], [own.held[i] for i in left]
        found[client] = StoredRows(records, own.data.only(torch.tensor(left)), held)
    return found


def spelled(plan: Plan, pair: int, rows: dict[str, StoredRows] | None = None) -> list[object]:
    drawn = draw(rows or small.rows(), plan, pair, 3)
    parts = [drawn.learned, drawn.retained, {"": drawn.targets}, {"": drawn.validation}]
    return [
        {name: (one.inputs.tolist(), one.targets.tolist()) for name, one in part.items()}
        for part in parts
    ]


def test_equal_records_draw_equal_rows_in_whatever_order_clients_come() -> None:
    rows = small.rows()
    backwards = dict(reversed(rows.items()))
    assert spelled(PLAN, 0, rows) == spelled(PLAN, 0, backwards)


def test_pairs_share_their_targets_and_draw_their_other_rows_anew() -> None:
    first, second = spelled(PLAN, 0), spelled(PLAN, 1)
    assert first[2] == second[2]
    assert first[1] != second[1]
    assert spelled(replace(PLAN, seed=6), 0)[2] != first[2]


def test_the_sizes_are_those_asked_for_and_held_out_rows_are_never_learned() -> None:
    drawn = draw(small.rows(), PLAN, 0, 3)
    assert sum(len(one) for one in drawn.retained.values()) == PLAN.rows
    assert sum(len(one) for one in drawn.learned.values()) == PLAN.rows + PLAN.targets
    assert len(drawn.targets) == PLAN.targets
    unseen = [
        own.data.inputs[place].tolist()
        for own in small.rows().values()
        for place, held in enumerate(own.held)
        if held
    ]
    learned = [row for one in drawn.learned.values() for row in one.inputs.tolist()]
    assert not [row for row in learned if row in unseen]
    assert all(row in unseen for row in drawn.validation.inputs.tolist())


def test_the_request_names_the_targets_and_a_client_without_other_rows_as_a_whole() -> None:
    for pair in range(8):
        drawn = draw(small.rows(clients=12), PLAN, pair, 3)
        request, wanted = drawn.request, set(map(tuple, drawn.targets.inputs.tolist()))
        named = {
            tuple(drawn.learned[client].inputs[place].tolist())
            for client, places in request.rows.items()
            for place in places
        }
        for client in request.clients:
            assert client not in drawn.retained
            named |= set(map(tuple, drawn.learned[client].inputs.tolist()))
        assert named == wanted


def test_an_erased_record_leaves_the_draw_and_moves_no_other() -> None:
    plan = replace(PLAN, targets=1)
    rows = small.rows()
    chosen = draw(rows, plan, 0, 3).learned
    record = next(
        own.records[place]
        for client, own in rows.items()
        for place, row in enumerate(own.data.inputs.tolist())
        if client in chosen and row in chosen[client].inputs.tolist()
    )
    before = [row for one in chosen.values() for row in one.inputs.tolist()]
    after = draw(without(rows, record), plan, 0, 3).learned
    kept = [row for one in after.values() for row in one.inputs.tolist()]
    assert len(kept) == len(before)
    assert len([row for row in kept if row in before]) == len(before) - 1


def test_a_mislabelled_target_is_learned_as_another_class_and_only_it() -> None:
    plain, moved = (
        draw(small.rows(), replace(PLAN, mislabelled=m), 0, 3) for m in (False, True)
    )
    assert torch.equal(plain.targets.inputs, moved.targets.inputs)
    assert not bool((plain.targets.targets == moved.targets.targets).any())
    assert bool((moved.targets.targets >= 0).all())
    assert bool((moved.targets.targets < 3).all())
    for client, own in plain.retained.items():
        assert torch.equal(own.targets, moved.retained[client].targets)


@pytest.mark.parametrize("plan", [replace(PLAN, rows=44), replace(PLAN, targets=50)])
def test_too_few_rows_are_refused(plan: Plan) -> None:
    with pytest.raises(RefusedError, match="45 training rows"):
        draw(small.rows(), plan, 0, 3)


def test_without_held_out_rows_there_is_nothing_to_audit() -> None:
    rows = {
        client: replace(own, held=[False] * len(own.records))
        for client, own in small.rows().items()
    }
    with pytest.raises(RefusedError, match="held out"):
        draw(rows, PLAN, 0, 3)
