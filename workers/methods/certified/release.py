"""The result of an erasure from a logistic head: a model to publish, and a secret.

Only the verifier may see the centre θ̂ and the noise key. Anyone else could subtract the
noise, so they are sealed like a training checkpoint and destroyed with it.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

import torch

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import RefusedError
from workers.methods.certified.noise import gaussian
from workers.training.fedavg.base import Work
from workers.training.fedavg.errors import CheckpointError
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    check_weights,
    from_vector,
    to_arrays,
    to_tensors,
    to_vector,
)

KIND = "certified-release/1"


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """weights are published: the centre plus noise, or the centre itself where key is None.

    residual is the claimed bound on ‖centre - θ*‖, bound that on ‖weights - θ*‖. With a key
    the residual is secret too: it is a function of the rows without noise.
    """

    weights: Weights
    centre: Weights
    key: bytes | None
    residual: float
    bound: float
    work: Work
    notes: Mapping[str, str]

    def encode(self, pin: str) -> bytes:
        """Return the canonical bytes, pinned to the run: secret if there is a key."""
        metadata = {
            "bound": self.bound.hex(),
            "key": None if self.key is None else self.key.hex(),
            "kind": KIND,
            "notes": dict(self.notes),
            "pin": pin,
            "residual": self.residual.hex(),
            "work": [v.hex() if isinstance(v, float) else v for v in astuple(self.work)],
        }
        parts = {"centre": self.centre, "weights": self.weights}
        arrays = {
            f"{part}/{name}": array
            for part, weights in parts.items()
            for name, array in to_arrays(weights).items()
        }
        return encode_tensors(arrays, metadata)

    @classmethod
    def decode(cls, data: bytes, network: Network, pin: str) -> "Release":
        """Return the release of a run. Raises CheckpointError for damage or another run."""
        try:
            arrays, fields = decode_tensors(data)
            parts: dict[str, dict[str, torch.Tensor]] = {"centre": {}, "weights": {}}
            for name, tensor in to_tensors(arrays).items():
                part, _, inner = name.partition("/")
                parts[part][inner] = tensor
            for weights in parts.values():
                check_weights(network, weights)
            *counts, seconds = fields["work"]
            release = cls(
                weights=parts["weights"],
                centre=parts["centre"],
                key=None if fields["key"] is None else bytes.fromhex(fields["key"]),
                residual=float.fromhex(fields["residual"]),
                bound=float.fromhex(fields["bound"]),
                work=replace(Work(*counts), seconds=float.fromhex(seconds)),
                notes=dict(fields["notes"]),
            )
            whole = release.encode(fields["pin"]) == data
        except (RefusedError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            raise CheckpointError("the release is damaged: restart the unlearning")
        if fields["pin"] != pin:
            raise CheckpointError(
                "the release belongs to another unlearning (model, request, method or data "
                "differ): restart it"
            )
        return release


def noisy(
    network: Network, centre: Weights, key: bytes, context: str, sigma: float
) -> dict[str, torch.Tensor]:
    """Return centre + σ·noise, added in float64 and rounded once to float32.

    Rounding is applied to the noisy result, so it keeps the (ε, δ) of exact arithmetic.
    """
    vector = to_vector(centre).double()
    noise = torch.from_numpy(gaussian(key, context, len(vector)))
    return from_vector(vector + sigma * noise, network)
