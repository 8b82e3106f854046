"""Weights as canonical safetensors: the file that a certificate pins by digest."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch

from workers.errors import ArtifactError, RefusedError
from workers.tensor_file import decode_tensors, encode_tensors
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights, check_weights

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
        raise ArtifactError("the file holds no weights of a known network") from None
    if metadata != expected:
        raise ArtifactError("the file says more or less about its network than it should")
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
