"""What keeps a claim from stopping its judge, and what the judged checks come to."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from workers.errors import ModelError
from workers.judge.base import Check, Judgement, Report, Result

# What evaluating a claim of odd types or sizes raises. A claim is written by the judged,
# so it must not be able to stop the judge: the check has failed, and says so.
ODD_INPUT = (
    ArithmeticError,
    AttributeError,
    LookupError,
    ModelError,
    TypeError,
    ValueError,
    struct.error,
)


def guarded(number: int, name: str, threshold: str, run: Callable[[], Judgement]) -> Judgement:
    """Return what `run` says, or a failed check if the claim cannot be evaluated."""
    try:
        return run()
    except ODD_INPUT as error:
        # The type only: a message may quote what the claim contained.
        value = f"the claim cannot be evaluated: {type(error).__name__}"
        return Judgement(Check(number, name, value, None, threshold, False))


def numbered(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements with their checks numbered 1, 2, 3 as certificates demand."""
    return [
        replace(judgement, check=replace(judgement.check, number=number))
        for number, judgement in enumerate(judgements, 1)
    ]


def report_of(judgements: Sequence[Judgement]) -> Report:
    """Return the report: refuted is FAIL, undecided INCONCLUSIVE, and only all passed PASS."""
    return Report(result_of(judgements), tuple(j.check for j in judgements))


def result_of(judgements: Sequence[Judgement]) -> Result:
    """Return what the judgements come to."""
    failed = [judgement for judgement in judgements if not judgement.check.passed]
    if not failed:
        return "PASS"
    return "INCONCLUSIVE" if all(j.undecided for j in failed) else "FAIL"
