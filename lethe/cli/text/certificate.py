"""The statement of a certificate as text: in plain words first, then line by line.

Commands call `print_statement`. The sentences for readers who know neither checks nor classes,
and what was not tested, are in `lethe.words`.
"""

from collections.abc import Iterator, Mapping

import click

from lethe.catalogue import BOUNDS, check_of
from lethe.certificates.attack_curve import summary
from lethe.certificates.statement import (
    NAMED,
    AttemptPart,
    CheckPart,
    Predicate,
    Statement,
    certified_number,
    read_escalation,
)
from lethe.cli.options import count, plain
from lethe.words.certificate import in_words, not_run, untested
from lethe.words.texts import texts

COST = "cost."


def print_statement(statement: Statement) -> None:
    """Print what a certificate says: in plain words first, then line by line."""
    predicate = statement.predicate
    sets, guarantee, purged = predicate.retained_set, predicate.guarantee, predicate.purged
    bounds = [f"{BOUNDS.get(name, name)}: {b}" for name, b in sorted(guarantee.bounds.items())]
    lines = [("result", predicate.result), ("guarantee", f"{guarantee.class_}")]
    lines += [("", text) for text in (guarantee.statement, *bounds)]
    lines += [("subject", f"{s.name} sha256:{s.digest}") for s in statement.subject]
    lines += [
        (
            "model",
            f"{predicate.model.ref}, before sha256:{predicate.model.version_before.digest}",
        ),
        ("scope", f"{predicate.scope.level}, {count(predicate.scope.records, 'record')}"),
        ("retained", f"{count(sets.before.count, 'record')} before, {sets.after.count} after"),
        ("method", f"{predicate.method.id} {predicate.method.version}"),
        *_method_lines(predicate),
    ]
    passed = sum(check.passed for check in predicate.checks)
    checks = count(len(predicate.checks), "check")
    by = f"{predicate.verifier.id} {predicate.verifier.version}"
    tested = f"the published model, by {by}: {passed} of {checks} passed"
    lines.append(("tested", tested))
    for check in predicate.checks:
        outcome = "passed" if check.passed else "FAILED"
        lines.append((f"check {check.number}", f"{check.name} {outcome}"))
        lines.append(("", f"{INDENT}{check.quantity}: {summary(check.value)}"))
        if check.threshold is not None:
            lines.append(("", f"{INDENT}threshold: {check.threshold}"))
    lines.append(("", LEGEND))
    lines += [
        ("" if n else "not tested", text)
        for n, text in enumerate(untested(predicate, texts("en")))
    ]
    gone = len(purged.artifacts), purged.feature_rows, purged.keys_destroyed
    names = ("artifact", "feature row", "key")
    lines += [
        ("purged", ", ".join(count(n, name) for n, name in zip(gone, names, strict=True))),
        *_comparison_lines(predicate),
        ("request", f"{predicate.request_ref}, log entry {predicate.request_log_index}"),
        ("certificate", predicate.certificate_id),
        ("completed", predicate.completed_at.isoformat()),
    ]
    if predicate.supersedes is not None:
        lines.append(("supersedes", predicate.supersedes))
    click.echo(f"{plain(in_words(predicate, texts('en')))}\n")
    for label, text in lines:
        click.echo(f"{label:11} {plain(text)}")


def _method_lines(predicate: Predicate) -> list[tuple[str, str]]:
    # Why this method was used if another was requested, the failed checks of earlier attempts,
    # and what an audit of the method found.
    parameters = predicate.method.parameters
    lines = [("asked", parameters["asked"])] if "asked" in parameters else []
    lines += escalation_lines(predicate)
    lines += [(name, parameters[name]) for name in ("audit.found",) if name in parameters]
    audits = audits_in_words(parameters)
    return lines if audits is None else [*lines, ("audits", audits)]


def _comparison_lines(predicate: Predicate) -> list[tuple[str, str]]:
    """Return values for an auditor to compare: with the log, with files, with released code."""
    verifier = predicate.verifier
    parameters = predicate.method.parameters
    lines = [("policy", f"sha256:{parameters['policy']}")] if "policy" in parameters else []
    for part in predicate.evidence:
        label = "scores" if part.name.endswith("scores") else "evidence"
        lines.append((label, f"{part.name} sha256:{part.digest}"))
    lines += [
        ("code", f"method sha256:{predicate.method.code_digest}"),
        ("", f"{verifier.id} {verifier.version} sha256:{verifier.code_digest}"),
    ]
    cost = [
        f"{name.removeprefix(COST)} {parameters[name]}"
        for name in sorted(parameters)
        if name.startswith(COST)
    ]
    return lines + ([("cost", ", ".join(cost))] if cost else [])


LEGEND = "What each check means: lethe certificate catalogue"


def audits_in_words(parameters: Mapping[str, str]) -> str | None:
    """Return the number of audits of its method in a certificate, None if it has none."""
    names = ("audit.started", "audit.reported", "audit.log-size")
    if any(name not in parameters for name in names):
        return None
    started, reported, size = (parameters[name] for name in names)
    number = parameters.get("audit.number")
    which = "none of them is cited" if number is None else f"the one cited is number {number}"
    return (
        f"the log's first {size} entries record {started} audits of this method started and "
        f"{reported} reported; {which}"
    )


# --- the escalation ---------------------------------------------------------------------------
# The checks of an attempt are listed one by one: the result, the number of rows, the power, and
# the threshold.
SIZES = "samples"  # the check with the number of rows and the power
# Passed checks worth showing: the tested object, and whose signatures there were.
VALUES_SHOWN = {SIZES: "tested on", "silos-answered": "signed"}
INDENT = "  "

Lines = Iterator[tuple[str, str]]  # (label, text)


def escalation_lines(predicate: Predicate) -> Lines:
    """Yield a line for each attempt and each method that made none; none without escalation.

    Raises NotCanonicalError or ShapeError if the escalation is malformed.
    """
    parameters = predicate.method.parameters
    attempts = read_escalation(parameters)
    for attempt in attempts:
        label = "no attempt" if attempt.number is None else f"attempt {attempt.number}"
        yield label, f"{attempt.method}: {_verdict(attempt)}"
        yield from (("", INDENT + text) for text in _checks(attempt))
    if attempts:
        certified = parameters.get(NAMED, predicate.method.id)
        checks = len(predicate.checks)
        yield (
            f"attempt {certified_number(parameters)}",
            f"{certified}: {predicate.result}, the certified one ({checks} checks)",
        )


def _verdict(attempt: AttemptPart) -> str:
    """Return the verdict on an attempt, and why the next one followed."""
    if attempt.result == "NONE":
        return attempt.reason or "no verdict"
    if attempt.result == "FAIL":
        why = "a check refuted it"
    elif any(one.name == SIZES and not one.passed for one in attempt.checks):
        why = "there were too few rows to tell whether it had erased enough"
    else:
        why = "the checks could not tell whether it had erased enough"
    return f"{attempt.result}, so it was not certified: {why}"


def _checks(attempt: AttemptPart) -> Iterator[str]:
    for check in attempt.checks:
        if check.passed:
            continue
        if (why := not_run(check)) is not None:
            yield f"not run  {check.name}: {why}"
            continue
        yield f"not shown  {check.name}"
        yield from (INDENT + text for text in _check_lines(check))
    passed = [check for check in attempt.checks if check.passed]
    for check in passed:
        if check.name in VALUES_SHOWN:
            yield f"{VALUES_SHOWN[check.name]}  {check.value}"
    if passed:
        yield f"passed  {', '.join(check.name for check in passed)}"


def _check_lines(check: CheckPart) -> Iterator[str]:
    """Yield quantity, value and threshold of a check, one line for each part of the value."""
    interval = "" if check.interval is None else f", interval {' to '.join(check.interval)}"
    first, *rest = check.value.split("; ")
    yield f"measured   {check.quantity}"
    yield f"value      {first}{interval}"
    yield from (f"           {part}" for part in rest)
    if check.threshold is not None:
        yield f"threshold  {check.threshold}"
    if (spec := check_of(check.name)) is not None:
        yield f"           that is: {spec.wording}"
