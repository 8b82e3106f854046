"""Weights as a plain mapping from names to tensors, and the vector space they form."""

import hashlib
from collections.abc import Mapping
from math import isfinite, prod, sqrt

import numpy as np
import torch
from torch import nn

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.training.networks.base import in_memory
from workers.training.networks.registry import Network, network

Weights = Mapping[str, torch.Tensor]  # float32 on the CPU, names sorted, never written to


def initial_weights(network: Network, seed: int) -> dict[str, torch.Tensor]:
    """Return the initial weights of a seed."""
    return weights_of(network.build(seed))


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of a module's parameters, on the CPU, sorted by name."""
    return {
        name: weight.detach().to("cpu", torch.float32, copy=True).contiguous()
        for name, weight in sorted(module.named_parameters())
    }


def with_weights(
    network: Network, weights: Weights, device: torch.device | str = "cpu"
) -> nn.Module:
    """Return the network with these weights, copied to the device, ready to train.

    Raises RefusedError as `check_weights`.
    """
    check_weights(network, weights)
    module = in_memory(network.skeleton(), device)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(weights[name])
    return module


def check_weights(network: Network, weights: Weights) -> None:
    """Raise RefusedError unless these are finite float32 weights of exactly this network."""
    shapes = network.tensors()
    if weights.keys() != shapes.keys():
        raise RefusedError(
            "the weights have other names than those of this network: take the "
            "file of the same network and parameters"
        )
    for name, weight in weights.items():
        if weight.dtype != torch.float32 or tuple(weight.shape) != shapes[name]:
            raise RefusedError(
                f"{name}: must be float32 of shape {shapes[name]}, as the network has"
            )
        if not is_finite(weight):
            raise RefusedError(f"{name}: holds NaN or infinity: the weights are unusable")


def is_finite(values: torch.Tensor) -> bool:
    """Return whether no value is NaN or infinite: in one pass, without a tensor of flags."""
    return isfinite(largest(values))


def largest(values: torch.Tensor) -> float:
    """Return the largest absolute value, 0 for no values; NaN if one is NaN."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return max(-float(low), float(high))


def count(network: Network) -> int:
    """Return the number of parameters."""
    return sum(prod(shape) for shape in network.tensors().values())


def size_of(weights: Weights) -> int:
    """Return the bytes of a model's numbers, 4 each: P B in PUF's tables."""
    return 4 * sum(part.numel() for part in weights.values())


def to_vector(weights: Weights) -> torch.Tensor:
    """Return all weights as one vector (d,), in the order of their sorted names."""
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def from_vector(vector: torch.Tensor, network: Network) -> dict[str, torch.Tensor]:
    """Return the float32 weights of a vector (d,). Raises RefusedError for another length."""
    if vector.shape != (count(network),):
        raise RefusedError("the vector has not one entry for each weight of the network")
    weights, start = {}, 0
    for name, shape in network.tensors().items():
        part = vector[start : start + prod(shape)]
        # A copy: views of one vector would all change with it.
        weights[name] = part.to("cpu", torch.float32, copy=True).view(shape)
        start += prod(shape)
    return weights


def difference(after: Weights, before: Weights) -> dict[str, torch.Tensor]:
    """Return after - before, float32."""
    return {name: after[name] - before[name] for name in sorted(after)}


def moved(weights: Weights, direction: Weights, step: float = 1.0) -> dict[str, torch.Tensor]:
    """Return weights + step · direction: computed in float64, rounded once to float32."""
    return {
        name: (weights[name].double() + step * direction[name].double()).float()
        for name in sorted(weights)
    }


def norm(weights: Weights) -> float:
    """Return the Euclidean norm over all weights, in float64."""
    squares = [float(weights[name].double().square().sum()) for name in sorted(weights)]
    return sqrt(sum(squares))


KIND = "network/1"


def encode_weights(network_id: str, parameters: Mapping[str, int], weights: Weights) -> bytes:
    """Return the model file: a pure function of the network and its float32 weights.

    Raises RefusedError if these are not finite weights of exactly this network.
    """
    named = network(network_id, parameters)
    check_weights(named, weights)
    metadata = {"kind": KIND, "network": named.id, "parameters": named.parameters}
    return encode_tensors(to_arrays(weights), metadata)


def decode_weights(data: bytes) -> tuple[Network, dict[str, torch.Tensor]]:
    """Return (network, weights) of a model file.

    Raises ArtifactError for bytes that `encode_weights` would not write: another encoding, an
    unknown network, a missing or foreign tensor, another shape, NaN or infinity.
    """
    arrays, metadata = decode_tensors(data)
    try:
        named = network(metadata["network"], metadata["parameters"])
        weights = to_tensors(arrays)
        check_weights(named, weights)
        expected = {"kind": KIND, "network": named.id, "parameters": named.parameters}
    except (RefusedError, KeyError, TypeError):
        raise ArtifactError(
            "the file does not hold the weights of a known network: fetch it again"
        ) from None
    if metadata != expected:
        raise ArtifactError(
            "the file's metadata must be kind, network and parameters: fetch it again"
        )
    return named, weights


def digest_of(data: bytes) -> str:
    """Return the hex SHA-256 of a model file."""
    return hashlib.sha256(data).hexdigest()


def to_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """Return the tensors as NumPy arrays, for a file."""
    return {name: weight.detach().cpu().numpy() for name, weight in weights.items()}


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return a file's arrays as tensors, sorted by name."""
    return {name: torch.from_numpy(array) for name, array in sorted(arrays.items())}
