"""One alpha for all requests that a model will ever get.

Requests arrive without a known end, so the k-th may spend alpha·6/(π²k²): the sum over all k is
alpha (Σ 1/k² = π²/6, Basel). The probability that any of a model's certificates passes wrongly
is then at most alpha; later requests need larger samples, not a new policy.
"""

from math import pi

from workers.errors import RefusedError


def spent(alpha: float, requests_before: int) -> float:
    """Return the alpha of the request after `requests_before` earlier ones of the model.

    Raises RefusedError for a count that is not a whole number of at least 0.
    """
    if isinstance(requests_before, bool) or not isinstance(requests_before, int):
        raise RefusedError("the number of requests before is not a whole number")
    if requests_before < 0:
        raise RefusedError("the number of requests before is negative")
    return alpha * 6 / (pi * (requests_before + 1)) ** 2
