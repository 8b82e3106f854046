"""Everything that follows a stream of deletions and additions, behind one interface."""

from copy import copy, deepcopy
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.ridge_paper.exact import head64
from benchmarks.ridge_paper.ledgers import Acu, Ledger, VariantA, VariantB, pooled
from benchmarks.ridge_paper.linear_heads import FederatedHeads, Rounds
from benchmarks.ridge_paper.partition import members
from benchmarks.ridge_paper.task import HeadTask
from workers.arrays import Matrix
from workers.methods.ridge import (
    acu,
    ridge_exact,
    ridge_woodbury,
)
from workers.methods.ridge.base import Method, RidgeState

Positions = NDArray[np.int64]

CLIENTS = 100
PAPER = ("Variant A", "Variant B", "ACU")
OURS = ("ridge-exact", "ridge-woodbury", "acu")
REFIT = "scikit-learn refit"
_METHODS: dict[str, Method] = {
    "ridge-exact": ridge_exact.METHOD,
    "ridge-woodbury": ridge_woodbury.METHOD,
    "acu": acu.METHOD,
}


class HeadContender(Protocol):
    """A head that follows its rows; starts trained on all rows of the task."""

    def change(self, index: Positions, sign: int) -> None:
        """Add (+1) or delete (-1) the rows at these positions and bring the head up to date."""

    def head(self) -> Matrix:
        """Return the present head (d, c) float64."""

    def copy(self) -> "HeadContender":
        """Return another that goes on from here, independently."""


class Paper:
    """One of the papers' float64 ledgers, trained by one message of each client."""

    def __init__(self, name: str, task: HeadTask, owners: Positions) -> None:
        self._task = task
        d, c, penalty = task.config.dimension, task.config.classes, task.config.penalty
        clients = members(owners)
        self._ledger: Ledger
        if name == "Variant B":
            self._ledger = VariantB(d, c, penalty)
            pooled(self._ledger, task.features, task.targets, clients)
        else:
            kind = VariantA if name == "Variant A" else Acu
            self._ledger = kind(d, c, penalty)
            for index in clients:
                self._ledger.update(task.features[index], task.targets[index], +1)
        self._head = self._ledger.head()

    def change(self, index: Positions, sign: int) -> None:
        """Update the ledger and take its head."""
        self._ledger.update(self._task.features[index], self._task.targets[index], sign)
        self._head = self._ledger.head()

    def head(self) -> Matrix:
        """Return the head (d, c)."""
        return np.asarray(self._head, dtype=np.float64)

    def copy(self) -> "Paper":
        """Return another ledger with the same numbers."""
        twin = copy(self)
        twin._ledger = deepcopy(self._ledger)  # updates work in place
        return twin


class Ours:
    """A method of this project: exact statistics, and a head that is proven every time."""

    def __init__(self, name: str, task: HeadTask) -> None:
        self._method, self._task = _METHODS[name], task
        self.state: RidgeState = self._method.refit(task.config, [task.rows]).state
        self.resets = 0

    def change(self, index: Positions, sign: int) -> None:
        """Forget or learn the rows."""
        rows = self._task.some(index)
        step = self._method.learn if sign > 0 else self._method.forget
        outcome = step(self._task.config, self.state, rows)
        self.resets += outcome.notes.get("reset", "none") != "none"
        self.state = outcome.state

    def head(self) -> Matrix:
        """Return the head (d, c)."""
        return head64(self.state)

    def copy(self) -> "Ours":
        """Return another with the same state, which is never modified."""
        return copy(self)

    @property
    def relative_bound(self) -> float:
        """The proven bound on the head's error, over the head's norm."""
        return self.state.bound / float(np.linalg.norm(self.state.head))


class Start:
    """All contenders trained on a task's rows once, to begin any number of streams from."""

    def __init__(self, task: HeadTask, rounds: Rounds) -> None:
        self.task, self.owners, self._rounds = task, task.owners(CLIENTS), rounds
        self._trained: dict[str, HeadContender] = {
            **{name: Paper(name, task, self.owners) for name in PAPER},
            **{name: Ours(name, task) for name in OURS},
        }

    @cached_property
    def federated(self) -> FederatedHeads:
        """FedAvg, FATS and Exact-Fun, trained when they are first asked for."""
        return FederatedHeads(self.task, self.owners, self._rounds)

    def contenders(self, names: tuple[str, ...] = PAPER + OURS) -> dict[str, HeadContender]:
        """Return fresh contenders by name."""
        return {name: self._trained[name].copy() for name in names}
