"""A certificate in a few plain sentences, for those who know neither checks nor classes.

They say what the statement says and never more: nothing of the model unless the result is PASS,
and of rows that the verifier did not see, that it did not.
"""

from collections.abc import Mapping

from lethe.certificates.statement import GuaranteeClass, Predicate

WHOSE = {"sample": "", "client": " of one client", "subject": " of one person"}
FOUND: dict[GuaranteeClass, str] = {
    "exact": "The verifier found the published model to be the exact solution, correctly "
    "rounded, for {kept}.",
    "numerically-exact": "The verifier found the published model to be the solution for "
    "{kept}, up to a proven bound on its numerical error.",
    "certified-approximate": "The verifier found the published model to be within a proven "
    "distance of the solution for {kept}. It need not be that solution.",
    "exact-retrained": "The model was trained again without them, and the training was "
    "repeated with the same result.",
    "empirical-approximate": "Tests that were fixed beforehand found no trace of them in the "
    "published model beyond the stated margins: that is evidence, and no proof.",
    "none": "Nothing is guaranteed of the published model.",
}
SEEN, UNSEEN = (
    "the records that remain",
    "the sums that clients sent of the records that remain",
)
NOT_SEEN = " It did not see the records themselves."
LEGEND = "What each check means: docs/auditor-guide.md"


def in_words(said: Predicate) -> str:
    """Return what a certificate comes to, in plain sentences on one line."""
    records = count(said.scope.records, "record") + WHOSE[said.scope.level]
    model, checks = f"model {said.model.ref}", len(said.checks)
    if said.result != "PASS":
        failed = sum(not check.passed for check in said.checks)
        return (
            f"It is not shown that {records} left {model}: the result is {said.result}, and "
            f"{failed} of {count(checks, 'check')} did not pass."
        )
    were = "was" if said.scope.records == 1 else "were"
    day = said.completed_at.date().isoformat()
    passed = "The one check passed." if checks == 1 else f"All {checks} checks passed."
    return f"{records} {were} erased on {day} from {model}. {_found(said)} {passed}"


def _found(said: Predicate) -> str:
    told = said.method.parameters
    unseen = told.get("data", "rows") != "rows"
    found = FOUND[said.guarantee.class_].format(kept=UNSEEN if unseen else SEEN)
    if said.guarantee.class_ == "exact-retrained" and told.get("retrain.missing", "0") != "0":
        found += f" Answers of clients were missing in both: {told['retrain.missing']}."
    return found + (NOT_SEEN if unseen else "")


def audits_in_words(told: Mapping[str, str]) -> str | None:
    """Return how many audits of its method a certificate counts, None where it counts none."""
    names = ("audit.started", "audit.reported", "audit.log-size")
    if any(name not in told for name in names):
        return None
    started, reported, size = (told[name] for name in names)
    number = told.get("audit.number")
    which = "none of them is cited" if number is None else f"the one cited is number {number}"
    return (
        f"the log's first {size} entries have {started} started of this method, and reports of "
        f"{reported}; {which}"
    )


def count(number: int, noun: str) -> str:
    """Return a number with its noun, "1 record" or "2 records"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
