"""The statement of a certificate as text, a labelled line for each thing it says."""

import click

from lethe.certificates.statement import Predicate, Statement
from lethe.cli.certificate_climb import climb_lines
from lethe.cli.certificate_untested import untested
from lethe.cli.certificate_words import LEGEND, audits_in_words, count, in_words

COST = "cost."


def print_statement(statement: Statement) -> None:
    """Print what a certificate says: in plain words first, then line by line."""
    said = statement.predicate
    sets, guarantee, purged = said.retained_set, said.guarantee, said.purged
    bounds = [f"{name} {bound}" for name, bound in sorted(guarantee.bounds.items())]
    lines = [("result", said.result), ("guarantee", f"{guarantee.class_}")]
    lines += [("", text) for text in (guarantee.statement, *bounds)]
    lines += [("subject", f"{s.name} sha256:{s.digest}") for s in statement.subject]
    lines += [
        ("model", f"{said.model.ref}, before sha256:{said.model.version_before.digest}"),
        ("scope", f"{said.scope.level}, {count(said.scope.records, 'record')}"),
        ("retained", f"{count(sets.before.count, 'record')} before, {sets.after.count} after"),
        ("method", f"{said.method.id} {said.method.version}"),
        *_how(said),
    ]
    passed = sum(check.passed for check in said.checks)
    by = f"{said.verifier.id} {said.verifier.version}"
    told = (
        f"the published model, by {by}: {passed} of {count(len(said.checks), 'check')} passed"
    )
    lines.append(("tested", told))
    for check in said.checks:
        limit = "" if check.threshold is None else f", threshold {check.threshold}"
        outcome = "passed" if check.passed else "FAILED"
        text = f"{check.name} {outcome}: {check.value}{limit}"
        lines.append((f"check {check.number}", text))
    lines.append(("", LEGEND))
    lines += [("" if n else "not tested", text) for n, text in enumerate(untested(said))]
    gone = len(purged.artifacts), purged.feature_rows, purged.keys_destroyed
    names = ("artifact", "feature row", "key")
    lines += [
        ("purged", ", ".join(count(n, name) for n, name in zip(gone, names, strict=True))),
        *_compared(said),
        ("request", f"{said.request_ref}, log entry {said.request_log_index}"),
        ("certificate", said.certificate_id),
        ("completed", said.completed_at.isoformat()),
    ]
    if said.supersedes is not None:
        lines.append(("supersedes", said.supersedes))
    click.echo(f"{plain(in_words(said))}\n")
    for label, text in lines:
        click.echo(f"{label:11} {plain(text)}")


def _how(said: Predicate) -> list[tuple[str, str]]:
    # How it came to this method, if another was asked for, what did not pass on the rungs
    # before, and what an audit of the method found.
    told = said.method.parameters
    lines = [(name, told[name]) for name in ("rung", "asked") if name in told]
    lines += climb_lines(said)
    lines += [(name, told[name]) for name in ("audit.found",) if name in told]
    audits = audits_in_words(told)
    return lines if audits is None else [*lines, ("audits", audits)]


def _compared(said: Predicate) -> list[tuple[str, str]]:
    """Return what an auditor compares: with the log, with files, with released code."""
    told = said.method.parameters
    lines = [("policy", f"sha256:{told['policy']}")] if "policy" in told else []
    for part in said.evidence:
        label = "scores" if part.name.endswith("scores") else "evidence"
        lines.append((label, f"{part.name} sha256:{part.digest}"))
    lines += [
        ("code", f"method sha256:{said.method.code_digest}"),
        ("", f"{said.verifier.id} {said.verifier.version} sha256:{said.verifier.code_digest}"),
    ]
    cost = [
        f"{name.removeprefix(COST)} {told[name]}"
        for name in sorted(told)
        if name.startswith(COST)
    ]
    return lines + ([("cost", ", ".join(cost))] if cost else [])


def plain(text: str) -> str:
    """Replace what a terminal would act on: a file may try to repaint its own verdict."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
