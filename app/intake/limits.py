"""Limits on the use of the page: by client, by identity, by challenge, and in total."""

from app.api.http.attempts import Bound
from app.problems import AttemptsError


class IntakeLimitError(AttemptsError):
    """Too many calls of the intake page."""

    slug = "intake-limit"


BY_CLIENT = Bound("client", 10)  # requested codes
BY_IDENTITY = Bound("identity", 3, kept=True)
TRIES = Bound("tries", 5, 900.0)  # of one challenge
CODES = Bound("codes", 60)  # wrong codes, of challenges and cases, by client
