"""Weight files: canonical, opened by the safetensors library, strict about everything."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch
import torch

from workers.arrays import encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.training.networks.registry import network
from workers.training.networks.weights import (
    count,
    decode_weights,
    difference,
    digest_of,
    encode_weights,
    from_vector,
    initial_weights,
    moved,
    norm,
    to_arrays,
    to_vector,
    weights_of,
    with_weights,
)

torch.set_num_threads(1)

SHAPE = {"features": 3, "classes": 2}
NETWORK = network("logistic", SHAPE)
WEIGHTS = {
    "head.bias": torch.tensor([0.5, -0.0]),
    "head.weight": torch.tensor([[1.0, 2.0, 3.0], [4.0, 1e-40, 3e38]]),
}
METADATA = {"kind": "network/1", "network": "logistic", "parameters": NETWORK.parameters}


def test_the_bytes_are_these() -> None:
    weights = {"head.bias": torch.tensor([0.0]), "head.weight": torch.tensor([[1.0]])}
    data = encode_weights("logistic", {"features": 1, "classes": 1}, weights)
    header = (
        rb'{"__metadata__":{"lethe":"{\"kind\":\"network/1\",\"network\":\"logistic\",'
        rb'\"parameters\":{\"classes\":1,\"features\":1}}"},'
        rb'"head.bias":{"data_offsets":[0,4],"dtype":"F32","shape":[1]},'
        rb'"head.weight":{"data_offsets":[4,8],"dtype":"F32","shape":[1,1]}}'
    )
    header += b" " * (-len(header) % 8)
    assert data == len(header).to_bytes(8, "little") + header + b"\0\0\0\0\0\0\x80\x3f"


def test_round_trip_and_the_library() -> None:
    data = encode_weights("logistic", SHAPE, WEIGHTS)
    named, weights = decode_weights(data)
    assert named == NETWORK
    assert encode_weights(named.id, named.parameters, weights) == data
    theirs = safetensors.torch.load(data)
    assert sorted(theirs) == list(weights)
    for name, weight in theirs.items():
        assert weight.numpy().tobytes() == weights[name].numpy().tobytes()
        assert weight.numpy().tobytes() == WEIGHTS[name].numpy().tobytes()
    assert len(digest_of(data)) == 64


def test_order_and_layout_do_not_show() -> None:
    data = encode_weights("logistic", SHAPE, WEIGHTS)
    strided = WEIGHTS["head.weight"].t().contiguous().t()
    assert not strided.is_contiguous()
    again = {"head.weight": strided, "head.bias": WEIGHTS["head.bias"]}
    assert encode_weights("logistic", SHAPE, again) == data
    assert digest_of(encode_weights("logistic", SHAPE, moved(WEIGHTS, WEIGHTS, 0.1))) != (
        digest_of(data)
    )


def test_a_real_network_comes_back() -> None:
    named = network("vit-lite", {"height": 8, "width": 8, "layers": 1, "embedding": 8})
    weights = initial_weights(named, 5)
    _, back = decode_weights(encode_weights(named.id, named.parameters, weights))
    inputs = torch.linspace(-1, 1, 2 * 3 * 64).view(2, 3, 8, 8)
    assert torch.equal(with_weights(named, back)(inputs), named.build(5)(inputs))


def metadata(**changes: Any) -> bytes:
    return encode_tensors(to_arrays(WEIGHTS), {**METADATA, **changes})


def tensors(**changes: Any) -> bytes:
    arrays = to_arrays(WEIGHTS)
    arrays.update({key.replace("_", "."): value.numpy() for key, value in changes.items()})
    return encode_tensors(arrays, METADATA)


def spaced(data: bytes) -> bytes:
    """The same content with eight more spaces of header."""
    size = int.from_bytes(data[:8], "little")
    return (size + 8).to_bytes(8, "little") + data[8 : 8 + size] + b" " * 8 + data[8 + size :]


def with_header(change: Callable[[dict[str, Any]], None]) -> bytes:
    data = encode_weights("logistic", SHAPE, WEIGHTS)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


GOOD = encode_weights("logistic", SHAPE, WEIGHTS)
BAD: dict[str, bytes] = {
    "empty": b"",
    "header length only": (2**63).to_bytes(8, "little"),
    "cut": GOOD[:-1],
    "one byte more": GOOD + b"\0",
    "spaces": spaced(GOOD),
    "no safetensors": b"PK\x03\x04" + GOOD,
    "deep JSON": (20000).to_bytes(8, "little") + b"[" * 20000,
    "another kind": metadata(kind="ridge-head/1"),
    "more metadata": metadata(comment="hello"),
    "unknown network": metadata(network="alexnet"),
    "network is no name": metadata(network=["logistic"]),
    "parameters missing": metadata(parameters={"features": 3}),
    "parameters of must be float32 of shape": metadata(parameters={"features": 4, "classes": 2}),
    "parameters are no mapping": metadata(parameters=[3, 2]),
    "a network too large": metadata(parameters={"features": 2**20, "classes": 2**20}),
    "a float parameter": metadata(parameters={"features": 3.0, "classes": 2}),
    "metadata is a list": encode_tensors(to_arrays(WEIGHTS), [1]),  # type: ignore[arg-type]
    "a foreign tensor": tensors(extra=torch.zeros(1)),
    "NaN": tensors(head_bias=torch.tensor([0.0, torch.nan])),
    "infinity": tensors(head_bias=torch.tensor([0.0, -torch.inf])),
    "must be float32 of shape": tensors(head_bias=torch.zeros(3)),
    "another rank": tensors(head_bias=torch.zeros(2, 1)),
    "another type": tensors(head_bias=torch.zeros(2, dtype=torch.float64)),
    "a tensor missing": with_header(lambda header: header.pop("head.bias")),
    "overlapping tensors": with_header(lambda header: header["head.weight"].update(data_offsets=[0, 24])),
    "a negative side": with_header(lambda header: header["head.bias"].update(shape=[-1])),
    "an unknown type": with_header(lambda header: header["head.bias"].update(dtype="BF16")),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_other_bytes_are_refused(what: str) -> None:
    with pytest.raises(ArtifactError):
        decode_weights(BAD[what])


WRONG: dict[str, dict[str, torch.Tensor]] = {
    "missing": {"head.bias": WEIGHTS["head.bias"]},
    "foreign": {**WEIGHTS, "more": torch.zeros(1)},
    "float64": {**WEIGHTS, "head.bias": torch.zeros(2, dtype=torch.float64)},
    "shape": {**WEIGHTS, "head.bias": torch.zeros(3)},
    "NaN": {**WEIGHTS, "head.bias": torch.tensor([torch.nan, 0])},
}


@pytest.mark.parametrize("what", WRONG)
def test_other_weights_are_not_written(what: str) -> None:
    with pytest.raises(RefusedError):
        encode_weights("logistic", SHAPE, WRONG[what])


def test_weights_are_a_vector_space() -> None:
    named = network("simple-cnn")
    one, two = initial_weights(named, 1), initial_weights(named, 2)
    vector = to_vector(one)
    assert vector.shape == (count(named),)
    back = from_vector(vector, named)
    assert all(torch.equal(back[name], one[name]) for name in one)
    back["head.bias"][0] = 9  # a copy of the vector, and of nothing else
    assert torch.equal(to_vector(one), vector)
    gone = difference(two, one)
    assert torch.allclose(to_vector(moved(one, gone)), to_vector(two), atol=1e-7)
    expected = float((to_vector(two).double() - vector.double()).norm())
    assert norm(gone) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(RefusedError, match="one entry"):
        from_vector(vector[1:], named)


def test_a_module_does_not_write_through() -> None:
    module = with_weights(NETWORK, WEIGHTS)
    kept = weights_of(module)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(1)
    assert torch.equal(WEIGHTS["head.bias"], torch.tensor([0.5, -0.0]))
    assert torch.equal(kept["head.bias"], torch.tensor([0.5, -0.0]))
