"""A restore in a scratch place: that it works, and how long it takes, is known beforehand.

Nothing new is signed: the scratch log has the keys of the real one, and another history under
them would be a fork. So quarantines and lookups are not logged there, as a restore would do.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from app.backup.check import fsck_installation
from app.backup.errors import BackupError
from app.backup.folder import open_folder
from app.backup.keys import copy_guard, copy_keys
from app.backup.recovery import recover_entries
from app.backup.restore import Restored, restore
from app.ledger.startup import open_ledger
from app.reconcile.findings import Finding, FsckReport
from app.reconcile.people import PENDING
from app.settings import Settings
from models.database.session import opened_engine

# What these compare a restore brings back whole, however old the backup is. The other checks
# compare tables with log entries: a table that is older than the log lacks what came since.
WHOLE = ("entry", "mac", "node", "gap", "checkpoint", "guard", "file", "tombstone", "pages")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a restore from a backup came to, and the seconds of its steps."""

    restored: Restored
    recovered: int  # entries that came from a mirror
    report: FsckReport
    restore_seconds: float
    check_seconds: float

    @property
    def damage(self) -> list[Finding]:
        """Findings that the age of the backup does not explain."""
        if not self.recovered:
            return list(self.report.findings)
        return [one for one in self.report.findings if one.check in WHOLE]

    @property
    def losses(self) -> list[Finding]:
        """Findings on what was written after the backup, and is lost with the database.

        Not those identities that a restore erases again, and logs: a rehearsal signs nothing.
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
) -> Rehearsal:
    """Restore the backup in `directory` into `scratch`, and compare everything in it.

    Args:
        settings: Those of the installation, whose keys are copied if `keys` is None.
        directory: The backup.
        scratch: An empty directory; for SQLite its database is there too.
        keys: A copy of the keys, restored with the backup.
        mirrors: URLs or directories of mirrors, for entries signed after the backup.
        database_url: An empty database; default: SQLite in `scratch`.

    Raises:
        BackupError: The backup is damaged, or entries were signed after it and no mirror is
            given; with `keys` a mirror is always needed.
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
        restored = restore(own, engine, directory, keys)
        recovered = 0
        if mirrors:
            ledger, done = recover_entries(own, engine, mirrors)
            recovered = done.size - done.start
        elif restored.missing or restored.keys_restored:
            raise BackupError(_without_mirror(restored))
        else:
            ledger = open_ledger(own, engine, examine=True)
        after = time.monotonic()
        report = fsck_installation(own, ledger)
    return Rehearsal(restored, recovered, report, after - begun, time.monotonic() - after)


def _without_mirror(restored: Restored) -> str:
    if restored.missing:
        return (
            f"{restored.missing} log entries were signed after this backup: without a mirror "
            "this log could not go on. Give --mirror, or make a newer backup"
        )
    return "keys of a backup do not show what was signed since: give --mirror"
