"""The types of unlearning: the request, the clients that can be asked, the result.

A method asks two sides through their engines and never sees rows. One side is the retained
clients with their retained rows, the other the target clients with the rows to forget. A
client that forgets only some of its rows is on both. A method never judges itself: its result
says how it was made, and the verifier judges that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar

from lethe.catalogue import NETWORK
from workers.errors import RefusedError
from workers.methods.network.validation import Validation
from workers.training.fedavg.base import Engine, Work
from workers.training.fedavg.config import TrainingConfig
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, check_weights

Claim = Literal["certified-approximate", "empirical-approximate", "exact-retrained"]
Need = Literal["targets", "validation"]


class UnmetNeedError(RefusedError):
    """The case lacks something the method needs. The message names another method."""


class TargetError(RefusedError):
    """A target client did not answer usably when the method needed it."""


@dataclass(frozen=True, slots=True)
class UnlearningRequest:
    """Whole clients and rows of clients (their positions) to forget, all in one go.

    Raises RefusedError for an empty request, a client named twice, or positions that are
    not distinct, sorted and 0 or more.
    """

    clients: frozenset[str] = frozenset()
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not self.clients and not self.rows:
            raise RefusedError(
                "the request names no client and no row to forget: name at least one"
            )
        if self.clients & self.rows.keys():
            raise RefusedError("a client is named both as a whole and by rows: name it once")
        for places in self.rows.values():
            rising = all(a < b for a, b in pairwise(places))
            if not places or places[0] < 0 or not rising:
                raise RefusedError(
                    "rows: must be one or more positions from 0, ascending, each once"
                )

    @property
    def targets(self) -> tuple[str, ...]:
        """Every client named, sorted."""
        return tuple(sorted(self.clients | self.rows.keys()))


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Clients that can be asked: the engine that reaches them, their numbers of rows.

    The engine's clients answer for the rows of this side and no others.
    """

    engine: Engine
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class UnlearningCase:
    """A model, the request, and all that a method may use.

    config is the model's training configuration, rounds included: recovery continues its
    schedule, retraining repeats it. start: the weights before the first round, None: the
    initial weights of config.seed. data is the digest of the retained rows: training
    checkpoints are pinned to it. targets is None if they cannot be asked. Raises RefusedError
    if sides and request contradict each other.
    """

    network: Network
    weights: Weights
    request: UnlearningRequest
    config: TrainingConfig
    retained: Side
    targets: Side | None = None
    start: Weights | None = None
    data: str = ""
    validation: Validation | None = None

    def __post_init__(self) -> None:
        check_weights(self.network, self.weights)
        if self.request.clients & self.retained.rows.keys():
            raise RefusedError(
                "a client to forget is among the retained clients: leave it out of them"
            )
        if not self.retained.rows:
            raise RefusedError("no client would be retained: delete the model instead")
        if self.targets is not None and set(self.targets.rows) != set(self.request.targets):
            raise RefusedError("targets: must be exactly the clients that the request names")


_REMEDIES: Mapping[Need, str] = {
    "targets": "a target client is offline: use hf-kcu or retrain",
    "validation": "there are no retained validation rows: give some, or use retrain",
}


def check_needs(
    needs: frozenset[Need],
    case: UnlearningCase,
    remedies: Mapping[Need, str] = MappingProxyType({}),
) -> None:
    """Raise UnmetNeedError, naming the remedy, unless the case meets all needs.

    remedies: the method's own, where the common remedy would not help.
    """
    has: Mapping[Need, bool] = {
        "targets": case.targets is not None,
        "validation": case.validation is not None,
    }
    for need in sorted(needs):
        if not has[need]:
            raise UnmetNeedError({**_REMEDIES, **remedies}[need])


@dataclass(frozen=True, slots=True)
class Tick:
    """Progress of a long run, for a progress bar: `done` of at most `total`.

    done is 0 when a phase begins.
    """

    phase: Literal["step", "recovery", "retrain"]
    done: int
    total: int
    loss: float | None = None  # mean training loss of a round


@dataclass(frozen=True, slots=True, eq=False)
class Hooks:
    """Progress reports of a long run, and how it resumes after an interruption.

    `save` receives checkpoints and `resume` is the last one: the result equals that of an
    uninterrupted run, bit for bit. `tell` is called after each finished round.
    """

    save: Callable[[bytes], None] | None = None
    resume: bytes | None = None
    tell: Callable[[Tick], None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Unlearned:
    """The new weights, the work, the claim and how the weights were made.

    notes go into a certificate: they name no client and no data.
    """

    weights: Weights
    work: Work
    claim: Claim
    notes: Mapping[str, str]


class UnlearningMethod(Protocol):
    """One way to forget. It never writes to the case's weights."""

    @property
    def id(self) -> str:
        """The name requests and certificates use."""

    @property
    def version(self) -> str:
        """Changes whenever the same case may give other weights."""

    @property
    def needs(self) -> frozenset[Need]:
        """What a case must have."""

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model without what the request names.

        Raises UnmetNeedError and other RefusedErrors, their messages naming the remedy; the
        model to be unlearned is then unchanged.
        """


Maker = Callable[..., UnlearningMethod]
MAKERS: dict[str, Maker] = {}
_Maker = TypeVar("_Maker", bound=Maker)


def method(name: str) -> Callable[[_Maker], _Maker]:
    """Bind a method's constructor to its line in the catalogue."""
    assert name in NETWORK, f"no method of networks is called {name}: see lethe/catalogue.py"

    def register(maker: _Maker) -> _Maker:
        assert name not in MAKERS, f"two methods are called {name}"
        MAKERS[name] = maker
        return maker

    return register
