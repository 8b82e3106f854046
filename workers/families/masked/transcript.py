"""A round's transcript, sealed from its sum to the last certificate that depends on it.

It holds the signed messages and the statistics before the round, from which only the verifier
can sum again; it is shredded with the last of those certificates.
"""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe import canonical
from workers.arrays import IntMatrix
from workers.methods.ridge.statistics.gram import RidgeStatistics


@dataclass(frozen=True, slots=True, eq=False)
class SealedTranscript:
    """plan as JSON, roster {keyid: PEM}, messages as signed, statistics before (or None)."""

    plan: dict[str, Any]
    roster: dict[str, str]
    messages: list[bytes]
    before: RidgeStatistics | None


def encode_transcript(transcript: SealedTranscript) -> bytes:
    """Return a transcript as canonical JSON."""
    before = transcript.before
    return canonical.encode(
        {
            "before": None if before is None else _written(before),
            "messages": [message.decode() for message in transcript.messages],
            "plan": transcript.plan,
            "roster": transcript.roster,
        }
    )


def decode_transcript(data: bytes) -> SealedTranscript:
    """Decode the bytes of `encode_transcript`."""
    fields = canonical.decode(data)
    return SealedTranscript(
        fields["plan"],
        fields["roster"],
        [message.encode() for message in fields["messages"]],
        None if fields["before"] is None else _read(fields["before"]),
    )


def _written(statistics: RidgeStatistics) -> dict[str, Any]:
    return {
        "classes": statistics.classes,
        "gram": _text(statistics.gram),
        "moment": _text(statistics.moment),
        "rows": statistics.rows,
    }


def _read(fields: dict[str, Any]) -> RidgeStatistics:
    moment = _array(fields["moment"]).reshape(-1, fields["classes"])
    gram = _array(fields["gram"]).reshape(len(moment), len(moment))
    return RidgeStatistics(gram, moment, fields["rows"])


def _text(matrix: IntMatrix) -> str:
    return base64.b64encode(matrix.astype("<i8").tobytes()).decode()


def _array(text: str) -> IntMatrix:
    return np.frombuffer(base64.b64decode(text), "<i8").astype(np.int64)
