"""Where a request is on its ladder, as its holder sees it."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from app.service.methods import attempt_view, last_attempt, spelled
from models import ErasureRequest, Job, Model, RequestEvent
from models.database.types import utcnow

T = TypeVar("T")
ATTEMPTS = [
    {"method": "puf-special", "settings": {"guard": {"rise": 2}}},
    {"method": "hf-kcu", "settings": {}},
]
NETWORK = {"family": "network", "data": "rows", "policy": {"ladder": ATTEMPTS}}
RIDGE = {"data": "rows"}
FIRST = "puf-special(guard.rise=2)"


def view(
    config: dict[str, Any],
    method: str,
    attempt: int,
    *escalations: tuple[int, str],
    done: bool = False,
) -> tuple[int, str, list[str]] | None:
    said: list[dict[str, Any]] = [{"reason": "client-silent"}]
    said += [{"attempt": number, "method": name} for number, name in escalations]
    event = {"event": "request.escalated"}
    job: dict[str, Any] = {"attempt": attempt, "done_at": utcnow() if done else None}
    found = attempt_view(
        row(Model, config=config),
        row(ErasureRequest, method=method),
        row(Job, **job),
        [row(RequestEvent, payload=payload, **event) for payload in said],
    )
    return None if found is None else (found.number, found.method, found.ahead)


def row(table: Callable[..., T], **fields: Any) -> T:
    """Return a row of which nobody reads the other columns."""
    return table(**fields)


@pytest.mark.parametrize(
    ("asked", "attempt", "escalations", "shown"),
    [
        ("puf-regular", 1, [], ("puf-regular", [FIRST, "hf-kcu", "retrain", "decision"])),
        ("puf-regular", 2, [(2, FIRST)], (FIRST, ["hf-kcu", "retrain", "decision"])),
        ("puf-regular", 3, [(2, FIRST), (3, "hf-kcu")], ("hf-kcu", ["retrain", "decision"])),
        ("puf-regular", 4, [(4, "retrain")], ("retrain", ["decision"])),
        # A method gave way to the retraining in its own stage: on the first attempt, and later.
        ("puf-regular", 1, [(1, "retrain")], ("retrain", ["retrain", "decision"])),
        ("puf-regular", 2, [(2, FIRST), (2, "retrain")], ("retrain", ["decision"])),
        ("retrain", 1, [], ("retrain", ["retrain", "decision"])),
        ("retrain", 4, [(4, "retrain")], ("retrain", ["decision"])),
        ("retrain", 6, [(4, "retrain")], ("retrain", ["decision"])),  # twice tried again
    ],
)
def test_what_may_come_next_of_a_network(
    asked: str, attempt: int, escalations: list[tuple[int, str]], shown: tuple[str, list[str]]
) -> None:
    assert view(NETWORK, asked, attempt, *escalations) == (attempt, *shown)
    assert view(NETWORK, asked, attempt, *escalations, done=True) == (attempt, shown[0], [])


def test_a_ridge_head_is_fitted_anew_and_a_masked_one_cannot_be() -> None:
    assert view(RIDGE, "acu", 1) == (1, "acu", ["refit", "decision"])
    assert view(RIDGE, "acu", 2, (2, "refit")) == (2, "refit", ["decision"])
    assert view({"data": "masked"}, "ridge-exact", 1) is None


def test_the_last_attempt_is_always_one_more() -> None:
    assert last_attempt(NETWORK) == 4
    assert last_attempt({**NETWORK, "policy": {"ladder": []}}) == last_attempt(RIDGE) == 2
    for damaged in (None, "x", {"ladder": "x"}):  # the judge has said so; nothing stops here
        assert last_attempt({**NETWORK, "policy": damaged}) == 2


def test_an_attempt_is_spelled_by_hand() -> None:
    settings = {"step": "0.5", "guard": None, "recovery": {"rounds": 0}, "indefinite": "refuse"}
    assert spelled({"method": "hf-kcu", "settings": settings}) == (
        "hf-kcu(guard=null,indefinite=refuse,recovery.rounds=0,step=0.5)"
    )
