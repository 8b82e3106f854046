"""Wall-clock seconds of the stages of an erasure, for its certificate: reported, not verified.

A stage that a worker dies in is measured from where the next one began it again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

from lethe.certificates.cost import EARLIER, METHOD
from workers.jobs.update import UpdateResult

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, str]:
    """Return what a call gives, and its seconds as certificates spell them."""
    began = perf_counter()
    found = work()
    return found, f"{perf_counter() - began:.3f}"


def with_seconds(result: UpdateResult, seconds: str) -> UpdateResult:
    """Return a result that states its seconds, if its method has not stated them itself."""
    return replace(result, parameters={METHOD: seconds, **result.parameters})


def earlier_seconds(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter of the attempts up to one, whose parameters are given."""
    known = [float(parameters[name]) for name in (EARLIER, METHOD) if name in parameters]
    return {EARLIER: f"{sum(known):.3f}"} if known else {}
