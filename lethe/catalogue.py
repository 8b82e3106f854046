"""The names that all of Lethe shares, once: methods, guarantees, attacks, checks, log events.

API and command-line choices, certificates and the log take them from here; tests compare what
implements them (`workers.methods`, `workers.judge`) and what describes them (docs). The service
refuses to write an event that is not here, or a field that its event does not have.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

# --- unlearning methods, by the kind of model they work on ----------------------------------
# Each keeps the exact statistics, so any of them can follow any other.
RidgeMethod = Literal["ridge-exact", "ridge-woodbury", "acu", "ridge-sketched"]
RIDGE: Final[tuple[str, ...]] = get_args(RidgeMethod)
# Whether a method finds what it needs, the worker knows and says.
NetworkMethod = Literal[
    "puf-special",
    "puf-regular",
    "hf-kcu",
    "retrain",
    "certified-newton",
    "fed-au",
    "finetune",
    "l1-sparsity",
    "mode",
    "naive-ga",
    "natural",
    "neg-grad",
    "neg-grad-plus",
    "not",
    "random-label",
    "scrub",
    "wood-fisher",
]
NETWORK: Final[tuple[str, ...]] = get_args(NetworkMethod)
Method = RidgeMethod | NetworkMethod

# --- what a certificate can promise --------------------------------------------------------
GuaranteeClass = Literal[
    "exact",
    "exact-retrained",
    "numerically-exact",
    "certified-approximate",
    "empirical-approximate",
    "none",
]

# --- what the judge measures ---------------------------------------------------------------
Attack = Literal["lira", "rmia", "shokri", "song-confidence", "song-modified-entropy", "yeom"]
ATTACKS: Final[tuple[str, ...]] = get_args(Attack)
Distance = Literal[
    "disagreement",
    "forget-accuracy-gap",
    "logit-mse",
    "output-kl",
    "retained-accuracy-gap",
    "test-accuracy-gap",
]

_SUMS = "the sums that the model rests on must be those of the records that remain"
_SENT = "the sums that the model rests on must be those of the clients' messages that remain"
_HEAD = "the published weights must be the solution for these sums, within the stated bound"
CHECKS: Final[Mapping[str, str]] = {
    "statistics-recomputed": _SUMS,
    "statistics-freivalds": _SUMS,
    "statistics-resummed": _SENT,
    "masked-rounds-summed": _SENT,
    "head-correctly-rounded": "the published weights must be the solution, to the last digit",
    "head-bound": _HEAD,
    "head-certified": _HEAD,
    "posterior": "the model must tell what the recomputed sums tell, and no more than before",
    "model-file": "the stored model must be the published one",
    "data": "the stored rows must be those that the published version names",
    "retained-set": "the erased records, and no others, must have left the list of records",
    "purge": "nothing that held the erased records may still be read",
    "start": "the training must have begun at the registered first weights",
    "re-execution": "the training, run again, must end with the same file, bit for bit",
    "gradient-bound": "the distance to the best model for the rest must be below the limit",
    "registration": "what was registered must be what the log says",
    "noise": "the registered noise must be in the model",
    "budget": "there must not be more versions than the noise hides",
    "policy": "the tests must be those that were promised beforehand",
    "samples": "there must be enough erased rows, each beside a like row that the model never "
    "saw, for a trace of the stated size to be noticed",
    "canary": "a planted trigger must not work any more",
    "control:canary-trigger": "the planted trigger must have worked before the erasure",
    "retained-accuracy": "the model must not have become much worse on the rows that stay",
    "test-accuracy": "the model must not have become much worse on rows that it never saw",
    "trainings": "all models that the tests need must have been trained",
    "silos-answered": "every data holder must have answered, signed with its own key",
    "rows-before": "the rows tested must be those of the version before",
    "rows-after": "the rows tested must be those of the published version",
    "model-before": "the model compared with must be the version before",
}
_CONTROL = "the attack must find the erased rows before the erasure, or it proves nothing after"
_CHANCE = "the attack must be about as good as guessing at telling erased rows from unseen ones"
_TAIL = "hardly any erased row may stand out where the attack is surest"
_DISTANCE = "the model must answer about as one that was trained without the erased rows"


def criterion(name: str) -> str | None:
    """Return what must be the case for a check of this name to pass, None of an unknown one."""
    kind, _, measured = name.partition(":")
    if name in CHECKS:
        return CHECKS[name]
    if kind == "control":
        return _CONTROL
    if kind == "distance":
        return _DISTANCE
    if kind in ATTACKS:
        return _TAIL if measured == "tail" else _CHANCE
    return None


# --- events of the log ---------------------------------------------------------------------
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
        attempt=int,
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
