"""An escalation as a certificate tells it: an approximation that no test could judge."""

from collections.abc import Mapping

from lethe.certificates.statement import AttemptPart, CheckPart, read_escalation, spelled

SAMPLES = CheckPart(
    number=2,
    name="samples",
    quantity="rows tested",
    value="45 pairs, testing 18.4% of 245 forget rows; 914 retained; power: AUC 0.0000",
    interval=None,
    threshold="at least 310 pairs; power 0.8",
    passed=False,
)
ATTACK = CheckPart(
    number=3,
    name="yeom:auc",
    quantity="AUC of the attack",
    value="0.7012 (45 forget, 45 unseen rows)",
    interval=("0.61", "0.79"),
    threshold="between 0.4 and 0.6",
    passed=False,
)
PURGE = CheckPart(
    1, "purge", "items still readable", "0 of 6 readable", None, "0 readable", passed=True
)
NOT_RUN = CheckPart(
    number=3,
    name="attacks",
    quantity="attacks",
    value="not run: the samples do not allow it",
    interval=None,
    threshold="samples that check 5 passed",
    passed=False,
)
UNDECIDED = AttemptPart(1, "puf-special", "INCONCLUSIVE", None, (PURGE, SAMPLES, NOT_RUN))
SKIPPED = AttemptPart(None, "hf-kcu", "NONE", "skipped, over the budget", ())


def escalation_line(parameters: Mapping[str, str]) -> str:
    """Return a certificate's escalation on one line, "" where nothing was escalated."""
    return " | ".join(map(spelled, read_escalation(parameters)))
