"""The plan of a masked round. Every key, share and signature of the round is bound to it."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

from workers.secure_sum.errors import PlanError
from workers.secure_sum.spelling import spell

# Shamir over GF(2^128) in Python costs O(t²) for each of n secrets: 100 members take about
# half a minute to unmask, 20 well under one second.
MAX_MEMBERS = 100
MAX_DIMENSION, MAX_CLASSES = 10_000, 10_000
_NAME = re.compile(r"[A-Za-z0-9._:@-]{1,128}")  # a keyid
_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class RoundPlan:
    """A round's identity, shape and roster, the same for all members.

    round_id: UUID, never used twice. model: its reference. configuration: hex SHA-256 of the
    model's pinned configuration, and `version` the version that the sum is added to, so
    statistics of other features cannot enter this sum. members: keyids, sorted. threshold:
    the number of members that must stay to the end.

    The threshold is a strict majority, 2t > n. A server that shows different survivors to
    different members could otherwise collect t shares of both secrets of one member and read
    its input. This stays impossible while fewer than 2t - n members collude with the server.

    least_contributors, least_rows: the members that must add or release something, and the
    records in all, before the sum is unmasked. Both are fixed at the model's registration;
    with one contributor the sum would be its input.
    """

    round_id: str
    model: str
    configuration: str
    version: int
    dimension: int
    classes: int
    members: tuple[str, ...]
    threshold: int
    least_contributors: int
    least_rows: int

    def __post_init__(self) -> None:
        least = (self.least_contributors, self.least_rows)
        numbers = (self.version, self.dimension, self.classes, self.threshold, *least)
        if any(type(number) is not int for number in numbers):
            raise PlanError(
                "version, dimension, classes, threshold and the least numbers must be integers"
            )
        if min(least) < 1:
            raise PlanError("a round must ask for at least one contributor and one row")
        if not _ID.fullmatch(self.round_id):
            raise PlanError("a round's id must be a UUID in lower case")
        if not _MODEL.fullmatch(self.model):
            raise PlanError("model must be a model's reference, such as wards")
        if not re.fullmatch(r"[0-9a-f]{64}", self.configuration) or self.version < 0:
            raise PlanError(
                "configuration must be a SHA-256 in lower-case hex, and version 0 or more"
            )
        if not 1 <= self.dimension <= MAX_DIMENSION or not 1 <= self.classes <= MAX_CLASSES:
            raise PlanError(
                f"dimension must be 1 to {MAX_DIMENSION}, and classes 1 to {MAX_CLASSES}"
            )
        if not 2 <= len(self.members) <= MAX_MEMBERS:
            raise PlanError(f"a round has 2 to {MAX_MEMBERS} members: open several rounds")
        if list(self.members) != sorted(set(self.members)):
            raise PlanError("members must be named in ascending order, each once")
        if not all(_NAME.fullmatch(member) for member in self.members):
            raise PlanError("each member must be named by the keyid of its registered key")
        if not len(self.members) < 2 * self.threshold <= 2 * len(self.members):
            raise PlanError(
                f"the threshold of {len(self.members)} members is "
                f"{least_threshold(len(self.members))} to {len(self.members)}: a smaller one "
                "would let a dishonest server read single inputs"
            )

    @property
    def length(self) -> int:
        """Entries of the vector: upper triangle of G, C, label counts, n."""
        d, c = self.dimension, self.classes
        return d * (d + 1) // 2 + d * c + c + 1

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical plan, 32 bytes."""
        return hashlib.sha256(spell(self.document())).digest()

    def document(self) -> dict[str, object]:
        """Return the plan as the JSON object that `parse_plan` reads."""
        return {
            "classes": self.classes,
            "configuration": self.configuration,
            "dimension": self.dimension,
            "kind": "lethe/round-plan/v1",
            "least_contributors": self.least_contributors,
            "least_rows": self.least_rows,
            "members": list(self.members),
            "model": self.model,
            "round": self.round_id,
            "threshold": self.threshold,
            "version": self.version,
        }

    def index(self, member: str) -> int:
        """Return a member's place on the roster, from 1: its Shamir coordinate."""
        return self.members.index(member) + 1


def least_threshold(members: int) -> int:
    """Return the smallest strict majority."""
    return members // 2 + 1


def parse_plan(document: object) -> RoundPlan:
    """Return the plan of a JSON object.

    Raises PlanError if it is no plan, or none that a member may join.
    """
    try:
        assert isinstance(document, dict)
        plan = RoundPlan(
            round_id=document["round"],
            model=document["model"],
            configuration=document["configuration"],
            version=document["version"],
            dimension=document["dimension"],
            classes=document["classes"],
            members=tuple(document["members"]),
            threshold=document["threshold"],
            least_contributors=document["least_contributors"],
            least_rows=document["least_rows"],
        )
        same = spell(plan.document()) == spell(document)
    except (AssertionError, KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise PlanError(
            "the service's answer is not the plan of a masked round: tell its operator"
        )
    return plan
