"""The half of `lethe log` that works on this installation and needs the server extra."""

import json
from contextlib import suppress
from pathlib import Path

import click
from sqlmodel import Session

from app.cli.backup import print_reapplied
from app.ledger.entries import Leaf, succession_leaf
from app.ledger.fetch import fetch_from
from app.ledger.findings import NOT_CHECKED, NOT_OPENED, FsckReport
from app.ledger.fsck import fsck
from app.ledger.recover import recover
from app.ledger.startup import init_log, last_signed, load_issuer, open_ledger, require_schema
from app.service.fsck_vault import fsck_vault
from app.service.reapply import RESTORED, Reapplied, log_quarantines, reapply_all, unlogged
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.errors import MasterKeyError
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import ErasureJournal
from app.vault.master import MasterKey
from models.session import make_engine


def run_init(origin: str | None, succeeds: Path | None = None) -> None:
    """Create missing keys and begin the log; prints its verifier key.

    Raises:
        LetheError: There is a log already, or the database is not migrated.
    """
    settings = _settings(origin)
    engine = make_engine(settings.resolved_database_url)
    old = None if succeeds is None else last_signed(succeeds)
    try:
        ledger = init_log(settings, engine)
        if old is not None:
            vkey, note = old
            ledger.transact(lambda tx: tx.append(succession_leaf(vkey, note, tx.now.date())))
            click.echo(f"it succeeds the log {vkey.partition('+')[0]}")
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
        with suppress(MasterKeyError):  # the report says that files were not opened
            master = MasterKey.load(settings)
            artifacts = ArtifactStore(settings.data_dir / "artifacts", master)
            fsck_vault(engine, artifacts, master, report)
    finally:
        engine.dispose()
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        _print(report)
    return report.ok


def run_recover(sources: tuple[str, ...], incomplete: bool) -> None:
    """Recover the log, erase again what the journal says, and print what is lost.

    Raises:
        LetheError: It cannot be recovered; nothing was written.
    """
    settings = Settings()
    engine = make_engine(settings.resolved_database_url)
    try:
        require_schema(engine)
        ledger = open_ledger(settings, engine)
        master = MasterKey.load(settings)
        journal = ErasureJournal(settings.keys_dir / JOURNAL, master)

        def again(session: Session, leaves: list[Leaf]) -> Reapplied:
            return reapply_all(session, master, journal, leaves, incomplete=incomplete)

        done = recover(ledger, [fetch_from(source) for source in sources], again)
        log_quarantines(ledger, unlogged(engine))
        (settings.keys_dir / RESTORED).unlink(missing_ok=True)
    finally:
        engine.dispose()
    click.echo(f"recovered {done.size - done.start} entries: the log has {done.size}")
    print_reapplied(done.result)


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
    if not report.files:
        click.echo(f"      requests, certificates, models and stored files: {NOT_OPENED}")
    if report.ended:
        click.echo(f"      requests whose retention has ended, not compared: {report.ended}")
    for finding in report.findings:
        where = "" if finding.log_index is None else f" (entry {finding.log_index})"
        click.echo(f"      {finding.check}: {finding.detail}{where}")
    for check, count in sorted(report.unlisted.items()):
        click.echo(f"      {check}: {count} more")
