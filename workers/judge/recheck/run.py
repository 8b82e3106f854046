"""Recompute a certified verdict, as far as a second party can: offline, from files.

Signatures are not checked here: `lethe certificate verify` does that.
"""

from lethe.certificates.evidence import SCORES
from lethe.certificates.statement import Predicate
from workers.judge.recheck.attempts import compare_attempts
from workers.judge.recheck.files import RecheckFiles, compare_files, scores_of
from workers.judge.recheck.lines import Line, Recheck
from workers.judge.recheck.unjudged import list_checks


def recheck(said: Predicate, given: RecheckFiles) -> Recheck:
    """Return the result of rechecking the given files.

    Never raises because of their content. Raises ModuleNotFoundError if there are scores to
    recompute, and no NumPy or SciPy.
    """
    lines: list[Line] = compare_files(said, given)
    own = scores_of(said, given, SCORES)[-1:]
    judged = False
    if own:
        from workers.judge.recheck.judged import compare_verdict

        found, judged = compare_verdict(said, given, own[0])
        lines += found
    if not judged:
        lines += list_checks(said, given)
    lines += compare_attempts(said, given)
    return Recheck(lines, judged)
