"""The problems that a call about a masked round can meet."""

from lethe.errors import LetheError


class NotMaskedError(LetheError):
    """The model takes rows or statistics, not masked rounds."""

    slug, title, status = "model-not-masked", "Not a masked model", 409


class RoundOpenError(LetheError):
    """The model has a round that has not ended."""

    slug, title, status = "round-open", "A round is open", 409


class RoundMemberError(LetheError):
    """A key cannot take part in a round."""

    slug, title, status = "round-member-refused", "Member refused", 422


class RoundStepError(LetheError):
    """The round is at another step, or goes on without this member."""

    slug, title, status = "round-step", "Not this step's turn", 409


class RoundDuplicateError(LetheError):
    """The member sent another message for this step before."""

    slug, title, status = "message-duplicate", "Message sent before", 409


class RoundMessageError(LetheError):
    """A message that is not what its step asks for. Nothing was stored."""

    slug, title, status = "message-malformed", "Message refused", 422


class RoundForeignError(RoundMessageError):
    """A message of another round, step or member."""

    slug = "message-of-another-round"


class RoundForgedError(RoundMessageError):
    """A message whose own signature is not its sender's."""

    slug = "message-forged"


class RoundLengthError(RoundMessageError):
    """A vector that is not as long as the model's."""

    slug = "length-wrong"


class RoundMismatchError(RoundMessageError):
    """A message for other peers than the round has: the masks would not cancel."""

    slug = "mask-mismatch"


class RoundReleaseError(RoundMessageError):
    """A message that releases other records than those asked for."""

    slug = "release-mismatch"
