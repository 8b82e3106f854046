"""Recovery after a step: ordinary, resumable rounds among the retained clients.

Every method that steps and then recovers runs through `step_and_recover`. `Progress` is an
unlearning between two rounds as bytes: the stepped model and the recovery so far.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from math import inf, isfinite

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Tick, Unlearned, UnlearningCase
from workers.training.fedavg.base import Work
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.config import TrainingConfig, to_json
from workers.training.fedavg.device import facts_of, ran_out_of_memory
from workers.training.fedavg.errors import CheckpointError
from workers.training.fedavg.rounds import train
from workers.training.fedavg.seeds import derive
from workers.training.fedavg.server import ServerState
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    check_weights,
    digest_of,
    encode_weights,
    to_arrays,
    to_tensors,
)

KIND = "unlearning-progress/1"
_LENGTH = 8  # bytes, little-endian, of the first of the two files


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """weights after the step; work of the step and of judging so far; the step's notes.

    goal is the validation loss at which recovery ends, None: the budget alone ends it.
    training is the recovery's own checkpoint after `rounds` rounds, empty before the first.
    """

    weights: Weights
    work: Work
    notes: Mapping[str, str]
    goal: float | None = None
    rounds: int = 0
    reached: bool = False
    ended: bool = False
    training: bytes = b""

    def encode(self, network: Network, pin: str) -> bytes:
        """Return the canonical bytes, pinned to a run. Raises RefusedError for bad weights."""
        check_weights(network, self.weights)
        metadata = {
            "ended": self.ended,
            "goal": None if self.goal is None else self.goal.hex(),
            "kind": KIND,
            "notes": dict(self.notes),
            "pin": pin,
            "reached": self.reached,
            "rounds": self.rounds,
            "work": [v.hex() if isinstance(v, float) else v for v in astuple(self.work)],
        }
        first = encode_tensors(to_arrays(self.weights), metadata)
        return len(first).to_bytes(_LENGTH, "little") + first + self.training

    @classmethod
    def decode(cls, data: bytes, network: Network, pin: str) -> "Progress":
        """Return the progress of a run. Raises CheckpointError for damage or another run."""
        try:
            end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
            arrays, fields = decode_tensors(data[_LENGTH:end])
            *counts, seconds = fields["work"]
            goal = fields["goal"]
            progress = cls(
                weights=to_tensors(arrays),
                work=replace(Work(*counts), seconds=float.fromhex(seconds)),
                notes=dict(fields["notes"]),
                goal=None if goal is None else float.fromhex(goal),
                rounds=fields["rounds"],
                reached=fields["reached"],
                ended=fields["ended"],
                training=data[end:],
            )
            whole = progress.encode(network, fields["pin"]) == data
        except (RefusedError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            raise CheckpointError("the stored progress is damaged: restart the unlearning")
        if fields["pin"] != pin:
            raise CheckpointError(
                "the stored progress is of another unlearning (model, request, method "
                "or data differ): restart it"
            )
        return progress


@dataclass(frozen=True, slots=True)
class Recovery:
    """rounds: the budget. epochs: local passes in each, None: as in training.

    within: recovery also ends as soon as the retained validation loss is at most this many
    nats above the original model's; the budget still applies. settle: the learning rate
    relative to the training's schedule; of several cycles, in the last only. lasting: the
    most nats by which the retained validation loss may be higher after recovery than before
    the first step, None: not checked. Raises RefusedError for a value out of range.
    """

    rounds: int = 3
    epochs: float | None = None
    within: float | None = None
    settle: float = 1.0
    lasting: float | None = None

    def __post_init__(self) -> None:
        if type(self.rounds) is not int or not 0 <= self.rounds <= 1 << 20:
            raise RefusedError("recovery rounds: must be an integer, 0 or more")
        if self.within is not None and not isfinite(self.within):
            raise RefusedError("within: must be a number of nats (of the loss), or none")
        if type(self.settle) is bool or not 0 < self.settle <= 1:
            raise RefusedError("settle: must be above 0 and at most 1")
        nats = self.lasting
        if nats is not None and (type(nats) is bool or not 0 <= nats < inf):
            raise RefusedError("lasting: must be a number of nats, 0 or more, or none")


class LastingDamageError(RefusedError):
    """Recovery did not repair the step's damage to the retained rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A method's result before recovery: the weights, the work and the notes."""

    weights: Weights
    work: Work
    notes: Mapping[str, str]


def recovery_config(case: UnlearningCase, recovery: Recovery) -> TrainingConfig:
    """Return the configuration that continues where the model's training ended.

    The learning rate is that of round t + 1, …, after t = config.rounds, times `settle`. The
    server's moments are reset: the old ones contain updates that must be forgotten.
    """
    local = case.config.local
    rate = recovery.settle * local.rate(case.config.rounds + 1)
    local = replace(local, learning_rate=rate)
    if recovery.epochs is not None:
        local = replace(local, epochs=recovery.epochs)
    seed = derive(case.config.seed, "recovery", case.config.rounds)
    return replace(case.config, rounds=recovery.rounds, local=local, seed=seed)


def check_lasting(lasting: float, before: float, after: float) -> dict[str, str]:
    """Return the note on the remaining damage, in nats of the retained validation loss.

    Raises LastingDamageError if it exceeds `lasting`.
    """
    if not after <= before + lasting:  # nor where it is NaN
        raise LastingDamageError(
            f"after recovery the retained loss is {after:.3g}, before the step it was "
            f"{before:.3g}: allow a smaller rise of the step, more recovery or more lasting "
            "damage, or use retrain"
        )
    return {"recovery.damage": f"{after - before:.6g}"}


def pin_of(case: UnlearningCase, method: str) -> str:
    """Return the hex SHA-256 of all that the result depends on; method is id and options."""
    named = case.network.id, case.network.parameters
    pinned = {
        "config": to_json(case.config),
        "data": case.data,
        "method": method,
        "network": [case.network.id, case.network.parameters],
        "request": {
            "clients": sorted(case.request.clients),
            "rows": {client: list(rows) for client, rows in sorted(case.request.rows.items())},
        },
        "retained": dict(sorted(case.retained.rows.items())),
        "targets": None if case.targets is None else dict(sorted(case.targets.rows.items())),
        "weights": digest_of(encode_weights(*named, case.weights)),
    }
    return hashlib.sha256(json.dumps(pinned, sort_keys=True).encode()).hexdigest()


def step_and_recover(
    case: UnlearningCase,
    method: str,
    step: Callable[[], Step],
    recovery: Recovery,
    hooks: Hooks | None = None,
) -> Unlearned:
    """Return the model after `step` and recovery. method spells id, version and options.

    A resumed run neither asks the targets again nor repeats the step. The notes name the
    retained clients' device and training precision. Raises RefusedError for a recovery that
    needs validation rows where there are none, LastingDamageError, CheckpointError for a
    foreign `resume`, and what `step` and `train` raise.
    """
    hooks = hooks or Hooks()
    needed = [name for name in ("within", "lasting") if getattr(recovery, name) is not None]
    if needed and case.validation is None:
        raise RefusedError(
            "recovery is to be judged by retained validation rows and there are none: give "
            f"some, or leave `{needed[0]}` out"
        )
    pin = pin_of(case, method)
    here = facts_of(case.retained.engine, case.config.local)
    if hooks.resume is not None:
        progress = Progress.decode(hooks.resume, case.network, pin)
        progress = replace(progress, notes=_moved(progress.notes, here["device"]))
    else:
        if hooks.tell is not None:
            hooks.tell(Tick("step", 0, 1))  # may take long, without any report
        made = step()
        work, goal = made.work, None
        notes = {**here, **made.notes}
        if recovery.within is not None and case.validation is not None:
            judged = case.validation(case.weights)
            work, goal = work + judged.work, judged.loss + recovery.within
        progress = Progress(made.weights, work, notes, goal)
        if hooks.save is not None:
            hooks.save(progress.encode(case.network, pin))
    if hooks.tell is not None:
        hooks.tell(Tick("step", 1, 1))
    return _Recovering(case, recovery, hooks, pin, progress).run()


def _moved(notes: Mapping[str, str], device: str) -> Mapping[str, str]:
    """Return the notes of a run resumed on this device: equal bits need an equal device."""
    before = notes["device"]
    if before == device or before.endswith(f", then {device}"):
        return notes
    return {**notes, "device": f"{before}, then {device}"}


class _Recovering:
    """Recovery that saves its progress, the cost of judging included."""

    def __init__(
        self,
        case: UnlearningCase,
        recovery: Recovery,
        hooks: Hooks,
        pin: str,
        progress: Progress,
    ) -> None:
        self.case, self.recovery, self.hooks = case, recovery, hooks
        self.pin, self.progress = pin, progress

    def run(self) -> Unlearned:
        case, config = self.case, recovery_config(self.case, self.recovery)
        if self.progress.ended:  # killed between the last round and the answer
            config = replace(config, rounds=self.progress.rounds)
        trained = train(
            case.network,
            case.retained.rows,
            config,
            case.retained.engine,
            weights=self.progress.weights,
            data=case.data,
            resume=self.progress.training or None,
            save=self._save,
            after=self._after,
        )
        faults = Counter(f.reason for record in trained.records for f in record.faults)
        notes = {**self.progress.notes, "recovery.rounds": str(len(trained.records))}
        if faults:
            said = ", ".join(f"{number} {reason}" for reason, number in sorted(faults.items()))
            notes["recovery.dropped"] = said
        if self.recovery.within is not None:
            notes["recovery.reached"] = "yes" if self.progress.reached else "no"
        work = self.progress.work + trained.work
        if self.recovery.lasting is not None and case.validation is not None:
            before, after = case.validation(case.weights), case.validation(trained.weights)
            notes |= check_lasting(self.recovery.lasting, before.loss, after.loss)
            work = work + before.work + after.work
        return Unlearned(trained.weights, work, "empirical-approximate", notes)

    def _after(self, state: ServerState, record: RoundRecord) -> bool:
        reached = False
        if self.progress.goal is not None and self.case.validation is not None:
            judged = self.case.validation(state.weights)
            reached = judged.loss <= self.progress.goal
            work = self.progress.work + judged.work
            self.progress = replace(self.progress, work=work, reached=reached)
        ended = reached or record.round == self.recovery.rounds
        self.progress = replace(self.progress, rounds=record.round, ended=ended)
        if self.hooks.tell is not None:
            self.hooks.tell(Tick("recovery", record.round, self.recovery.rounds, record.loss))
        return ended

    def _save(self, training: bytes) -> None:
        # `train` calls it after `_after`, for every round.
        self.progress = replace(self.progress, training=training)
        if self.hooks.save is not None:
            self.hooks.save(self.progress.encode(self.case.network, self.pin))


class OutOfMemoryError(RefusedError):
    """Out of memory. The model to be unlearned is unchanged."""


@contextmanager
def named_out_of_memory() -> Iterator[None]:
    """Turn torch's out-of-memory errors into OutOfMemoryError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            "the memory did not suffice for the rows or the steps: lower batch_size (or "
            "samples), or use puf-special or retrain"
        ) from None
