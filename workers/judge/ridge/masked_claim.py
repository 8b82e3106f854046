"""What is claimed of a masked round: the signed messages, and what their sum was added to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers.judge.base import ClaimedStatistics


@dataclass(frozen=True, slots=True, eq=False)
class MaskedClaim:
    """A round's transcript: who released what, masked, and how the masks came off.

    plan: the round's plan as JSON. roster: the members' public signing keys in PEM. messages:
    every message of the round, as it was signed. before: the statistics before the round,
    None for a model's first one, and before_digest the digest that was published of them.
    erased: the ids of the judged request's records.
    """

    plan: Mapping[str, Any]
    roster: Mapping[str, str]
    messages: Sequence[bytes]
    before: ClaimedStatistics | None
    before_digest: str | None
    erased: Sequence[str]
