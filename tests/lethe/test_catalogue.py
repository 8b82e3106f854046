"""What is not in the catalogue cannot be written into the log."""

from typing import Any

import pytest

from lethe.catalogue import DATA, EVENTS, check_event, data_of
from lethe.log.entries import MAX_EVENT

WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "an unknown event": ("request.eaten", {}),
    "a model's event of a request": ("model.version", {}),
    "an unknown field": ("request.refused", {"name": "Ada"}),
    "a field of another type": ("request.executed", {"head": 1}),
    "a number where none belongs": ("request.refused", {"reason-1": "x"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_catalogue_does_not_know_is_refused(name: str) -> None:
    event, payload = WRONG[name]
    with pytest.raises(AssertionError):
        check_event("request", event, payload)


def test_numbered_fields_are_known_by_their_pattern() -> None:
    check_event("model", "model.silos", {"silo-0": "a" * 64, "silo-12": "b" * 64})
    with pytest.raises(AssertionError, match="no field silo-x"):
        check_event("model", "model.silos", {"silo-x": "a" * 64})


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_says_in_words_what_it_means(name: str) -> None:
    assert EVENTS[name].name == name
    assert len(name) <= MAX_EVENT
    assert len(EVENTS[name].meaning) > 10


@pytest.mark.parametrize("name", DATA)
def test_a_model_is_rebuilt_from_what_is_here_or_learns_in_rounds(name: str) -> None:
    where = data_of({"data": name})
    assert (where.name, where.rebuildable) == (name, not where.in_rounds)
    assert where.rows_here + where.messages_here + where.in_rounds == 1


def test_of_an_unknown_kind_of_data_nothing_is_here() -> None:
    newer = data_of({"data": "enclave"})
    assert not any((newer.rows_here, newer.rebuildable, newer.in_rounds))
    assert data_of({}).rows_here
