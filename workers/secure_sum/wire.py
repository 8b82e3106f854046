"""Messages as .npz files, sent by clients to a model whose rows stay with them."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workers.arrays import IntMatrix
from workers.errors import RefusedError
from workers.methods.ridge.sketches.kinds import from_sketch
from workers.methods.ridge.sketches.sketch import Sketch
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Message, from_factor

Form = Literal["gram", "factor", "sketch"]


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A message, the ids of its rows, and their owner.

    identities: arrays of digests (n, WIDTH) by name, as in `workers.data.identities`; empty
    for a received message.
    """

    message: Message
    records: list[str]
    client: str
    subject: str
    identities: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)


def pack_message(envelope: Envelope, sketch: Sketch | None = None) -> bytes:
    """Return a message in the API's format.

    It holds the message's factor if there is one, otherwise the triangle of G; a sketch,
    whose expansion is the message's G, replaces both.
    """
    message = envelope.message
    arrays: dict[str, NDArray[Any]] = {
        "client": np.array(envelope.client),
        "counts": message.counts,
        "moment": message.statistics.moment,
        "records": np.array(envelope.records),
        "subject": np.array(envelope.subject),
        **envelope.identities,
    }
    if sketch is not None:
        arrays |= {
            "sketch": sketch.factor,
            "shift": np.array(sketch.shift, dtype=np.int64),
            "residual": np.array(message.residual, dtype=np.float64),
        }
    elif message.factor is not None:
        arrays["factor"] = message.factor
    else:
        arrays["gram"] = upper(message.statistics.gram)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def unpack_message(data: bytes, *, bits: int) -> Envelope:
    """Return the message that the API accepted, with G computed from its form.

    Raises RefusedError if the bytes are no such message, or its factor or sketch gives no
    integers.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            parts = {name: arrays[name] for name in arrays}
        return Envelope(
            message=_message(parts, bits),
            records=parts["records"].tolist(),
            client=str(parts["client"]),
            subject=str(parts["subject"]),
        )
    except (OSError, KeyError, TypeError, OverflowError, ValueError) as error:
        if isinstance(error, RefusedError):
            raise
        raise RefusedError("the stored statistics cannot be read: send them again") from None


def upper(gram: IntMatrix) -> NDArray[np.int64]:
    """Return the upper triangle of G (d, d) by rows, d(d+1)/2 numbers."""
    return np.concatenate([gram[i, i:] for i in range(len(gram))])


def full(triangle: NDArray[np.int64], dimension: int) -> IntMatrix:
    """Return the symmetric matrix (d, d) of an upper triangle by rows."""
    gram = np.zeros((dimension, dimension), dtype=np.int64)
    position = 0
    for i in range(dimension):
        gram[i, i:] = triangle[position : position + dimension - i]
        gram[i:, i] = gram[i, i:]
        position += dimension - i
    return gram


def _message(parts: Mapping[str, NDArray[Any]], bits: int) -> Message:
    moment, counts = parts["moment"], parts["counts"]
    if "factor" in parts:
        return from_factor(parts["factor"], moment, counts, bits=bits)
    rows = int(counts.sum())
    if "sketch" not in parts:
        gram = full(parts["gram"], len(moment))
        return Message(RidgeStatistics(gram, moment, rows), counts)
    residual = float(parts["residual"])
    sketch = Sketch(parts["sketch"], int(parts["shift"]), residual, "received")
    return from_sketch(sketch, moment, counts)
