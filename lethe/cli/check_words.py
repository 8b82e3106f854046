"""What each check asks for, in plain words: what has to be the case for it to pass.

docs/auditor-guide.md has a table of the same names; a test compares the two.
"""

from lethe.certificates.statement import CheckPart

ATTACKS = "lira", "rmia", "shokri", "song-confidence", "song-modified-entropy", "yeom"
_SUMS = "the sums that the model rests on must be those of the records that remain"
_SENT = "the sums that the model rests on must be those of the clients' messages that remain"
_HEAD = "the published weights must be the solution for these sums, within the stated bound"
_WORDS = {
    "statistics-recomputed": _SUMS,
    "statistics-freivalds": _SUMS,
    "statistics-resummed": _SENT,
    "masked-rounds-summed": _SENT,
    "head-correctly-rounded": "the published weights must be the solution, to the last digit",
    "head-bound": _HEAD,
    "head-certified": _HEAD,
    "posterior": "the model must tell what the recomputed sums tell, and no more than before",
    "model-file": "the stored model must be the published one",
    "data": "the stored rows must be those that the published version names",
    "retained-set": "the erased records, and no others, must have left the list of records",
    "purge": "nothing that held the erased records may still be read",
    "start": "the training must have begun at the registered first weights",
    "re-execution": "the training, run again, must end with the same file, bit for bit",
    "gradient-bound": "the distance to the best model for the rest must be below the limit",
    "registration": "what was registered must be what the log says",
    "noise": "the registered noise must be in the model",
    "budget": "there must not be more versions than the noise hides",
    "policy": "the tests must be those that were promised beforehand",
    "samples": "there must be enough erased rows, each beside a like row that the model never "
    "saw, for a trace of the stated size to be noticed",
    "canary": "a planted trigger must not work any more",
    "control:canary-trigger": "the planted trigger must have worked before the erasure",
    "retained-accuracy": "the model must not have become much worse on the rows that stay",
    "test-accuracy": "the model must not have become much worse on rows that it never saw",
    "trainings": "all models that the tests need must have been trained",
    "silos-answered": "every data holder must have answered, signed with its own key",
    "rows-before": "the rows tested must be those of the version before",
    "rows-after": "the rows tested must be those of the published version",
    "model-before": "the model compared with must be the version before",
}
_CONTROL = "the attack must find the erased rows before the erasure, or it proves nothing after"
_CHANCE = "the attack must be about as good as guessing at telling erased rows from unseen ones"
_TAIL = "hardly any erased row may stand out where the attack is surest"
_DISTANCE = "the model must answer about as one that was trained without the erased rows"


def asked_for(name: str) -> str | None:
    """Return what a check of this name asks for, None of one that has no words here."""
    kind, _, measured = name.partition(":")
    if name in _WORDS:
        return _WORDS[name]
    if kind == "control":
        return _CONTROL
    if kind == "distance":
        return _DISTANCE
    if kind in ATTACKS:
        return _TAIL if measured == "tail" else _CHANCE
    return None


def not_run(check: CheckPart) -> str | None:
    """Return why a check was not run, None where it was."""
    for begins in ("not run: ", "not measured: "):
        if check.value.startswith(begins):
            return check.value.removeprefix(begins)
    return None
