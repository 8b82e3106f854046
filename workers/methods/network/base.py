"""The words of unlearning: whom to forget, who can be asked, what a method gives.

A method asks two sides through their engines and never sees rows. One side are the clients
who stay, with the rows that stay; the other are the target clients with the rows to forget.
A client of which only some rows go is on both. A method never judges itself: what it
returns says how it was made, and the verifier what that is worth.
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
    """A method lacks something that it cannot work without. The message names a method."""


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
            raise RefusedError("the request names nobody to forget")
        if self.clients & self.rows.keys():
            raise RefusedError("a client is named as a whole and by rows: name it once")
        for places in self.rows.values():
            rising = all(a < b for a, b in pairwise(places))
            if not places or places[0] < 0 or not rising:
                raise RefusedError("rows must be distinct positions, sorted, at least one")

    @property
    def targets(self) -> tuple[str, ...]:
        """Every client named, sorted."""
        return tuple(sorted(self.clients | self.rows.keys()))


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Clients that can be asked: the engine that reaches them, their numbers of rows there.

    Whatever the engine's clients answer with are the rows of this side and no others.
    """

    engine: Engine
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class UnlearningCase:
    """A model, the request, and all that a method may use.

    config is what the model was trained with, rounds included: recovery goes on with its
    schedule, retraining repeats it. start are the weights of before the first round, None:
    the initial weights of config.seed. data is the digest of the rows that stay: training
    checkpoints are pinned to it. targets is None where they cannot be asked.
    Raises RefusedError if sides and request contradict each other.
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
            raise RefusedError("a client to be forgotten is among those who stay")
        if not self.retained.rows:
            raise RefusedError("nobody would stay: delete the model instead")
        if self.targets is not None and set(self.targets.rows) != set(self.request.targets):
            raise RefusedError("the target side must hold exactly the clients of the request")


_REMEDIES: Mapping[Need, str] = {
    "targets": "a target client is offline: use hf-kcu or retrain",
    "validation": "there are no retained validation rows: give some, or use retrain",
}


def check_needs(
    needs: frozenset[Need],
    case: UnlearningCase,
    remedies: Mapping[Need, str] = MappingProxyType({}),
) -> None:
    """Raise UnmetNeedError, naming the remedy, unless the case has all that is needed.

    remedies: what the method itself says, where the common remedy would not help it.
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
    """How much of a long run is finished, for a progress bar: `done` of at most `total`.

    0 of a phase that just began.
    """

    phase: Literal["step", "recovery", "retrain"]
    done: int
    total: int
    loss: float | None = None  # mean training loss of a round


@dataclass(frozen=True, slots=True, eq=False)
class Hooks:
    """What a long run tells and how it goes on after an interruption.

    `save` gets bytes to go on from, `resume` is the last of them: the result is, bit for
    bit, that of a run that was not interrupted. `tell` hears of each finished round.
    """

    save: Callable[[bytes], None] | None = None
    resume: bytes | None = None
    tell: Callable[[Tick], None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Unlearned:
    """The new weights, what they took, what is claimed of them and how they were made.

    notes are a certificate's: no client, no data.
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
        model that was to be unlearned is then as it was.
        """


Maker = Callable[..., UnlearningMethod]
MAKERS: dict[str, Maker] = {}
_Maker = TypeVar("_Maker", bound=Maker)


def method(name: str) -> Callable[[_Maker], _Maker]:
    """Bind what makes a method from settings to its line in the catalogue."""
    assert name in NETWORK, f"no method of networks is called {name}: see lethe/catalogue.py"

    def register(maker: _Maker) -> _Maker:
        assert name not in MAKERS, f"two methods are called {name}"
        MAKERS[name] = maker
        return maker

    return register
