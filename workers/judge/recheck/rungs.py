"""The rungs before a certified one: a line for each that is told, and for each scores file.

The nth scores file of the climb is of the nth rung that was judged by samples, as the
certificate lists both in their order. Matched by what they say, one file would vouch for
every rung that is told alike, and a rung could be invented without a line about it.
"""

from hashlib import sha256

from lethe.canonical import NotCanonicalError
from lethe.certificates.climb import RungPart, read_climb, spelled
from lethe.certificates.errors import ShapeError
from lethe.certificates.evidence import CLIMB_SCORES, SCORES
from lethe.certificates.statement import Predicate
from workers.judge.recheck.files import Given, named_scores
from workers.judge.recheck.lines import RUNG, UNTOLD, Line, compare, skipped

# Every verdict by samples has this check, also where there were too few, and no other has it.
SAMPLES = "samples"
NO_VERDICT = "no verdict of it is told, so there is none to reach again"
NOT_SAMPLED = "it was not judged by samples: the rung was destroyed, and rests on the service"
NO_SCORES = "no scores of it are named: what is told of it rests on the service"


def compare_rungs(said: Predicate, given: Given) -> list[Line]:
    """Return a line for each rung told, and for each scores file that is of none of them.

    Raises ModuleNotFoundError where there are scores to compute with, and no NumPy or SciPy.
    """
    try:
        rungs = read_climb(said.method.parameters)
    except (NotCanonicalError, ShapeError) as error:
        return [compare(RUNG, "a climb of the documented form", error.detail)]
    listed = named_scores(said)
    # Each judgement draws its own seed: no two have one file.
    used = {digest for name, digest in listed if name == SCORES}
    unmatched = [digest for name, digest in listed if name == CLIMB_SCORES]
    lines: list[Line] = []
    for rung in rungs:
        if rung.result == "NONE":
            lines.append(skipped(RUNG, spelled(rung), NO_VERDICT))
        elif not _by_samples(rung):
            lines.append(skipped(RUNG, spelled(rung), NOT_SAMPLED))
        elif not unmatched:
            lines.append(skipped(RUNG, spelled(rung), NO_SCORES))
        else:
            lines += _compare(said, given, rung, unmatched.pop(0), used)
    # A model that passed, and was not certified, is told as a rung without a verdict.
    unjudged = any(rung.result == "NONE" for rung in rungs)
    for digest in unmatched:
        lines += _compare(said, given, None, digest, used, unjudged=unjudged)
    return lines


def _by_samples(rung: RungPart) -> bool:
    """Return whether a verdict was by samples."""
    return any(check.name == SAMPLES for check in rung.checks)


def _compare(
    said: Predicate,
    given: Given,
    rung: RungPart | None,
    digest: str,
    used: set[str],
    *,
    unjudged: bool = False,
) -> list[Line]:
    told = UNTOLD if rung is None else spelled(rung)
    if digest in used:
        return [compare(RUNG, told, f"its scores {digest} are those of another verdict")]
    used.add(digest)
    found = {sha256(file).hexdigest(): file for file in given.scores}
    if digest not in found:
        return [skipped(RUNG, told, f"its scores {digest} were not given (--scores)")]
    from workers.judge.recheck.climb import compare_rung, compare_untold

    if rung is not None:
        return compare_rung(said, given, rung, found[digest])
    return compare_untold(said, given, found[digest], unjudged=unjudged)
