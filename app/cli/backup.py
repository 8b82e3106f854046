"""`lethe backup` and `lethe restore`."""

import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app import steps
from app.backup.archive import ARTIFACTS, write_backup
from app.backup.errors import BackupError
from app.backup.follower import follow, following
from app.backup.reapply import Reapplied, log_people, log_quarantines, reapply
from app.backup.rehearse import rehearse
from app.backup.restore import restore as restore_backup
from app.backup.restore import restore_files
from app.backup.round import Round
from app.backup.scratch import scratch_place
from app.ledger.key_files import kept_elsewhere
from app.ledger.recover import Witnessed
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.reconcile.journal_gaps import Gap, GapFinder
from app.reconcile.model_events import require_signed
from app.settings import Settings, checked_database_url
from app.vault.artifacts import ArtifactStore
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import ErasureJournal
from app.vault.master import RootSecret
from lethe.cli.options import FOLDER, count, plain
from models.database.session import opened_engine, reading
from models.database.types import utcnow

_New = click.Path(path_type=Path)

without_witness = click.option(
    "--without-witness",
    "without",
    metavar="LABEL",
    multiple=True,
    help="Continue although this witness shows no checkpoint; it may have cosigned entries "
    "that are lost. 'all' stands for every witness; repeatable.",
)


def _database(_context: click.Context, _option: click.Parameter, given: str) -> str:
    try:
        return checked_database_url(given) if given else given
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def backup() -> None:
    """Back up this installation, and rehearse restoring it."""


@backup.command()
@click.argument("directory", type=_New)
@click.option("--keys", type=_New, help="Also copy the keys, to this new directory.")
def new(directory: Path, keys: Path | None) -> None:
    """Back up the database and the artifacts to the new directory DIRECTORY.

    The service may run meanwhile. Entries signed afterwards are not included.
    """
    _require_apart(directory, keys)
    settings = Settings()
    with opened_engine(settings.resolved_database_url) as engine:
        made = write_backup(settings, engine, directory, keys)
    click.echo(f"backed up {made.rows} rows and {made.files} files to {directory}")
    click.echo(f"      the log {made.origin} with {made.size} entries, root {made.root}")
    click.echo("      not included: requests and entries after this moment")
    click.echo(f"      {_where(settings, keys)}")


@backup.command("follow")
@click.argument("directory", type=_New)
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=10,
    show_default=True,
    help="Interval between rounds: what was stored since the last one may be lost.",
)
@click.option("--keys", type=_New, help="Also keep a copy of the keys, in this directory.")
@click.option("--once", is_flag=True, help="Run one round and exit.")
def follow_database(directory: Path, every: float, keys: Path | None, once: bool) -> None:
    """Replicate this installation to DIRECTORY until this command is ended.

    DIRECTORY is new or that of an earlier run, and holds only the latest state. `lethe restore`
    and `lethe backup rehearse` accept it. The service may run meanwhile. With PostgreSQL, it
    holds the files and the time to recover PostgreSQL's archive to; the archive has the rows.
    """
    _require_apart(directory, keys)
    settings = Settings()
    if settings.fault:
        steps.plant(settings.fault)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the exit removes the copy
    first = True

    def report(done: Round) -> None:
        nonlocal first
        if first:
            state = done.state
            what = f"{len(state.files)} files"
            if state.archived:
                what += f", complete up to {state.at}"
            else:
                what = f"{len(state.pieces)} pieces of the database and {what}"
            click.echo(f"followed into {directory}: {what}")
            click.echo(
                f"      the log {state.origin} with {state.size} entries, root {state.root}"
            )
            if state.archived:
                click.echo("      not included: the rows, which PostgreSQL archives")
            click.echo(f"      {_where(settings, keys)}")
            if not once:
                click.echo(f"      a round begins every {every:g} s")
        first = False

    with opened_engine(settings.resolved_database_url) as engine:
        if once:
            with following(settings, engine, directory, keys) as follower:
                if (done := follower.run()) is not None:
                    report(done)
        else:
            follow(settings, engine, directory, every, report, keys)


def _require_apart(directory: Path, keys: Path | None) -> None:
    if keys is not None and keys.absolute().is_relative_to(directory.absolute()):
        raise click.UsageError(
            "keys stored beside the data can decrypt it: give a directory elsewhere"
        )


def _where(settings: Settings, keys: Path | None) -> str:
    if keys is None:
        return "keys are not included: without them nothing can be opened"
    where = f"keys are in {keys}: keep them apart, together they open everything"
    if elsewhere := kept_elsewhere(settings.keys_dir):
        where += (
            f"\n      not included: the private keys that {' and '.join(elsewhere)} name in an "
            "HSM or in the environment; back them up there"
        )
    return where


@backup.command("rehearse")
@click.argument("directory", type=FOLDER)
@click.option(
    "--keys", type=FOLDER, help="Use this copy of the keys. Default: the keys in use."
)
@click.option(
    "--mirror",
    "mirrors",
    metavar="URL_OR_DIR",
    multiple=True,
    help="A mirror of the log, for entries signed after the backup; repeatable.",
)
@click.option(
    "--database-url",
    default="",
    metavar="URL",
    callback=_database,
    help="An empty database to restore into, or for followed files the recovered one; drop it "
    "afterwards. Set its password in PGPASSWORD: other users can see a command line. Default: "
    "SQLite.",
)
@click.option(
    "--scratch",
    type=FOLDER,
    help="Directory of the temporary copies of data and keys. Default: the data directory.",
)
@click.option(
    "--journal-incomplete",
    is_flag=True,
    help="The erasure journal lacks executed erasures: quarantine every model.",
)
@without_witness
def rehearse_restore(
    directory: Path,
    keys: Path | None,
    mirrors: tuple[str, ...],
    database_url: str,
    scratch: Path | None,
    journal_incomplete: bool,
    without: tuple[str, ...],
) -> None:
    """Restore the backup in DIRECTORY in a scratch place, and check all of it there.

    The installation is not touched and may run meanwhile. Exits with 1 if the backup cannot be
    restored completely. Lists what was written after the backup, and would be lost.
    """
    if without and keys is None:
        raise click.UsageError(
            "--without-witness needs --keys: the keys in use tell what was signed, and no "
            "witness is asked"
        )
    settings = Settings()
    with scratch_place(scratch or settings.data_dir, "rehearsal") as place:
        click.echo(f"restoring in {place} …", err=True)
        done = rehearse(
            settings,
            directory,
            place,
            keys=keys,
            mirrors=mirrors,
            database_url=database_url,
            incomplete=journal_incomplete,
            without=without,
        )
    made = done.restored.backup
    click.echo(
        f"{'FAIL' if done.damage else 'PASS'}  the backup of {made.at}, {_age(made.at)} old"
    )
    rows = f"{made.rows} rows and " if made.rows else ""  # none beside a recovered database
    click.echo(f"      restored {rows}{made.files} files in {done.restore_seconds:.1f} s")
    click.echo(
        f"      checked {done.report.size} entries, {done.recovered} of them from a mirror, "
        f"in {done.check_seconds:.1f} s"
    )
    print_witnesses(done.compared, done.left_out)
    if not done.report.files:
        click.echo("      stored files and tables were not opened: the master key is not here")
    for kind, found in (("damaged", done.damage), ("lost", done.losses)):
        for one in found:
            where = "" if one.log_index is None else f" (entry {one.log_index})"
            click.echo(plain(f"      {kind}: {one.check}: {one.detail}{where}"))
    for model in done.quarantined:
        name = plain(model)
        click.echo(
            f"      quarantined: model {name}, until `lethe model mend {name}` after a restore"
        )
    if database_url:
        click.echo("      the database still has everything: drop it")
    if done.damage or not done.report.files:
        sys.exit(1)


def _age(at: str) -> str:
    """Return the time since a moment, in days or hours."""
    hours = (utcnow() - datetime.fromisoformat(at)) / timedelta(hours=1)
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} hours"


@click.command()
@click.argument("directory", type=FOLDER, required=False)
@click.option("--keys", type=FOLDER, help="Restore the keys too, from this directory.")
@click.option(
    "--journal-only",
    is_flag=True,
    help=(
        "Restore nothing: repeat the journal's erasures in the current database, and add to "
        "the journal the tombstones that it lacks and the log confirms."
    ),
)
@click.option(
    "--files",
    is_flag=True,
    help="Restore the files that were followed beside PostgreSQL; its archive has the rows.",
)
@click.option("--yes", is_flag=True, help="With --journal-only: add tombstones without asking.")
def restore(
    directory: Path | None, keys: Path | None, journal_only: bool, files: bool, yes: bool
) -> None:
    """Restore the backup in DIRECTORY into an empty database.

    Overwrites nothing. Repeats the erasures made after the backup.
    """
    if journal_only == (directory is not None) or (journal_only and keys is not None):
        raise click.UsageError("give the backup's DIRECTORY, or --journal-only alone")
    if yes and not journal_only:
        raise click.UsageError("--yes needs --journal-only: a restore does not ask")
    if files and directory is None:
        raise click.UsageError("--files needs the DIRECTORY of the files")
    settings = Settings()
    try:
        if files and directory is not None:
            _restore_files(settings, directory, keys)
            return
        with opened_engine(settings.resolved_database_url) as engine:
            if directory is None:
                _erase_again(settings, engine, yes)
            else:
                _restore(settings, engine, directory, keys)
    except FileNotFoundError as error:
        raise BackupError(
            f"{error.filename} is missing: restore the keys directory, or give --keys"
        ) from None


def _restore(settings: Settings, engine: Engine, directory: Path, keys: Path | None) -> None:
    restored = restore_backup(settings, engine, directory, keys)
    backup = restored.backup
    click.echo(f"restored {backup.rows} rows and {backup.files} files of {backup.at}")
    print_reapplied(restored.done)
    if restored.keys_restored:
        click.echo(
            "the keys are the backup's and do not show what was signed since: before serving "
            "run `lethe log recover` with every mirror there is"
        )
    elif restored.missing:
        click.echo(
            f"{restored.missing} log entries were signed after this backup, and their data is "
            "lost: run `lethe log recover` with a mirror"
        )
    else:
        ledger = load_ledger(settings, engine)
        log_quarantines(ledger, restored.done.models)
        log_people(ledger, RootSecret.load(settings), restored.done.people)
        click.echo("nothing was signed after this backup: lethe serve may start")


def _restore_files(settings: Settings, directory: Path, keys: Path | None) -> None:
    state = restore_files(settings, directory, keys)
    click.echo(f"restored {len(state.files)} files, complete up to {state.at}")
    click.echo(
        "recover PostgreSQL to that moment, or to the end of an archive that ends before: "
        f"recovery_target_time = '{state.at}'"
    )
    click.echo("before serving run `lethe log recover` with every mirror there is")


def _erase_again(settings: Settings, engine: Engine, yes: bool) -> None:
    ledger = load_ledger(settings, engine)
    root_secret = RootSecret.load(settings)
    journal = ErasureJournal(settings.keys_dir / JOURNAL, root_secret)
    require_signed(ledger)  # the log decides which lines of the journal are replayed
    with ledger.repairing() as session:
        done = reapply(session, root_secret, journal)
        session.commit()
    log_quarantines(ledger, done.models)
    log_people(ledger, root_secret, done.people)
    print_reapplied(done)
    artifacts = ArtifactStore(settings.data_dir / ARTIFACTS, root_secret)
    _complete(ledger, GapFinder(ledger, artifacts, root_secret, journal), yes)


def _complete(ledger: Ledger, finder: GapFinder, yes: bool) -> None:
    """Show the tombstones that the journal lacks, and add those that the log confirms."""
    with Session(reading(ledger.engine)) as session:
        gaps = finder.find(session)
    if not gaps:
        click.echo("the erasure journal has all tombstones of the database")
        return
    click.echo(f"the erasure journal lacks {_tombstones(gaps)} of the database")
    for gap in gaps:
        of = "" if gap.ref is None else f", request {gap.ref}"
        verdict = "the log confirms them" if gap.why is None else f"not added: {gap.why}"
        click.echo(plain(f"      model {gap.model}{of}: {_tombstones([gap])}; {verdict}"))
    confirmed = [gap for gap in gaps if gap.why is None]
    if not confirmed:
        click.echo("nothing was added to the erasure journal")
        return
    if not yes and not click.confirm(f"add {_tombstones(confirmed)} to the erasure journal?"):
        click.echo("nothing was added to the erasure journal")
        return
    with ledger.repairing() as session:
        lines, tags = finder.fill(session, confirmed)
    click.echo(f"added to the erasure journal: {lines} lines with {tags} tombstones")
    click.echo(
        "      the keys destroyed by these erasures are unknown: destroy backups from before "
        "them"
    )


def _tombstones(gaps: list[Gap]) -> str:
    return count(sum(len(gap.tags) for gap in gaps), "tombstone")


def print_witnesses(compared: int, left_out: Sequence[Witnessed]) -> None:
    """Print how many witnesses showed that nothing is missing, and which did not."""
    if compared:
        witnesses = "1 witness" if compared == 1 else f"{compared} witnesses"
        click.echo(f"      compared with what {witnesses} cosigned last")
    for one in left_out:
        click.echo(plain(f"      left out: the witness {one.label}: {one.why}"))


def print_reapplied(done: Reapplied) -> None:
    """Print the results of a replay of the erasure journal."""
    click.echo(f"erased again: {done.records} records, {done.keys} keys")
    if done.lost:
        click.echo(
            f"      {done.lost} records in the same blocks were destroyed with them: "
            "contribute them again"
        )
    for model in done.models:
        name = plain(model)
        click.echo(
            f"      model {name} is quarantined: run `lethe model mend {name}` once the log "
            "is whole"
        )
    for model in done.deleted:
        name = plain(model)
        click.echo(f"      model {name} was deleted after the backup, and is deleted again")
    if done.certificates:
        click.echo(f"      {done.certificates} certificates are in the log and not stored here")
    for ref in done.requests:
        click.echo(plain(f"      request {ref}: what opens its log entries is lost"))
