"""What a certificate's checks did not test, as far as the certificate itself shows it.

A passed check is about what it looked at. Each line here names something that a reader could
take for tested and that was not. What no certificate of any class can show comes last.
"""

from collections.abc import Iterator

from lethe.certificates.statement import Predicate
from lethe.cli.check_words import ATTACKS, not_run

NO_ATTACK = "attacks on the published model: none was run; {} instead"
ELSEWHERE = "copies of the data or of earlier models elsewhere, and backups"
HELD = "the records themselves: what their holders sent of them was taken as sent"
REPORTED = "reported only"  # in the threshold of a measurement that nothing depends on


def untested(said: Predicate) -> Iterator[str]:
    """Yield what was not tested, a line each."""
    claim, told = said.guarantee.class_, said.method.parameters
    for check in said.checks:
        if (why := not_run(check)) is not None:
            yield f"{check.name}: {why}"
    reported = [c.name for c in said.checks if c.threshold and REPORTED in c.threshold]
    if reported:
        yield f"{', '.join(reported)}: measured and reported, with no limit to pass"
    if claim == "empirical-approximate":
        yield from _of_samples(said)
    elif claim == "exact-retrained":
        yield NO_ATTACK.format("the training was repeated")
        yield "the training's own code: the repetition ran the same"
    elif claim != "none":
        yield NO_ATTACK.format("what its weights are was proven")
    if claim == "certified-approximate":
        yield "what the weights still tell within the stated distance"
    if told.get("data", "rows") != "rows":
        yield HELD
    if told.get("retrain.missing", "0") != "0":
        yield "whether the answers that were missing would have changed the model"
    yield ELSEWHERE


def _of_samples(said: Predicate) -> Iterator[str]:
    ran = sorted({c.name.partition(":")[0] for c in said.checks} & set(ATTACKS))
    yield f"attacks other than {', '.join(ran) or 'none'}: a stronger one may find more"
    yield "erased rows without a partner: the check samples says which share was tested"
    yield "any single record: the tests are on averages and on a tail"
    told = said.method.parameters
    if "audit" not in told:
        why = told.get("audit.missing", "the certificate cites no audit of it")
        yield f"the method over many erasures: {why}"
