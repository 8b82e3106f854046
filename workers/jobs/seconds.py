"""Wall-clock seconds of the stages of an erasure, for its certificate: reported, not verified.

If a worker dies during a stage, the stage is measured from its restart.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

from lethe.certificates.cost import EARLIER, METHOD
from workers.jobs.update import UpdateResult

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, str]:
    """Return the result of a call, and its seconds as certificates write them."""
    began = perf_counter()
    found = work()
    return found, f"{perf_counter() - began:.3f}"


def with_seconds(result: UpdateResult, seconds: str) -> UpdateResult:
    """Return a result that states its seconds, unless its method already stated them."""
    return replace(result, parameters={METHOD: seconds, **result.parameters})


def earlier_seconds(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter for the seconds of all attempts so far, given their parameters."""
    known = [float(parameters[name]) for name in (EARLIER, METHOD) if name in parameters]
    return {EARLIER: f"{sum(known):.3f}"} if known else {}
