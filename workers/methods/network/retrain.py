"""Retrain from the initial weights without the forget set: the last attempt for any model.

It needs neither the target clients nor the model they helped train. Its rounds are ordinary
training rounds: the result is, bit for bit, the model of a federation that the targets never
joined.
"""

from dataclasses import dataclass
from typing import ClassVar

from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Need,
    Side,
    Tick,
    Unlearned,
    UnlearningCase,
    method,
)
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.device import facts_of
from workers.training.fedavg.rounds import Trained, train
from workers.training.fedavg.server import ServerState
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    digest_of,
    encode_weights,
    initial_weights,
)


@method("retrain")
@dataclass(frozen=True, slots=True)
class Retrain:
    """config.rounds rounds among the retained clients, from the training's first weights."""

    id: ClassVar[str] = "retrain"
    version: ClassVar[str] = "2"
    needs: ClassVar[frozenset[Need]] = frozenset()  # nothing

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the retrained model. `resume` is a checkpoint of this retraining.

        Any other is refused: checkpoints are pinned to the clients, the digest of the
        retained rows, configuration and starting weights, so an accepted one never saw the
        rows to forget. Raises RefusedError without that digest or from the model's own
        weights, CheckpointError for a foreign checkpoint, and as `train`.
        """
        hooks = hooks or Hooks()
        if not case.data:
            raise RefusedError(
                "a retraining is pinned to the rows it may see: give their digest (data)"
            )
        start = case.start
        if start is None:
            start = initial_weights(case.network, case.config.seed)
        if case.config.rounds and _digest(case, start) == _digest(case, case.weights):
            raise RefusedError(
                "the start of the retraining is the model that saw the erased data: start "
                "from the initial weights"
            )

        trained = retraining(
            case.network, case.retained, case.config, start, data=case.data, hooks=hooks
        )
        notes = {
            **facts_of(case.retained.engine, case.config.local),
            "retrain.data": case.data,
            "retrain.rounds": str(len(trained.records)),
            "retrain.start": _digest(case, start),
        }
        if case.start is None:
            notes["retrain.seed"] = str(case.config.seed)
        return Unlearned(trained.weights, trained.work, "exact-retrained", notes)


def retraining(
    network: Network,
    retained: Side,
    config: TrainingConfig,
    start: Weights,
    *,
    data: str,
    hooks: Hooks,
) -> Trained:
    """Train from `start` on the retained side, reporting each round. Raises as `train`."""
    told: list[int] = []

    def tell(_: ServerState, record: RoundRecord) -> bool:
        if hooks.tell is not None and record.round not in told:
            told.append(record.round)
            hooks.tell(Tick("retrain", record.round, config.rounds, record.loss))
        return False

    trained = train(
        network,
        retained.rows,
        config,
        retained.engine,
        weights=start,
        data=data,
        resume=hooks.resume,
        save=hooks.save,
        after=tell,
    )
    for record in trained.records[-1:]:  # `train` leaves `after` out in its last round
        tell(trained.state, record)
    return trained


def _digest(case: UnlearningCase, weights: Weights) -> str:
    return digest_of(encode_weights(case.network.id, case.network.parameters, weights))
