"""Where a request is on its ladder, as its holder sees it."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from app.service.ladder import last_rung, rung_view, spelled
from models import ErasureRequest, Job, Model, RequestEvent
from models.types import utcnow

T = TypeVar("T")
RUNGS = [
    {"method": "puf-special", "settings": {"guard": {"rise": 2}}},
    {"method": "hf-kcu", "settings": {}},
]
NETWORK = {"family": "network", "data": "rows", "policy": {"ladder": RUNGS}}
RIDGE = {"data": "rows"}
FIRST = "puf-special(guard.rise=2)"


def view(
    config: dict[str, Any], method: str, rung: int, *climbs: tuple[int, str], done: bool = False
) -> tuple[int, str, list[str]] | None:
    said: list[dict[str, Any]] = [{"reason": "client-silent"}]
    said += [{"rung": number, "method": name} for number, name in climbs]
    event = {"event": "request.escalated"}
    job: dict[str, Any] = {"rung": rung, "done_at": utcnow() if done else None}
    found = rung_view(
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
    ("asked", "rung", "climbs", "shown"),
    [
        ("puf-regular", 0, [], ("puf-regular", [FIRST, "hf-kcu", "retrain", "decision"])),
        ("puf-regular", 1, [(1, FIRST)], (FIRST, ["hf-kcu", "retrain", "decision"])),
        ("puf-regular", 2, [(1, FIRST), (2, "hf-kcu")], ("hf-kcu", ["retrain", "decision"])),
        ("puf-regular", 3, [(3, "retrain")], ("retrain", ["decision"])),
        # A method gave way to the retraining in its own stage: asked for, and on a rung.
        ("puf-regular", 0, [(0, "retrain")], ("retrain", ["retrain", "decision"])),
        ("puf-regular", 1, [(1, FIRST), (1, "retrain")], ("retrain", ["decision"])),
        ("retrain", 0, [], ("retrain", ["retrain", "decision"])),
        ("retrain", 3, [(3, "retrain")], ("retrain", ["decision"])),
        ("retrain", 5, [(3, "retrain")], ("retrain", ["decision"])),  # twice tried again
    ],
)
def test_what_may_come_next_of_a_network(
    asked: str, rung: int, climbs: list[tuple[int, str]], shown: tuple[str, list[str]]
) -> None:
    assert view(NETWORK, asked, rung, *climbs) == (rung, *shown)
    assert view(NETWORK, asked, rung, *climbs, done=True) == (rung, shown[0], [])


def test_a_ridge_head_is_fitted_anew_and_a_masked_one_cannot_be() -> None:
    assert view(RIDGE, "acu", 0) == (0, "acu", ["refit", "decision"])
    assert view(RIDGE, "acu", 1, (1, "refit")) == (1, "refit", ["decision"])
    assert view({"data": "masked"}, "ridge-exact", 0) is None


def test_the_last_rung_is_always_one_more() -> None:
    assert last_rung(NETWORK) == 3
    assert last_rung({**NETWORK, "policy": {"ladder": []}}) == last_rung(RIDGE) == 1
    for damaged in (None, "x", {"ladder": "x"}):  # the judge has said so; nothing stops here
        assert last_rung({**NETWORK, "policy": damaged}) == 1


def test_a_rung_is_spelled_by_hand() -> None:
    settings = {"step": "0.5", "guard": None, "recovery": {"rounds": 0}, "indefinite": "refuse"}
    assert spelled({"method": "hf-kcu", "settings": settings}) == (
        "hf-kcu(guard=null,indefinite=refuse,recovery.rounds=0,step=0.5)"
    )
