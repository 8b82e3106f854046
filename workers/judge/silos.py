"""If scores come from silos, every silo must have answered.

A silent silo, or one whose answer is not signed with its key, proves nothing, neither for the
model nor against it. So checks that need its rows show nothing and refute nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lethe.catalogue import CHECKS, CheckSpec
from workers.judge.base import Judgement
from workers.judge.checks import guarded, judged

SPEC = CHECKS["silos-answered"]


@dataclass(frozen=True, slots=True)
class SilosClaim:
    """How many silos were asked, how many answers count, and why the others do not: counts.

    keys: for each silo whose answer counts, by its number, hex SHA-256 of the key that signed
    it, which the log has.
    """

    asked: int
    answered: int
    faults: Mapping[str, int]
    keys: Mapping[str, str] = field(default_factory=dict)


def are_missing(claim: SilosClaim | None) -> bool:
    """Return whether rows are with silos whose answers do not count."""
    return isinstance(claim, SilosClaim) and not _complete(claim)


def check_silos(claim: SilosClaim | None) -> list[Judgement]:
    """Judge that all silos answered, if any were asked. A missing answer refutes nothing."""
    if claim is None:
        return []
    return [guarded(SPEC, lambda: _check(claim))]


def _complete(claim: SilosClaim) -> bool:
    return claim.answered == claim.asked and not claim.faults


def _check(claim: SilosClaim) -> Judgement:
    passed = _complete(claim)
    value = f"{claim.answered} of {claim.asked} silos"
    for why, count in sorted(claim.faults.items()):
        value += f"; {why}: {count}"
    if claim.keys:
        signed = ", ".join(f"{silo} {claim.keys[silo]}" for silo in sorted(claim.keys, key=int))
        value += f"; keys: {signed}"
    return judged(SPEC, value, passed=passed, undecided=not passed)


def withheld(spec: CheckSpec) -> Judgement:
    """Return the check that cannot be run without the rows of all silos."""
    return judged(spec, "not run: a silo's rows are missing", passed=False, undecided=True)


def of_some(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return judgements based on some silos' rows: only their refutations stand."""
    return [
        judgement
        if not judgement.check.passed
        else Judgement(
            replace(
                judgement.check,
                value=f"{judgement.check.value}; a silo's rows are missing",
                passed=False,
            ),
            undecided=True,
        )
        for judgement in judgements
    ]
