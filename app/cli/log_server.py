"""The half of `lethe log` that works on this installation and needs the server extra."""

import json

import click

from app.ledger.findings import NOT_CHECKED, FsckReport
from app.ledger.fsck import fsck
from app.ledger.startup import init_log, load_issuer, open_ledger, require_schema
from app.settings import Settings
from models.session import make_engine


def run_init(origin: str | None) -> None:
    """Create missing keys and begin the log; prints its verifier key.

    Raises:
        LetheError: There is a log already, or the database is not migrated.
    """
    settings = _settings(origin)
    engine = make_engine(settings.resolved_database_url)
    try:
        ledger = init_log(settings, engine)
    finally:
        engine.dispose()
    click.echo(f"began the log {ledger.origin}; keys are in {settings.keys_dir}: back them up")
    click.echo(ledger.verifier.vkey)


def run_fsck(as_json: bool = False) -> bool:
    """Check this installation's log and print what was found; returns whether it is good.

    Raises:
        LetheError: A key is missing or the database does not answer: nothing was checked.
    """
    settings = Settings()
    issuer, keyid = load_issuer(settings)
    engine = make_engine(settings.resolved_database_url)
    try:
        require_schema(engine)
        report = fsck(open_ledger(settings, engine, examine=True), {keyid: issuer.public_key()})
    finally:
        engine.dispose()
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        _print(report)
    return report.ok


def _settings(origin: str | None) -> Settings:
    # Through the constructor, so that the origin is validated like the variable.
    return Settings() if origin is None else Settings(origin=origin)


def _print(report: FsckReport) -> None:
    click.echo(
        f"{'PASS' if report.ok else 'FAIL'}  {report.size} entries, "
        f"{report.checkpoints} checkpoints"
    )
    if not report.macs:
        click.echo(f"      MACs of the entries: {NOT_CHECKED}")
    for finding in report.findings:
        where = "" if finding.log_index is None else f" (entry {finding.log_index})"
        click.echo(f"      {finding.check}: {finding.detail}{where}")
    for check, count in sorted(report.unlisted.items()):
        click.echo(f"      {check}: {count} more")
