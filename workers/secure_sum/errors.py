"""Errors that end a masked round, or a member's part in it.

No message names a member or a record: a refusal is shown to whoever asks for the round.
"""

from typing import ClassVar

from workers.errors import RefusedError


class RoundError(RefusedError):
    """Root of the refusals of a masked round. `slug` is the name that the service stores."""

    slug: ClassVar[str] = "round-refused"


class PlanError(RoundError):
    """A plan that no member may join."""

    slug = "plan-refused"


class MalformedMessageError(RoundError):
    """Bytes that are not the one spelling of a round's message."""

    slug = "message-malformed"


class ForeignRoundError(RoundError):
    """A message of another round, or of this one under another plan: a replay."""

    slug = "message-of-another-round"


class UnknownMemberError(RoundError):
    """A message from, or about, somebody who takes no part at this step."""

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
    """Too few members, or rows, are in the sum to hide a single one's: it stays closed."""

    slug = "contributions-too-few"


class MaskMismatchError(RoundError):
    """The masks would not cancel: members saw different sets, or a share is not a share."""

    slug = "mask-mismatch"


class SecrecyError(RoundError):
    """A member was asked for what would open a peer's own input. It answered nothing."""

    slug = "secrecy-refused"
