"""A stage on which conversations are played by hand: no socket, no clock, no pause."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import httpx2

from lethe.client.core import Conversation, Pause, Send
from lethe.client.operations import Operations
from lethe.client.retry import RetryPolicy
from tests.lethe.client.service import BASE, DUE
from tests.lethe.signing.signer import ED25519

T = TypeVar("T")
Outcome = httpx2.Response | Exception
LOST = httpx2.ReadError("lost")


class Stage:
    """Plays the outcomes to a conversation; its clock moves only by pauses."""

    def __init__(self, *outcomes: Outcome | Callable[[], Outcome]) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[httpx2.Request] = []
        self.pauses: list[float] = []

    def operations(self, tries: int = 3, token: str | None = None) -> Operations:
        return Operations(
            BASE,
            "k1",
            ED25519,
            token,
            None,
            RetryPolicy(tries=tries, first_s=1.0, longest_s=8.0),
            now=lambda: datetime.now(UTC),
            monotonic=lambda: sum(self.pauses),
            jitter=lambda: 0.0,
        )

    def play(self, conversation: Conversation[T]) -> T:
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    step = conversation.send(None)
                    continue
                assert isinstance(step, Send)
                self.sent.append(step.request)
                made = self.outcomes.pop(0)
                outcome = made() if callable(made) else made
                if isinstance(outcome, Exception):
                    step = conversation.throw(outcome)
                else:
                    step = conversation.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result


def answer(status: int, **headers: str) -> httpx2.Response:
    return httpx2.Response(
        status, json={}, headers={n.replace("_", "-"): v for n, v in headers.items()}
    )


def shown(state: str) -> httpx2.Response:
    return httpx2.Response(
        200,
        json={
            "id": "1",
            "state": state,
            "model": "digits",
            "method": None,
            "scope": {},
            "due_at": DUE,
            "history": [],
            "certificate": "/v1/requests/1/certificate" if state == "certified" else None,
        },
    )
