"""The result of a certificate in sentences, and what it does not cover.

The sentences never say more than the statement: nothing about the model unless the result is
PASS, and for rows that the verifier did not see, that it did not see them.
"""

from collections.abc import Iterator, Mapping

from lethe.catalogue import ATTACKS, data_of
from lethe.certificates.statement import CheckPart, Predicate
from lethe.words.texts import Texts, day_in


def in_words(predicate: Predicate, texts: Texts) -> str:
    """Return a certificate's result, in plain sentences on one line."""
    number, model = predicate.scope.records, predicate.model.ref
    records = texts.count("certificate", "records", number)
    what = texts.of("certificate", predicate.scope.level, records=records)
    if predicate.result != "PASS":
        return texts.count(
            "certificate",
            "not_shown",
            number,
            what=what,
            model=model,
            result=predicate.result,
            failed=sum(not check.passed for check in predicate.checks),
            checks=texts.count("certificate", "checks", len(predicate.checks)),
        )
    at = predicate.completed_at.date()
    # The English sentence is part of CycloneDX documents, which have ISO 8601.
    day = at.isoformat() if texts.language == "en" else day_in(texts.language, at)
    erased = texts.count("certificate", "erased", number, what=what, day=day, model=model)
    passed = texts.count("certificate", "passed", len(predicate.checks))
    return f"{erased} {finding(predicate, texts)} {passed}"


def finding(predicate: Predicate, texts: Texts) -> str:
    """Return what the verifier found about the published model."""
    parameters = predicate.method.parameters
    unseen = not data_of(parameters).rows_here
    name = "refitted" if is_refitted(predicate) else str(predicate.guarantee.class_)
    kept = "unseen" if unseen else "seen"
    own = texts.sections["certificate"]
    # German uses another case after a preposition.
    dative = own.get(f"{kept}_dative", own[kept])
    found = [texts.of("certificate", name, kept=own[kept], kept_dative=dative)]
    missing = parameters.get("retrain.missing", "0")
    if predicate.guarantee.class_ == "exact-retrained" and missing != "0":
        found.append(texts.of("certificate", "missing", n=missing))
    if unseen:
        found.append(texts.of("certificate", "not_seen"))
    return " ".join(found)


def is_refitted(predicate: Predicate) -> bool:
    """Return whether the verifier refitted the model and compared it byte for byte."""
    return predicate.guarantee.class_ == "exact" and any(
        check.name == "re-execution" for check in predicate.checks
    )


def untested(predicate: Predicate, texts: Texts) -> Iterator[str]:
    """Yield what was not tested, one line each.

    A passed check covers only its own subject. Each line names something that a reader could
    believe to be tested and that was not; what no certificate of any class can show comes last.
    """
    claim = predicate.guarantee.class_
    for check in predicate.checks:
        if (why := not_run(check)) is not None:
            yield f"{check.name}: {why}"
    reported = [c.name for c in predicate.checks if c.threshold is None and not_run(c) is None]
    if reported:
        yield texts.of("untested", "reported", names=", ".join(reported))
    if claim == "empirical-approximate":
        yield from _of_samples(predicate, texts)
    yield from (texts.of("untested", name) for name in _by_class(predicate))
    parameters = predicate.method.parameters
    if not data_of(parameters).rows_here:
        yield texts.of("untested", "held")
    if parameters.get("retrain.missing", "0") != "0":
        yield texts.of("untested", "answers")
    yield texts.of("untested", "elsewhere")


def _by_class(predicate: Predicate) -> tuple[str, ...]:
    claim = predicate.guarantee.class_
    if claim == "exact-retrained" or is_refitted(predicate):
        return "repeated", "code"
    names: Mapping[str, tuple[str, ...]] = {
        "retrained": ("repeated", "code", "tolerance"),
        "certified-approximate": ("proven", "distance"),
        "empirical-approximate": (),
        "none": (),
    }
    return names.get(claim, ("proven",))


def _of_samples(predicate: Predicate, texts: Texts) -> Iterator[str]:
    ran = sorted({c.name.partition(":")[0] for c in predicate.checks} & set(ATTACKS))
    names = ", ".join(ran) or texts.of("untested", "no_attack")
    yield texts.of("untested", "attacks", ran=names)
    yield texts.of("untested", "partner")
    yield texts.of("untested", "single")
    parameters = predicate.method.parameters
    if "audit" not in parameters:
        why = parameters.get("audit.missing", texts.of("untested", "uncited"))
        yield texts.of("untested", "many", why=why)


def not_run(check: CheckPart) -> str | None:
    """Return why a check was not run, None if it was."""
    for begins in ("not run: ", "not measured: "):
        if check.value.startswith(begins):
            return check.value.removeprefix(begins)
    return None
