"""Errors of the intake page. No message repeats the input, or reveals what is stored."""

from lethe.errors import LetheError


class IntakeExpiredError(LetheError):
    """The code has expired, was tried too often, or was never sent to this browser."""

    slug, title, status = "intake-expired", "The code has expired", 410


class IntakeCodeError(LetheError):
    """Not the code that was sent. `left`: the number of tries left."""

    slug, title, status = "intake-code", "The code is wrong", 422


class IntakeSignatureError(LetheError):
    """The browser's key did not sign the statement."""

    slug, title, status = "intake-signature", "The signature does not hold", 422


class IntakeIdentityError(LetheError):
    """Not an identity of an accepted kind."""

    slug, title, status = "intake-identity", "Not an address", 422


class IntakeCaseError(LetheError):
    """No case has this code, or the case's retention has ended."""

    slug, title, status = "intake-case", "Unknown case", 404


class IntakeChangedError(LetheError):
    """Database and log disagree on how a case began."""

    slug, title, status = "intake-changed", "The database and the log disagree", 503


class IntakeLaterError(LetheError):
    """The case cannot be opened now; the code stays valid."""

    slug, title, status = "intake-later", "Try again later", 503
    retry_after = 60
