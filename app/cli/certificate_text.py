"""The statement of a certificate as text, a labelled line for each thing it says."""

import click

from app.certificates.statement import Predicate, Statement
from app.cli.certificate_words import LEGEND, count, in_words, rung_in_words

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
    for check in said.checks:
        limit = "" if check.threshold is None else f", threshold {check.threshold}"
        outcome = "passed" if check.passed else "FAILED"
        text = f"{check.name} {outcome}: {check.value}{limit}"
        lines.append((f"check {check.number}", text))
    lines.append(("", LEGEND))
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
    # How it came to this method, if another was asked for, what failed the rungs before, and
    # what an audit of the method found.
    told = said.method.parameters
    lines = [(name, told[name]) for name in ("rung", "asked") if name in told]
    label = "climb"
    for rung in told["climb"].split(" | ") if "climb" in told else []:
        lines.append((label, rung))
        label, words = "", rung_in_words(rung)
        lines += [] if words is None else [("", f"  that is: {words}")]
    return lines + [(name, told[name]) for name in ("audit.found",) if name in told]


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
