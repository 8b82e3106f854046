"""Errors that end a masked round, or a member's part in it.

No message names a member or a record, because refusals are shown to anyone who reads the
round.
"""

from typing import ClassVar

from workers.errors import RefusedError


class RoundError(RefusedError):
    """Root of the refusals of a masked round. `slug` is the name stored by the service."""

    slug: ClassVar[str] = "round-refused"


class PlanError(RoundError):
    """A plan that no member may join."""

    slug = "plan-refused"


class MalformedMessageError(RoundError):
    """Bytes that are not a canonical round message."""

    slug = "message-malformed"


class ForeignRoundError(RoundError):
    """A message of another round, or of this one under another plan: a replay."""

    slug = "message-of-another-round"


class UnknownMemberError(RoundError):
    """A message from, or about, a member that takes no part in this step."""

    slug = "member-unknown"


class ForgedMessageError(RoundError):
    """A message whose signature is not its sender's."""

    slug = "message-forged"


class DuplicateMessageError(RoundError):
    """A second message of one member for one step, or a step taken twice."""

    slug = "message-duplicate"


class WrongLengthError(RoundError):
    """A vector, key or share of another size than the plan's."""

    slug = "length-wrong"


class TooFewSurvivorsError(RoundError):
    """Fewer members than the threshold remain: the sum cannot, and must not, be unmasked."""

    slug = "survivors-too-few"


class TooFewContributorsError(RoundError):
    """Too few members, or rows, are in the sum to hide a single one's: it stays masked."""

    slug = "contributions-too-few"


class MaskMismatchError(RoundError):
    """The masks would not cancel: members saw different sets, or a share is not a share."""

    slug = "mask-mismatch"


class SecrecyError(RoundError):
    """A request to a member that would expose a peer's input. The member did not answer."""

    slug = "secrecy-refused"
