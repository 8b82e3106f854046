"""The log's events, once: what each is about, what it says, and what it means.

The service refuses to write an event that is not here, or a field that its event does not have;
docs/auditor-guide.md has the same events, and a test compares the two. To add an event, add a
line here and the call that records it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

About = Literal["request", "model"]


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of log entry.

    about: an erasure request, whose payload is committed to and not shown, or a model, whose
    payload is SHA-256 digests by name. payload: the fields it may have, with their types; a
    field that ends in "-*" stands for a numbered one. Empty: it says that it happened.
    """

    name: str
    about: About
    meaning: str
    payload: Mapping[str, type]

    def check(self, payload: Mapping[str, Any]) -> None:
        """Assert that a payload has only fields of this event, of their types."""
        for name, value in payload.items():
            field = self.payload.get(name) or self.payload.get(re.sub(r"-\d+$", "-*", name))
            assert field is not None, f"{self.name} has no field {name}: see lethe/catalogue.py"
            assert value is None or isinstance(value, field), f"{self.name}: type of {name}"


def _request(name: str, meaning: str, **payload: type) -> Event:
    return Event(f"request.{name}", "request", meaning, payload)


def _model(name: str, meaning: str, *digests: str) -> Event:
    return Event(name, "model", meaning, dict.fromkeys(digests, str))


_AUDIT = "audit", "config"
_EVENTS = (
    _request(
        "received",
        "an erasure request was accepted",
        model=str,
        method=str,
        scope=dict,
        records=int,
        keyid=str,
        regulation=str,
        due_at=str,
        body=str,
    ),
    _request("executing", "a worker took it up"),
    _request("awaiting", "it waits for clients to send what it needs", **{"for": str}),
    _request("awaiting-round", "it waits for a masked round"),
    _request(
        "executed",
        "a version without the records was published",
        head=str,
        statistics=str,
        method=str,
        draft=str,
    ),
    _request(
        "verified",
        "the judge reached a verdict",
        result=str,
        evidence=str,
        checks=str,
        scores=str,
        **{"class": str},
    ),
    _request(
        "escalated",
        "another method is tried, or an operator decided how it goes on",
        result=str,
        checks=str,
        rung=int,
        method=str,
        skipped=list,
        reason=str,
        decision=str,
        operator=str,
    ),
    _request("needs-decision", "it waits for an operator's decision", reason=str),
    _request("decided", "an operator decided", decision=str, by=str, why=str),
    _request("certified", "its certificate is in the log", certificate=int, result=str),
    _request("refused", "it cannot be executed, and why", reason=str),
    _request("withdrawn", "the requester took it back", reason=str),
    _request("failed", "it was given up, and why", reason=str),
    _model(
        "model.registered",
        "a model was registered",
        "config",
        "policy",
        "canary",
        "noise",
        "silo-*",
    ),
    _model(
        "model.version",
        "a version was published",
        "head",
        "statistics",
        "retained",
        "retained-*",
        "rows",
        "added",
        "start",
    ),
    _model("model.repeated", "a training was repeated, bit for bit", "head", "statistics"),
    _model("model.judging", "a judgement by samples began", "head", "seed"),
    _model("model.silos", "the public keys of silos changed", "silo-*"),
    _model("model.quarantined", "the model went out of service"),
    _model("model.released", "the model went back into service"),
    _model("contribution.received", "rows or statistics were contributed", "addBack"),
    _model("contribution.learned", "the model learned them", "addBack"),
    _model("contribution.failed", "the model could not learn them"),
    _model("round.opened", "a masked round was opened", "plan"),
    _model("round.summed", "its members' sum was learned"),
    _model("round.failed", "it came to nothing"),
    _model("audit.started", "a method audit began", *_AUDIT, "method"),
    _model("audit.reported", "its report was signed", *_AUDIT, "report", "code"),
    _model("audit.failed", "it could not be completed", *_AUDIT),
    _model("audit.stopped", "an operator stopped it", *_AUDIT),
)
EVENTS: Final[Mapping[str, Event]] = MappingProxyType({event.name: event for event in _EVENTS})


def check_event(about: About, name: str, payload: Mapping[str, Any]) -> None:
    """Assert that an event of this name, about this, may say this."""
    assert name in EVENTS, f"no event is called {name}: add it to lethe/catalogue.py"
    assert EVENTS[name].about == about, name
    EVENTS[name].check(payload)
