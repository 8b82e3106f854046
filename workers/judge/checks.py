"""Judgements by the checks of the catalogue: made, guarded against errors, summed up.

Every guarantee has the checks at the end: the digests are those claimed, the retained set lost
exactly the erased records, and what held them cannot be read. The trees are recomputed from the
full lists of commitments, so the published roots, which certificates and proofs refer to, are
bound to the records really kept. Earlier heads and states, and the stored rows themselves,
contain a person's data as much as the model does: after the erasure, a probe tried to read each
of them, and the purge has the outcome.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import lt
from typing import Generic, TypeVar

from lethe.catalogue import CHECKS, VERIFIERS, CheckSpec
from lethe.certificates.statement import CheckPart
from workers.discovery import import_room
from workers.errors import ModelError
from workers.judge.base import (
    Judgement,
    PurgeClaim,
    Report,
    Result,
    RetainedSetClaim,
    UpdateClaim,
)
from workers.judge.merkle import NO_CONTENT, Tree, table

Claim = TypeVar("Claim")

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


@dataclass(frozen=True, slots=True)
class CheckingVerifier(Generic[Claim]):
    """A verifier that judges a claim by a list of checks, which never raises."""

    id: str
    checks: Callable[[Claim], Sequence[Judgement]]

    @property
    def version(self) -> str:
        """Changes whenever the same claim may get another verdict."""
        return VERIFIERS[self.id]

    def verify(self, claim: Claim) -> Report:
        """Return the numbered verdict. Never raises for anything a claim may contain."""
        return report_of(self.checks(claim))


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


RETAINED_SET, PURGE = CHECKS["retained-set"], CHECKS["purge"]


def check_retention(kept: RetainedSetClaim, gone: PurgeClaim) -> list[Judgement]:
    """Judge both. The rows counted are those which the purge found still stored."""
    return [
        guarded(RETAINED_SET, lambda: check_retained_set(kept, len(set(gone.retained_rows)))),
        guarded(PURGE, lambda: check_purge(gone)),
    ]


def check_purge(claim: PurgeClaim) -> Judgement:
    """Judge the probes and the stored row ids. Without a probe the check is undecided."""
    readable = sum(probe.readable is not False for probe in claim.probes)
    stored = len(set(claim.erased_rows).intersection(claim.retained_rows))
    value = f"{readable} of {len(claim.probes)} readable, {stored} erased rows stored"
    if not claim.erased_rows:
        value = "no erased row is named"
    elif not claim.probes:
        value = "nothing was probed"
    refuted = bool(readable or stored)
    unsure = not (claim.probes and claim.erased_rows)
    passed = not (refuted or unsure)
    return judged(PURGE, value, passed=passed, undecided=unsure and not refuted)


def check_retained_set(claim: RetainedSetClaim, rows: int) -> Judgement:
    """Judge the retained sets; rows: how many rows the statistics were recomputed from."""
    problem = _problem(claim, rows)
    value = f"{len(claim.before)} - {len(claim.erased)} = {len(claim.after)} records"
    return judged(RETAINED_SET, problem or value, passed=problem is None)


def _problem(claim: RetainedSetClaim, rows: int) -> str | None:
    malformed = _malformed("before", claim.before)
    if malformed is not None:
        return malformed
    erased = set(claim.erased)
    if not erased:
        return "no erased record is named"
    if len(erased) != len(claim.erased):
        return "an erased record is named twice"
    if erased.difference(claim.before):
        return "an erased record was not in before"
    if [one for one in claim.before if one not in erased] != list(claim.after):
        # They are equal, so `after` is as well-formed as `before`.
        return _difference(claim, erased)
    if (len(claim.before), len(claim.after)) != (claim.before_count, claim.after_count):
        return "a published count is wrong"
    update = claim.update
    malformed = None if update is None else _malformed_update(claim, update)
    if malformed is not None:
        return malformed
    # Every set of the chain is the set that the round grew to without some of its records.
    earlier = () if update is None else update.earlier
    grown = sorted([*claim.before, *earlier])
    without = Tree(table(grown), table([NO_CONTENT] * len(grown))).root_without
    if without(earlier) != claim.before_root:
        return "the published root of before is wrong"
    if without([*earlier, *erased]) != claim.after_root:
        return "the published root of after is wrong"
    last = len(claim.after)
    if update is not None:
        last -= len(update.later)
        if (len(grown) - len(update.added), last) != (update.before_count, update.after_count):
            return "a count of the versions before and after the update is wrong"
        if without(update.added) != update.before_root:
            return "the chain does not begin at the version before"
        if without([*earlier, *erased, *update.later]) != update.after_root:
            return "the chain does not end at the version after"
    if rows != last:
        return f"{rows} rows are stored for {last} retained records"
    return None


def _malformed(name: str, leaves: Sequence[bytes]) -> str | None:
    if not are_commitments(leaves):
        return f"a commitment in {name} is not 32 bytes"
    if not all(map(lt, leaves, islice(leaves, 1, None))):
        return f"{name} is not sorted without duplicates"
    return None


def _difference(claim: RetainedSetClaim, erased: set[bytes]) -> str:
    """Return how `after` differs from what the erasure should leave."""
    malformed = _malformed("after", claim.after)
    if malformed is not None:
        return malformed
    if not erased.isdisjoint(claim.after):
        return "an erased record is still in after"
    return "before without the erased records is not after"


def _malformed_update(claim: RetainedSetClaim, update: UpdateClaim) -> str | None:
    """Return what is wrong with the other requests' records that the same update removed."""
    others = [*update.earlier, *update.later]
    if not are_commitments(update.added):
        return "a commitment that the round added is not 32 bytes"
    added = set(update.added)
    if len(added) != len(update.added):
        return "the round added a record twice"
    if added.difference(claim.before, update.earlier):
        return "a record that the round added is not in the set that it grew to"
    if not are_commitments(others):
        return "a commitment of another request is not 32 bytes"
    if len(set(others)) != len(others):
        return "a record is erased twice in one update"
    if not set(update.earlier).isdisjoint(claim.before):
        return "a record erased earlier in the update is still in before"
    if set(update.later).difference(claim.after):
        return "a record erased later in the update is not in after"
    return None


def are_commitments(leaves: Sequence[bytes]) -> bool:
    """Return whether all leaves are 32 bytes."""
    return {*map(type, leaves)} <= {bytes} and {*map(len, leaves)} <= {32}
