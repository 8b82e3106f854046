"""The commands of `lethe log` for this installation: init, recover and fsck."""

import json
import sys
from pathlib import Path

import click

from app.backup.check import fsck_installation
from app.backup.reapply import log_people, log_quarantines, unlogged
from app.backup.recovery import recover_entries
from app.cli.backup import print_reapplied, print_witnesses, without_witness
from app.ledger.key_files import parse_place
from app.ledger.sequencer import Ledger, LogExistsError
from app.ledger.startup import (
    RESTORED,
    init_log,
    last_signed,
    load_ledger,
    open_ledger,
    require_schema,
)
from app.ledger.transaction import Transaction
from app.reconcile.findings import NOT_CHECKED, NOT_OPENED, UNREAD, FsckReport
from app.reconcile.fsck.state import StateError, Verified, read_state, write_state
from app.settings import Settings
from app.vault.master import RootSecret
from lethe.cli.options import FOLDER, OUT_FILE, plain
from lethe.files import PARTIAL
from lethe.log.entries import succession_leaf
from lethe.log.key_changes import ML_DSA
from models.database.session import opened_engine, reading
from models.database.types import clock


@click.command()
@click.option("--origin", help="The new log's name. Default: LETHE_ORIGIN.")
@click.option(
    "--succeeds", type=FOLDER, metavar="KEYS", help="The keys directory of the log to succeed."
)
@click.option(
    "--log-key",
    metavar="PLACE",
    help="Location of the log's key: file, a PKCS#11 URI, or env:VARIABLE. Default: file.",
)
@click.option(
    "--issuer-key", metavar="PLACE", help="Location of the issuer's key, in the same form."
)
@click.option(
    "--ml-dsa/--no-ml-dsa",
    default=True,
    help="Sign checkpoints with ML-DSA-44 too. Default: yes.",
)
def init(
    origin: str | None,
    succeeds: Path | None,
    log_key: str | None,
    issuer_key: str | None,
    ml_dsa: bool,
) -> None:
    """Create this installation's log.

    Existing key files are used, and listed. If it was interrupted, run it again. No other
    command creates a log: an empty log in place of a lost one would be a fork.
    """
    settings = _settings(origin)
    log_at, issuer_at = (
        None if place is None else parse_place(place) for place in (log_key, issuer_key)
    )
    old = None if succeeds is None else last_signed(settings, succeeds)
    found = _names(settings.keys_dir)
    with opened_engine(settings.resolved_database_url) as engine:
        try:
            ledger = init_log(
                settings, engine, log_at=log_at, issuer_at=issuer_at, ml_dsa=ml_dsa
            )
        except LogExistsError:
            if old is None:
                raise
            ledger = load_ledger(settings, engine)  # the command may have been interrupted
        if old is not None:
            _succeed(ledger, *old)
    if found:
        click.echo(
            f"found in {settings.keys_dir}, and used: {', '.join(found)}. If neither you nor "
            "an earlier `lethe log init` put them there, do not use this log: whoever did has "
            "its keys. Begin it again with an empty directory and database"
        )
    click.echo(f"began the log {ledger.origin}; keys are in {settings.keys_dir}: back them up")
    if ledger.signing(ML_DSA):
        click.echo(
            "checkpoints are signed with Ed25519 and ML-DSA-44: publish log.vkey and "
            "log-mldsa.vkey"
        )
    click.echo(ledger.verifier.vkey)


@click.command()
@click.argument("sources", metavar="URL_OR_DIR...", nargs=-1)
@click.option("--no-mirror", is_flag=True, help="There is no mirror: rely on the guard alone.")
@click.option(
    "--journal-incomplete",
    is_flag=True,
    help="The erasure journal lacks executed erasures: quarantine every model.",
)
@without_witness
def recover(
    sources: tuple[str, ...],
    no_mirror: bool,
    journal_incomplete: bool,
    without: tuple[str, ...],
) -> None:
    """Restore log entries that a restored database lacks.

    URL_OR_DIR is a mirror, or another copy of the log's tiles. Nothing is written before all
    entries up to the last signed checkpoint, and to the last ones that the witnesses of the
    policy cosigned, are back and hash to their roots.
    """
    if bool(sources) == no_mirror:
        raise click.UsageError("give a mirror, or --no-mirror if there is none")
    settings = Settings()
    with opened_engine(settings.resolved_database_url) as engine:
        ledger, done = recover_entries(
            settings, engine, sources, incomplete=journal_incomplete, without=without
        )
        log_quarantines(ledger, unlogged(engine))
        log_people(ledger, RootSecret.load(settings), done.result.people)
        (settings.keys_dir / RESTORED).unlink(missing_ok=True)
    click.echo(f"recovered {done.size - done.start} entries: the log has {done.size}")
    print_witnesses(done.compared, done.left_out)
    print_reapplied(done.result)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--state",
    type=OUT_FILE,
    metavar="FILE",
    help="Stores what was verified: the next call reads only newer entries.",
)
@click.option("--full", is_flag=True, help="Read everything, regardless of FILE.")
def fsck(as_json: bool, state: Path | None, full: bool) -> None:
    """Check this installation's log.

    Compares entries, tree, checkpoint and keys. Exits with 1 if they disagree.
    """
    settings = Settings()
    with opened_engine(settings.resolved_database_url) as engine:
        require_schema(engine)
        ledger = open_ledger(settings, engine, examine=True)
        key = ledger.entry_key
        if state is not None and key is None:
            raise click.UsageError("--state needs entries.key, under which FILE has its MAC")
        refused, held = None, None
        if state is not None and key is not None:
            try:
                held = read_state(state, key)
            except StateError as error:
                refused = error.detail
            except OSError as error:
                raise click.BadParameter(f"{state} cannot be read: {error.strerror}") from None
        with reading(engine).connect() as connection:
            begun = clock(connection)  # the next call compares the times of artifacts with it
        report = fsck_installation(settings, ledger, None if full else held)
        if report.before and not report.ok:
            # Report the findings of a full read, which do not depend on the state file.
            report = whole if not (whole := fsck_installation(settings, ledger)).ok else report
        if refused is not None:
            report.add("state", refused)
        if state is not None and key is not None and report.ok and report.edge is not None:
            try:
                write_state(state, key, Verified(*report.edge, begun, report.files))
            except OSError as error:
                raise click.BadParameter(
                    f"{state} cannot be written: {error.strerror}"
                ) from None
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        _print(report)
    if not report.ok:
        sys.exit(1)


def _succeed(ledger: Ledger, vkey: str, note: str) -> None:
    """Append, as the first entry, the name of the log that this one succeeds.

    Raises LogExistsError: the log already has a first entry.
    """

    def effect(tx: Transaction) -> None:
        if ledger.size(tx.session):
            raise LogExistsError(
                "the database already holds a log, and keeps it: for another log, set "
                "LETHE_DATABASE_URL to an empty database"
            )
        tx.append(succession_leaf(vkey, note, tx.now.date()))

    ledger.transact(effect)
    click.echo(f"it succeeds the log {vkey.partition('+')[0]}")


def _names(folder: Path) -> list[str]:
    """Return the names of the files in a directory, none if it is missing."""
    if not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith(PARTIAL))


def _settings(origin: str | None) -> Settings:
    # Use the constructor, so that the origin is validated like the variable.
    return Settings() if origin is None else Settings(origin=origin)


def _print(report: FsckReport) -> None:
    click.echo(
        f"{'PASS' if report.ok else 'FAIL'}  {report.size} entries, "
        f"{report.checkpoints} checkpoints"
    )
    if report.before:
        click.echo(f"      {report.before} entries were verified before; {UNREAD}")
    if not report.macs:
        click.echo(f"      MACs of the entries: {NOT_CHECKED}")
    if not report.files:
        click.echo(f"      requests, certificates, models and stored files: {NOT_OPENED}")
    if report.ended:
        click.echo(f"      requests whose retention has ended, not compared: {report.ended}")
    for finding in report.findings:
        where = "" if finding.log_index is None else f" (entry {finding.log_index})"
        click.echo(plain(f"      {finding.check}: {finding.detail}{where}"))
    for check, count in sorted(report.unlisted.items()):
        click.echo(f"      {check}: {count} more")
