"""`lethe audit`: audits of unlearning algorithms; start and follow them, verify reports."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli import saved
from lethe.cli.options import (
    FILE,
    OUT_FOLDER,
    as_json,
    each_as_json,
    plain,
    print_answer,
    print_failed,
    print_json,
    print_table,
    service_url,
)

if TYPE_CHECKING:
    from lethe.certificates.audits.check import Checked

_id = click.argument("audit_id", metavar="ID")


@click.group()
def audit() -> None:
    """Audit unlearning methods with many pairs of unlearned and retrained models.

    `start` and `stop` need an operator's token in LETHE_TOKEN; `list`, `show` and `get` also
    accept an officer's or auditor's. `verify` only needs the issuer's public key.
    """


@audit.command()
@service_url
@click.option("--model", required=True, help="Reference of the network to audit.")
@click.option("--method", help="The method to audit. Default: the model's own.")
@click.option(
    "--pairs",
    type=click.IntRange(16, 4096),
    default=64,
    show_default=True,
    help="Number of pairs, even; half of them fit the attack.",
)
@click.option(
    "--rows",
    type=click.IntRange(2, 100_000),
    default=500,
    show_default=True,
    help="Number of stored rows to train each model on.",
)
@click.option("--targets", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option(
    "--target",
    type=click.Choice(["as-stored", "mislabelled"]),
    default="mislabelled",
    show_default=True,
    help="Train the targets under a wrong class or as stored.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the audit. Default: random.")
@click.option("--confidence", default="0.95", show_default=True)
@click.option("--delta", default="0", show_default=True, help="The δ of (ε, δ).")
@click.option(
    "--parallel",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Number of pairs to compute in parallel.",
)
@click.option(
    "--every-days",
    type=click.IntRange(0, 3650),
    default=0,
    help="Repeat the audit after N days.",
)
@as_json
def start(url: str, as_json: bool, **wanted: Any) -> None:
    """Start an audit and print its id."""
    fields = {name: value for name, value in wanted.items() if value is not None}
    with saved.client(url) as operator:
        started = operator.start_audit(fields)
    print_answer(started, as_json, str(started["id"]))


@audit.command("list")
@service_url
@each_as_json
def list_(url: str, as_json: bool) -> None:
    """List audits, oldest first. Exits with 1 if one is missing or contradicts the log."""
    with saved.client(url) as operator:
        rows = sorted(operator.audits(), key=lambda row: str(row["started_at"] or ""))
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(
            ("id", "started", "model", "method", "state", "pairs", "result", "problem"),
            (
                (
                    row["id"],
                    row["started_at"] or "-",
                    row["model"] or "-",
                    row["method"] or "-",
                    row["state"] or "-",
                    f"{row['pairs_done']}/{row['config'].get('pairs', '?')}",
                    row["result"] or "-",
                    row["problem"] or "",
                )
                for row in rows
            ),
        )
    if any(row["problem"] for row in rows):
        sys.exit(1)


@audit.command()
@service_url
@_id
def show(url: str, audit_id: str) -> None:
    """Print the service's record of an audit."""
    with saved.client(url) as operator:
        click.echo(json.dumps(operator.audit(audit_id), indent=2))


@audit.command()
@service_url
@_id
@as_json
def stop(url: str, audit_id: str, as_json: bool) -> None:
    """Stop a running audit and its schedule."""
    with saved.client(url) as operator:
        stopped = operator.stop_audit(audit_id)
    print_answer(stopped, as_json, str(stopped["state"]))


@audit.command()
@service_url
@_id
@click.option(
    "--out",
    required=True,
    type=OUT_FOLDER,
    help="A directory for report.json and statistics.json.",
)
def get(url: str, audit_id: str, out: Path) -> None:
    """Download an audit's report and, if still stored, the numbers of its pairs."""
    out.mkdir(parents=True, exist_ok=True)
    with saved.client(url) as operator:
        for part in ("report", "statistics"):
            (out / f"{part}.json").write_bytes(operator.audit_file(audit_id, part))
            click.echo(str(out / f"{part}.json"))


@audit.command()
@click.argument("file", type=FILE)
@click.option("--issuer-key", type=FILE, required=True, help="The issuer's public key (PEM).")
@click.option("--statistics", type=FILE, help="The file of the pairs' numbers.")
@as_json
def verify(file: Path, issuer_key: Path, statistics: Path | None, as_json: bool) -> None:
    """Verify a report offline, including its bounds, and print it.

    Exits with 0 if the report verifies, 1 if it does not, 2 if a file cannot be used.
    """
    from lethe.certificates.audits.check import check_report
    from lethe.certificates.keys import read_issuer
    from lethe.certificates.shape import encode
    from lethe.errors import LetheError

    key = read_issuer(issuer_key)
    numbers = None if statistics is None else statistics.read_bytes()
    try:
        checked = check_report(file.read_bytes(), key, numbers)
    except LetheError as error:
        print_failed(error.detail, as_json)
    if as_json:
        said = json.loads(encode(checked.statement.predicate))
        print_json({"result": "PASS", "digest": checked.digest, "report": said})
        return
    click.echo("PASS  the report is the issuer's, and its bounds follow from its counts\n")
    _print(checked)


def _distances(checked: "Checked") -> list[tuple[str, str]]:
    found = checked.margins
    if found is None:
        return []
    text = (
        f"{found.after:.3g} nats to the retrained models, {found.before:.3g} before "
        f"unlearning, {found.noise:.3g} between two halves of the retrained"
    )
    return [("KLoM", text)]


def _print(checked: "Checked") -> None:
    said = checked.statement.predicate
    config = said.configuration
    lines = [("result", said.result), ("", said.statement)]
    for label, part in (("after", said.after), ("before", said.before)):
        errors = f"{part.false_positives} and {part.false_negatives} errors of {part.trials}"
        upper = f"false positives at most {part.fpr_upper}, negatives {part.fnr_upper}"
        lines.append((label, f"epsilon at least {part.epsilon}: {errors}, {upper}"))
    lines += [
        ("resolution", f"without one error: epsilon at least {said.resolution}"),
        *_distances(checked),
        ("confidence", f"{config['confidence']}, delta {config['delta']}"),
        ("model", f"{said.model}, versions {said.versions[0]} to {said.versions[1]}"),
        ("method", f"{said.method.id} {said.method.version}, gave way {said.gave_way} times"),
        ("code", f"sha256:{said.method.code_digest}"),
        (
            "pairs",
            f"{said.pairs} of {config.get('rows')} rows, {config.get('targets')} targets",
        ),
        ("target", str(config.get("target"))),
        ("seed", str(config.get("seed"))),
        ("reported", said.reported_at.isoformat()),
        ("digest", f"sha256:{checked.digest} (audit.reported in the log)"),
        ("audit", f"sha256:{checked.audit} (both entries have it)"),
        ("started as", f"sha256:{checked.configuration} (audit.started in the log)"),
        ("issuer", checked.keyid),
    ]
    for name, text in lines:
        # A file may try to alter the terminal's display.
        click.echo(f"{name:11} {plain(text)}")
