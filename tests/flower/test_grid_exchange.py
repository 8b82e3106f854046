"""Messages over a grid, with flwr's own records; only where flwr is installed."""

import importlib
from collections.abc import Iterable
from typing import Any

import pytest

flwr = pytest.importorskip("flwr.app", reason="flwr has its own environment: flower/check.sh")

from lethe_flower import client_app, grid_exchange  # noqa: E402
from lethe_flower.exchange import Reply  # noqa: E402
from lethe_flower.grid_exchange import GridExchange, pack, pack_fault, unpack  # noqa: E402

SECRET = "anna-4711"


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # flwr makes messages only in the process of a run.
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(identity, f"_{name}", 1)


class Grid:
    """Answers some nodes; 1 is unknown, 2 is silent, 3 fails, others echo."""

    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"m{node}"
            ids.append("" if node == 1 else f"m{node}")
            self.sent[f"m{node}"] = message
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Any]:
        found = []
        for name in ids:
            message = self.sent[name]
            if name == "m3":
                found.append(flwr.Message(flwr.Error(5, SECRET), reply_to=message))
            elif name != "m2":
                content = unpack(message).content or b""
                found.append(flwr.Message(pack(content + b"!"), reply_to=message))
        return found


def test_answers_go_with_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_exchange, "PAUSE", 0.0)
    contents = {9: b"nine", 3: b"x", 2: b"x", 1: b"x", 4: bytes(3)}
    found = GridExchange(Grid()).ask("train", contents, timeout=0.01)
    assert found == {
        1: Reply(None, "no-answer", "unknown to the SuperLink"),
        3: Reply(None, "no-answer", "flower error 5"),
        4: Reply(b"\0\0\0!"),
        9: Reply(b"nine!"),
    }


def _message(records: Any) -> Any:
    return flwr.Message(records, 7, "train")


def test_an_error_travels_by_its_name_only() -> None:
    message = _message(pack_fault(ValueError(SECRET)))
    assert unpack(message) == Reply(None, "client-error", "ValueError")


@pytest.mark.parametrize("name", [SECRET, "x" * 65, ""])
def test_what_is_no_name_of_an_error_is_not_kept(name: str) -> None:
    records = flwr.RecordDict({"lethe-fault": flwr.ConfigRecord({"error": name})})
    assert unpack(_message(records)) == Reply(None, "client-error", "")


def test_foreign_records_are_unreadable() -> None:
    assert unpack(_message(flwr.RecordDict({}))) == Reply(None, "unreadable")
    records = flwr.RecordDict({"lethe": flwr.ConfigRecord({"lethe": b"x"})})
    assert unpack(_message(records)) == Reply(None, "unreadable")


def test_nothing_that_is_raised_reaches_the_server() -> None:
    context = flwr.Context(
        1, 7, {"client": SECRET, "data": f"/{SECRET}"}, flwr.RecordDict(), {}
    )
    answer = client_app.query(_message(pack(b"")), context)
    assert unpack(answer) == Reply(None, "client-error", "DatasetError")
    assert SECRET not in str(answer.content)
