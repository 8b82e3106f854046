"""What the intake page refuses. No message repeats what was sent, or says what is stored."""

from lethe.errors import LetheError


class IntakeExpiredError(LetheError):
    """The code has expired, was tried too often, or was never sent to this browser."""

    slug, title, status = "intake-expired", "The code has expired", 410


class IntakeCodeError(LetheError):
    """Not the code that was sent. `left`: how often another may be tried."""

    slug, title, status = "intake-code", "The code is wrong", 422


class IntakeSignatureError(LetheError):
    """What the browser sent is no signature of its key over the statement."""

    slug, title, status = "intake-signature", "The signature does not hold", 422


class IntakeIdentityError(LetheError):
    """No identity of a kind that is asked for."""

    slug, title, status = "intake-identity", "Not an address", 422


class IntakeCaseError(LetheError):
    """No case has this code; also where the case has ended so long ago that it is forgotten."""

    slug, title, status = "intake-case", "Unknown case", 404


class IntakeChangedError(LetheError):
    """The database has how a case began otherwise than the log."""

    slug, title, status = "intake-changed", "The database and the log disagree", 503


class IntakeLaterError(LetheError):
    """The case cannot be opened now; the code stays valid."""

    slug, title, status = "intake-later", "Try again later", 503
    retry_after = 60
