"""An unlearning between two rounds as bytes: the stepped model and the recovery so far."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import RefusedError
from workers.training.fedavg.base import Work
from workers.training.fedavg.errors import CheckpointError
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights, check_weights, to_arrays, to_tensors

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
            raise CheckpointError("the progress is damaged: start the unlearning anew")
        if fields["pin"] != pin:
            raise CheckpointError(
                "the progress is of another unlearning (model, request, method or data "
                "differ): start anew"
            )
        return progress
