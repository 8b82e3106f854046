"""Round tasks and client updates as canonical safetensors, for any engine.

A task may carry the weights or only their SHA-256, for engines that fetch a file of a round
once instead of sending it with every task.
"""

import struct
from math import isnan, nan
from typing import Any

from numpy.typing import NDArray

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.training.fedavg.base import ClientUpdate, RoundTask
from workers.training.fedavg.config import local_from_json, to_json
from workers.training.fedavg.errors import MessageError
from workers.training.networks.registry import network
from workers.training.networks.weights import (
    Weights,
    decode_weights,
    digest_of,
    encode_weights,
    to_arrays,
    to_tensors,
)

TASK, UPDATE = "fedavg-task/2", "fedavg-update/2"
_MALFORMED = (
    ArtifactError,
    RefusedError,
    AttributeError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)
_COUNTS = ("round", "samples", "steps", "flops")
_FLOATS = ("loss", "seconds")
_DOUBLE = struct.Struct(">d")


def encode_task(task: RoundTask, *, inline: bool = True) -> bytes:
    """Return the message of a task, with its weights or (not inline) without."""
    metadata = {
        "base": task.base,
        "client": task.client,
        "config": to_json(task.config),
        "kind": TASK,
        "network": task.network.id,
        "operation": task.operation,
        "parameters": task.network.parameters,
        "round": task.round,
        "seed": task.seed,
        "share": task.share.hex(),
    }
    arrays = _prefixed("weights", task.weights) if inline else {}
    return encode_tensors({**arrays, **_prefixed("vector", task.vector or {})}, metadata)


def decode_task(data: bytes, weights: bytes | None = None) -> RoundTask:
    """Return the task of a message; `weights` is the file named by a task without them.

    Raises MessageError for other bytes, and for weights with another SHA-256 than the task
    names.
    """
    try:
        arrays, fields = decode_tensors(data)
        named = network(fields["network"], fields["parameters"])
        inline = weights is None
        if weights is None:
            inner = to_tensors(_unprefixed("weights", arrays))
            weights = encode_weights(named.id, named.parameters, inner)
        found, tensors = decode_weights(weights)
        task = RoundTask(
            named,
            _count(fields, "round"),
            _text(fields, "client"),
            tensors,
            _text(fields, "base"),
            local_from_json(fields["config"]),
            _count(fields, "seed"),
            fields["operation"],
            to_tensors(_unprefixed("vector", arrays)) or None,
            float.fromhex(fields["share"]),
        )
        fits = found == named and digest_of(weights) == task.base and task.round >= 1
        if fits and encode_task(task, inline=inline) == data:
            return task
    except _MALFORMED:
        pass  # raised below, as for bytes that parse and differ
    raise MessageError(
        "these bytes are not a task of a round, or its weights are not those "
        "it names: have the round sent again"
    )


def encode_update(update: ClientUpdate) -> bytes:
    """Return the message of an update, whatever its numbers: the server screens them."""
    metadata: dict[str, Any] = {"base": update.base, "client": update.client, "kind": UPDATE}
    metadata.update({name: getattr(update, name) for name in _COUNTS})
    metadata.update({name: _fixed(getattr(update, name)) for name in _FLOATS})
    metadata["correct"] = update.correct
    return encode_tensors(to_arrays(update.delta), metadata)


def decode_update(data: bytes) -> ClientUpdate:
    """Return the update of a message, not yet screened: its tensors are arbitrary.

    Raises MessageError for bytes that `encode_update` would not write.
    """
    try:
        arrays, fields = decode_tensors(data)
        update = ClientUpdate(
            base=_text(fields, "base"),
            client=_text(fields, "client"),
            delta=to_tensors(arrays),
            correct=None if fields["correct"] is None else _count(fields, "correct"),
            **{name: _count(fields, name) for name in _COUNTS},
            **{name: _float(fields, name) for name in _FLOATS},  # type: ignore[arg-type]
        )
        if encode_update(update) == data:
            return update
    except _MALFORMED:
        pass  # raised below, as for bytes that parse and differ
    raise MessageError("these bytes are no client update: have the client send it again")


def _prefixed(part: str, weights: Weights) -> dict[str, NDArray[Any]]:
    return {f"{part}/{name}": array for name, array in to_arrays(weights).items()}


def _unprefixed(part: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = part + "/"
    return {
        name.removeprefix(start): array
        for name, array in arrays.items()
        if name.startswith(start)
    }


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(name)
    return value


def _fixed(value: float) -> str:
    """Return 16 hexadecimal digits: exact, with one NaN.

    The width is fixed: otherwise a message's length, and with it a run's reported bytes,
    would depend on the clock.
    """
    return _DOUBLE.pack(nan if isnan(value) else value).hex()


def _float(fields: dict[str, Any], name: str) -> float:
    (value,) = _DOUBLE.unpack(bytes.fromhex(_text(fields, name)))
    return float(value)


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if type(value) is not str:
        raise ValueError(name)
    return value
