"""A restore into a scratch directory, to test a backup and measure the time.

Nothing new is signed: the scratch log has the real log's keys, and another history under them
would be a fork. So, unlike a restore, it does not log quarantines and identities.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from app.backup.check import fsck_installation
from app.backup.errors import BackupError
from app.backup.folder import open_folder
from app.backup.keys import copy_guard, copy_keys
from app.backup.pieces import read_followed, recover_rows
from app.backup.recovery import recover_entries
from app.backup.restore import Restored, beside, restore
from app.ledger.recover import Witnessed
from app.ledger.startup import open_ledger
from app.reconcile.findings import Finding, FsckReport
from app.reconcile.people import PENDING
from app.settings import Settings
from models.database.session import opened_engine

# Checks of data that a restore brings back completely, whatever the backup's age. The other
# checks compare tables with log entries, and a table older than the log lacks later rows.
WHOLE = ("entry", "mac", "node", "gap", "checkpoint", "guard", "file", "tombstone", "pages")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of a rehearsed restore, and the duration of its steps in seconds.

    quarantined: models that it takes out of service. compared, left_out: witnesses, see
    `app.ledger.recover.Recovered`.
    """

    restored: Restored
    recovered: int  # number of entries from a mirror
    report: FsckReport
    restore_seconds: float
    check_seconds: float
    quarantined: Sequence[str] = ()
    compared: int = 0
    left_out: Sequence[Witnessed] = ()

    @property
    def damage(self) -> list[Finding]:
        """Findings that the age of the backup does not explain."""
        if not self.recovered:
            return list(self.report.findings)
        return [one for one in self.report.findings if one.check in WHOLE]

    @property
    def losses(self) -> list[Finding]:
        """Findings about data written after the backup, which is lost with the database.

        Excludes PENDING identities: a restore would log them, but a rehearsal signs nothing.
        """
        lost = [one for one in self.report.findings if one not in self.damage]
        return [one for one in lost if one.detail != PENDING]


def rehearse(
    settings: Settings,
    directory: Path,
    scratch: Path,
    *,
    keys: Path | None = None,
    mirrors: Sequence[str] = (),
    database_url: str = "",
    incomplete: bool = False,
    without: Collection[str] = (),
) -> Rehearsal:
    """Restore the backup in `directory` into `scratch`, and run fsck on it.

    Args:
        settings: The installation's settings; its keys are copied if `keys` is None.
        directory: The backup.
        scratch: An empty directory, also for the SQLite database.
        keys: A copy of the keys, restored with the backup.
        mirrors: URLs or directories of mirrors, for entries signed after the backup.
        database_url: An empty database; default: SQLite in `scratch`. For files that were
            followed beside PostgreSQL: a database recovered from its archive.
        incomplete: As of `recover_entries`.
        without: The same; with `keys`, which do not tell what was signed after them.

    Raises:
        BackupError: The backup is damaged, or entries were signed after it and no mirror is
            given; with `keys` a mirror is always needed. Files are given and no database.
        LetheError: As `restore` and `recover_entries`.
    """
    own = settings.model_copy(
        update={
            "data_dir": scratch,
            "database_url": database_url,
            "database_password": SecretStr(""),
        }
    )
    if keys is None:
        with open_folder(own.keys_dir, new=True) as copied:
            copy_guard(settings.keys_dir, copied)
            copy_keys(settings.keys_dir, copied)
    with opened_engine(own.resolved_database_url) as engine:
        begun = time.monotonic()
        if (state := read_followed(directory)) is not None and state.archived:
            if not database_url:
                raise BackupError(f"{recover_rows(directory, state)}; give --database-url")
            restored = beside(own, engine, directory, keys)
        else:
            restored = restore(own, engine, directory, keys)
        recovered, compared = 0, 0
        quarantined = dict.fromkeys(restored.done.models)
        left_out: Sequence[Witnessed] = ()
        if mirrors:
            ledger, done = recover_entries(
                own,
                engine,
                mirrors,
                incomplete=incomplete,
                ask=keys is not None,
                without=without,
            )
            recovered = done.size - done.start
            quarantined |= dict.fromkeys(done.result.models)
            compared, left_out = done.compared, done.left_out
        elif restored.missing or restored.keys_restored:
            raise BackupError(_without_mirror(restored))
        else:
            ledger = open_ledger(own, engine, examine=True)
        after = time.monotonic()
        report = fsck_installation(own, ledger)
    return Rehearsal(
        restored,
        recovered,
        report,
        after - begun,
        time.monotonic() - after,
        [*quarantined],
        compared,
        left_out,
    )


def _without_mirror(restored: Restored) -> str:
    if restored.missing:
        return (
            f"{restored.missing} log entries were signed after this backup: without a mirror "
            "this log could not go on. Give --mirror, or make a newer backup"
        )
    return "keys of a backup do not show what was signed since: give --mirror"
