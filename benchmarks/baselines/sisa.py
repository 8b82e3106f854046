"""SISA: clients in shards that never meet, each shard's model a ladder of checkpoints.

Source: Bourtoule et al., "Machine Unlearning", IEEE S&P 2021, known, not at hand; HF-KCU's
section 5.1 has it as "sharded training with ensemble aggregation". Clients are put into a
shard and a slice of it by a hash of their names. A shard's model is trained by FedAvg on slice
1, then on 1 and 2, and so on, with a checkpoint before each; the answer is the ensemble's, the
mean of the shards' softmax. To forget, each touched shard goes back to before the first touched
slice.

Why "exact-retrained" is true, bit for bit: a shard's stage is a function of its seed, its
clients' rows and the stage before; a hash puts nobody elsewhere when another leaves; and the
stages before the first touched slice never saw it. So the result is that of a sharded training
without it. It is another model than FedAvg's of the same clients, and usually a worse one.

An ensemble is no single set of weights. `Ensemble.members` is the model; its `weights` are the
mean of the members', which gives the mean of their logits where these are linear in the weights
(the logistic network), and in a deep network is no model of any use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.baselines.exact_fun import refuse_resume
from benchmarks.baselines.history import same
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Tick,
    Unlearned,
    UnlearningCase,
    UnmetNeedError,
)
from workers.training.fedavg.base import Engine, Work
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.rounds import train
from workers.training.fedavg.seeds import derive
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, initial_weights, size_of


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The weights before each slice, the first of them a seed's, and after the last."""

    ladder: tuple[Weights, ...]

    @property
    def weights(self) -> Weights:
        """The shard's model."""
        return self.ladder[-1]


@dataclass(frozen=True, slots=True, eq=False)
class SisaModel:
    """Shards by number, those without any client left out; what they took."""

    shards: Mapping[int, Shard]
    work: Work

    @property
    def members(self) -> tuple[Weights, ...]:
        """The models of the ensemble."""
        return tuple(self.shards[number].weights for number in sorted(self.shards))

    @property
    def weights(self) -> Weights:
        """The mean of the members' weights: the ensemble of linear models alone."""
        members = self.members
        return {
            name: torch.stack([part[name].double() for part in members]).mean(0).float()
            for name in members[0]
        }

    @property
    def bytes(self) -> int:
        """What is kept: S shards of R + 1 checkpoints of P B."""
        return sum(size_of(w) for shard in self.shards.values() for w in shard.ladder)


@dataclass(frozen=True, slots=True, eq=False)
class ShardedCase(UnlearningCase):
    """A case of a model that was trained in shards, with them."""

    sharded: SisaModel | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble(Unlearned):
    """What SISA returns: the ensemble, and the shards for the next request."""

    sharded: SisaModel

    @property
    def members(self) -> tuple[Weights, ...]:
        """The models whose mean softmax is the answer."""
        return self.sharded.members


@dataclass(frozen=True, slots=True)
class Sisa:
    """Sharded training and its exact unlearning; both need the same settings.

    The training's rounds are split evenly over the slices, the rate goes on where the slice
    before ended. Raises RefusedError for a value out of range.
    """

    shards: int = 5
    slices: int = 2

    def __post_init__(self) -> None:
        for name in ("shards", "slices"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 1 << 20:
                raise RefusedError(f"{name}: must be an integer, 1 or more")

    @property
    def id(self) -> str:
        """The method's name."""
        return "sisa"

    @property
    def version(self) -> str:
        """The method's version."""
        return "1"

    @property
    def needs(self) -> frozenset[Need]:
        """Nothing that a Case names: the shards, which a ShardedCase has."""
        return frozenset()

    def place(self, client: str, seed: int) -> tuple[int, int]:
        """Return a client's shard and slice, from 0: a function of its name and the seed."""
        drawn = derive(seed, self.id, "place", client)
        return drawn % self.shards, drawn // self.shards % self.slices

    def train(
        self,
        network: Network,
        clients: Mapping[str, int],
        config: TrainingConfig,
        engine: Engine,
        *,
        data: str = "",
    ) -> SisaModel:
        """Return the shards of clients with so many rows. Raises as `fedavg.rounds.train`."""
        shards, work = {}, Work()
        for number, slices in self._placed(clients, config.seed).items():
            start = (self._start(network, config.seed, number),)
            ladder, spent = self._escalation(
                network, start, number, slices, clients, config, engine, data
            )
            shards[number], work = Shard(ladder), work + spent
        return SisaModel(shards, work)

    def replay(self, case: UnlearningCase, hooks: Hooks | None = None) -> tuple[SisaModel, int]:
        """Return the shards without what the request names, and how many were touched.

        Raises as `run`.
        """
        sharded = case.sharded if isinstance(case, ShardedCase) else None
        if sharded is None:
            raise UnmetNeedError(
                "the model was not trained in shards: train it with sisa, or use puf-special, "
                "hf-kcu or retrain"
            )
        self._check(case, sharded)
        config, stay = case.config, case.retained.rows
        first: dict[int, int] = {}
        for client in case.request.targets:
            shard, slice_ = self.place(client, config.seed)
            first[shard] = min(slice_, first.get(shard, slice_))
        placed, kept = self._placed(stay, config.seed), dict(sharded.shards)
        work = Work()
        for done, (number, slice_) in enumerate(sorted(first.items()), 1):
            old = kept.pop(number)
            if number in placed:  # else nobody of the shard is left
                ladder, spent = self._escalation(
                    case.network,
                    old.ladder[: slice_ + 1],
                    number,
                    placed[number],
                    stay,
                    config,
                    case.retained.engine,
                    case.data,
                )
                kept[number], work = Shard(ladder), work + spent
            if hooks is not None and hooks.tell is not None:
                hooks.tell(Tick("retrain", done, len(first)))
        return SisaModel(dict(sorted(kept.items())), work), len(first)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Ensemble:
        """Return the ensemble without what the request names.

        Raises UnmetNeedError for a model that was not trained in shards, RefusedError for
        shards of other settings, RoundFailedError, DivergedError. A run is not resumable:
        it saves nothing, and refuses any `resume`.
        """
        refuse_resume(hooks)
        sharded, touched = self.replay(case, hooks)
        assert isinstance(case, ShardedCase)  # replay
        assert case.sharded is not None
        notes = {
            "sisa.shards": str(self.shards),
            "sisa.slices": str(self.slices),
            "sisa.members": str(len(sharded.shards)),
            "sisa.shards-touched": str(touched),
            "sisa.rounds-repeated": str(sharded.work.rounds),
            "sisa.weights": "mean of the members, which are the model",
            "state.bytes": str(case.sharded.bytes),
        }
        return Ensemble(sharded.weights, sharded.work, "exact-retrained", notes, sharded)

    def _start(self, network: Network, seed: int, shard: int) -> Weights:
        return initial_weights(network, derive(seed, self.id, "shard", shard))

    def _placed(self, clients: Mapping[str, int], seed: int) -> dict[int, list[list[str]]]:
        """Return the clients of each slice of each shard that has any."""
        placed: dict[int, list[list[str]]] = {}
        for client in sorted(clients):
            shard, slice_ = self.place(client, seed)
            placed.setdefault(shard, [[] for _ in range(self.slices)])[slice_].append(client)
        return dict(sorted(placed.items()))

    def _escalation(
        self,
        network: Network,
        ladder: tuple[Weights, ...],
        shard: int,
        slices: Sequence[Sequence[str]],
        rows: Mapping[str, int],
        config: TrainingConfig,
        engine: Engine,
        data: str,
    ) -> tuple[tuple[Weights, ...], Work]:
        """Return the whole ladder from a lower part of it, and the work of the rest."""
        work = Work()
        for stage in range(len(ladder) - 1, self.slices):
            begun = config.rounds * stage // self.slices
            rounds = config.rounds * (stage + 1) // self.slices - begun
            members = {name: rows[name] for part in slices[: stage + 1] for name in part}
            if not members or not rounds:  # nobody yet: the weights wait for the next slice
                ladder = (*ladder, ladder[-1])
                continue
            stage_config = replace(
                config,
                rounds=rounds,
                seed=derive(config.seed, self.id, "stage", shard, stage),
                local=replace(config.local, learning_rate=config.local.rate(begun + 1)),
                min_clients=min(config.min_clients, len(members)),
            )
            trained = train(
                network, members, stage_config, engine, weights=ladder[-1], data=data
            )
            ladder, work = (*ladder, trained.weights), work + trained.work
        return ladder, work

    def _check(self, case: UnlearningCase, sharded: SisaModel) -> None:
        everybody = {**case.retained.rows, **dict.fromkeys(case.request.targets, 0)}
        placed = self._placed(everybody, case.config.seed)
        whole = all(
            len(shard.ladder) == self.slices + 1
            and same(shard.ladder[0], self._start(case.network, case.config.seed, number))
            for number, shard in sharded.shards.items()
        )
        if not whole or placed.keys() != sharded.shards.keys():
            raise RefusedError(
                "the shards are of other clients or settings: train with sisa first, or use "
                "retrain"
            )


def ensemble_probabilities(
    network: Network, members: Sequence[Weights], inputs: torch.Tensor
) -> torch.Tensor:
    """Return the mean softmax (n, classes, ...) float64 of the members."""
    parts = [logits_of(network, part, inputs).double().softmax(1) for part in members]
    return torch.stack(parts).mean(0)


METHODS = {"sisa": Sisa}
