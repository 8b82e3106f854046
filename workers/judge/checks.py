"""Judgements by the checks of the catalogue: made, guarded against errors, summed up."""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from lethe.catalogue import CHECKS, CheckSpec
from lethe.certificates.statement import CheckPart
from workers.discovery import import_room
from workers.errors import ModelError
from workers.judge.base import Judgement, Report, Result

# Errors of evaluating a claim with odd types or sizes. A claim is written by the judged party,
# so it must not be able to stop the judge: the check fails, and says so.
ODD_INPUT = (
    ArithmeticError,
    AttributeError,
    LookupError,
    ModelError,
    TypeError,
    ValueError,
    struct.error,
)


def judged(
    spec: CheckSpec,
    value: str,
    *,
    passed: bool,
    interval: tuple[str, str] | None = None,
    threshold: str | None = None,
    undecided: bool = False,
) -> Judgement:
    """Return the judgement of a check, unnumbered; threshold: the catalogue's with numbers."""
    limit = spec.threshold if threshold is None else threshold
    check = CheckPart(0, spec.name, spec.quantity, value, interval, limit, passed)
    return Judgement(check, undecided)


def guarded(spec: CheckSpec, run: Callable[[], Judgement]) -> Judgement:
    """Return what `run` returns, or a failed check if the claim cannot be evaluated."""
    return guarded_all(spec, lambda: [run()])[0]


def guarded_all(spec: CheckSpec, run: Callable[[], Sequence[Judgement]]) -> Sequence[Judgement]:
    """Return what `run` returns, or one failed check if the claim cannot be evaluated."""
    try:
        return run()
    except ODD_INPUT as error:
        # The type only: a message may quote the claim's content.
        value = f"the claim cannot be evaluated: {type(error).__name__}"
        return [judged(spec, value, passed=False)]


def numbered(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements with their checks numbered 1, 2, 3, as certificates require."""
    return [
        replace(judgement, check=replace(judgement.check, number=number))
        for number, judgement in enumerate(judgements, 1)
    ]


def report_of(judgements: Sequence[Judgement]) -> Report:
    """Return the report: FAIL if any is refuted, else INCONCLUSIVE if undecided, else PASS.

    The checks are numbered in this order.
    """
    return Report(result_of(judgements), tuple(j.check for j in numbered(judgements)))


def result_of(judgements: Sequence[Judgement]) -> Result:
    """Return the overall result of the judgements."""
    failed = [judgement for judgement in judgements if not judgement.check.passed]
    if not failed:
        return "PASS"
    return "INCONCLUSIVE" if all(j.undecided for j in failed) else "FAIL"


Function = TypeVar("Function")


class CheckRoom(Generic[Function]):
    """The functions that the files of a package register, each for a check by its name."""

    def __init__(self, package: str) -> None:
        """Start empty; package: the full name of the package that `functions` imports."""
        self._package = package
        self._found: dict[str, Function] = {}

    def check(self, name: str) -> Callable[[Function], Function]:
        """Register the decorated function for a catalogued check."""
        assert name in CHECKS, f"no check is called {name}: add it to lethe/catalogue.py"

        def register(function: Function) -> Function:
            assert name not in self._found, f"two functions are registered for {name}"
            self._found[name] = function
            return function

        return register

    def functions(self) -> list[tuple[CheckSpec, Function]]:
        """Return all functions with their checks, in the order of the catalogue."""
        import_room(self._package)
        return [
            (spec, self._found[name]) for name, spec in CHECKS.items() if name in self._found
        ]


SHA256 = re.compile(r"[0-9a-f]{64}")
MODEL_FILE = CHECKS["model-file"]


def check_digests(spec: CheckSpec, claimed: str, found: str) -> Judgement:
    """Judge two hex SHA-256 digests, one claimed and one recomputed."""
    if not SHA256.fullmatch(claimed) or not SHA256.fullmatch(found):
        return judged(spec, "a digest is not SHA-256 in lower-case hex", passed=False)
    if claimed != found:
        return judged(spec, "the digest claimed is not the one found", passed=False)
    return judged(spec, f"sha256 {found}", passed=True)


def check_pairs(pairs: Mapping[str, tuple[str, str]]) -> list[Judgement]:
    """Judge pairs of digests (claimed, recomputed) by the names of their checks."""
    return [
        guarded(CHECKS[name], partial(_check_pair, CHECKS[name], pair))
        for name, pair in pairs.items()
    ]


def _check_pair(spec: CheckSpec, pair: tuple[str, str]) -> Judgement:
    claimed, recomputed = pair
    return check_digests(spec, claimed, recomputed)


def check_model_file(published: str, recomputed: str, *, finite: bool = True) -> Judgement:
    """Judge two hex digests of a model file. finite: it has no NaN or infinity.

    A claim that cannot be evaluated is a failed check: nothing is raised.
    """

    def run() -> Judgement:
        judgement = check_digests(MODEL_FILE, published, recomputed)
        if judgement.check.passed and finite is not True:
            return judged(MODEL_FILE, "the file holds NaN or infinity", passed=False)
        return judgement

    return guarded(MODEL_FILE, run)
