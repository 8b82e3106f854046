"""Where a request is on its ladder, as its holder sees it."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from app.service.methods import attempt_view, last_step, spelled
from models import ErasureRequest, Job, Model, RequestEvent
from models.database.types import utcnow

T = TypeVar("T")
ATTEMPTS = [
    {"method": "puf-special", "settings": {"guard": {"rise": 2}}},
    {"method": "hf-kcu", "settings": {}},
]
NETWORK = {"family": "network", "data": "rows", "policy": {"ladder": ATTEMPTS}}
RIDGE = {"data": "rows"}
Escalated = tuple[int, str]
FIRST = "puf-special(guard.rise=2)"


def view(
    config: dict[str, Any],
    method: str,
    step: int,
    *events: Escalated | str,
    stage: str = "verify",
    done: bool = False,
) -> tuple[int, str, list[str]] | None:
    """Return what is shown after these events: (number, method) of an escalation, or the
    method that was executed.
    """
    told: list[tuple[str, dict[str, Any]]] = [("escalated", {"reason": "client-silent"})]
    for one in events:
        if isinstance(one, str):
            told.append(("executed", {"method": one}))
        else:
            told.append(("escalated", {"attempt": one[0], "method": one[1]}))
    job = {"step": step, "stage": stage, "done_at": utcnow() if done else None}
    found = attempt_view(
        row(Model, config=config),
        row(ErasureRequest, method=method),
        row(Job, **job),
        [row(RequestEvent, event=f"request.{name}", payload=said) for name, said in told],
    )
    return None if found is None else (found.number, found.method, found.ahead)


def row(table: Callable[..., T], **fields: Any) -> T:
    """Return a row of which nobody reads the other columns."""
    return table(**fields)


Shown = tuple[int, str, list[str]]


@pytest.mark.parametrize(
    ("asked", "step", "stage", "events", "shown"),
    [
        (
            *("puf-regular", 1, "execute", []),
            (1, "puf-regular", [FIRST, "hf-kcu", "retrain", "decision"]),
        ),
        (
            *("puf-regular", 2, "execute", ["puf-regular", (2, FIRST)]),
            (2, FIRST, ["hf-kcu", "retrain", "decision"]),
        ),
        (
            *("puf-regular", 3, "verify", ["puf-regular", (2, FIRST), FIRST, (3, "hf-kcu")]),
            (3, "hf-kcu", ["retrain", "decision"]),
        ),
        # Steps were skipped: the second attempt is at the third step, or at the last.
        (
            *("puf-regular", 3, "execute", ["puf-regular", (2, "hf-kcu")]),
            (2, "hf-kcu", ["retrain", "decision"]),
        ),
        (
            *("puf-regular", 4, "execute", ["puf-regular", (2, "retrain")]),
            (2, "retrain", ["decision"]),
        ),
        # A method gave way to the retraining in its own stage: on the first attempt, and later.
        (
            *("puf-regular", 1, "verify", [(1, "retrain"), "retrain"]),
            (1, "retrain", ["retrain", "decision"]),
        ),
        (
            *("puf-regular", 2, "verify", ["x", (2, FIRST), (2, "retrain"), "retrain"]),
            (2, "retrain", ["decision"]),
        ),
        ("retrain", 1, "execute", [], (1, "retrain", ["retrain", "decision"])),
        (
            *("retrain", 4, "execute", ["retrain", (2, "retrain")]),
            (2, "retrain", ["decision"]),
        ),
        # The second attempt made no model, and an operator must decide.
        (
            *("puf-regular", 4, "parked", ["puf-regular", (2, "retrain")]),
            (2, "retrain", ["decision"]),
        ),
        # An operator had it tried again: before it is executed, and afterwards.
        ("puf-regular", 5, "execute", ["puf-regular"], (2, "retrain", ["decision"])),
        (
            *("retrain", 6, "verify", ["retrain", (2, "retrain"), *["retrain"] * 2]),
            (3, "retrain", ["decision"]),
        ),
    ],
)
def test_what_may_come_next_of_a_network(
    asked: str, step: int, stage: str, events: list[Escalated | str], shown: Shown
) -> None:
    assert view(NETWORK, asked, step, *events, stage=stage) == shown
    done = view(NETWORK, asked, step, *events, stage="done", done=True)
    assert done is not None
    assert done[2] == []
    if stage != "execute":
        assert done[:2] == shown[:2]


def test_a_ridge_head_is_fitted_anew_and_a_masked_one_cannot_be() -> None:
    assert view(RIDGE, "acu", 1, "acu") == (1, "acu", ["refit", "decision"])
    again = view(RIDGE, "acu", 2, "acu", (2, "refit"), stage="execute")
    assert again == (2, "refit", ["decision"])
    assert view({"data": "masked"}, "ridge-exact", 1) is None


def test_the_last_step_is_always_one_more() -> None:
    assert last_step(NETWORK) == 4
    assert last_step({**NETWORK, "policy": {"ladder": []}}) == last_step(RIDGE) == 2
    for damaged in (None, "x", {"ladder": "x"}):  # the judge has said so; nothing stops here
        assert last_step({**NETWORK, "policy": damaged}) == 2


def test_a_step_is_spelled_by_hand() -> None:
    settings = {"step": "0.5", "guard": None, "recovery": {"rounds": 0}, "indefinite": "refuse"}
    assert spelled({"method": "hf-kcu", "settings": settings}) == (
        "hf-kcu(guard=null,indefinite=refuse,recovery.rounds=0,step=0.5)"
    )
