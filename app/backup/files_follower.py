"""Follows the files beside a PostgreSQL database: artifacts, and keys if asked for.

PostgreSQL's archive has the rows. A file is durable before its row commits and never changes,
so a copy of all files that exist at a moment has those of every row that was committed by then.
A round takes that moment from PostgreSQL's clock; recovered to it, the database has each file
that its rows name.
"""

from datetime import datetime

from sqlmodel import Session

from app.backup.archive import ARTIFACTS, REMOVED, TRIES, is_any_lost
from app.backup.errors import BackupError
from app.backup.folder import Folder
from app.backup.round import BaseFollower, Round
from lethe.log.checkpoint import Checkpoint
from models.database.types import clock


class FilesFollower(BaseFollower):
    """Follows the files of an installation whose rows PostgreSQL archives."""

    archived = True

    def _run(
        self, at: datetime, held: Checkpoint, pieces: Folder, artifacts: Folder
    ) -> Round | None:
        for _ in range(TRIES):
            before = self._stored()  # rows of the moment may name one that is removed now
            with self.connection.begin():
                seen = self._now(before)
                if seen == self._seen:
                    self._prune(pieces, artifacts)
                    return None
                log = self._log(held)
                with Session(self.connection) as session:
                    at = clock(session)
            names = {*before, *self._stored()}
            # One removed since the last round stays for this one: the moment may be before it.
            files = self._write_artifacts(artifacts, sorted(names))
            if not is_any_lost(self._settings.data_dir / ARTIFACTS, names, files):
                break
        else:
            raise BackupError(REMOVED)
        state = self._finish(at, seen, log, files, [])
        self._prune(pieces, artifacts)
        return Round(state, 0)

    def _version(self) -> int:
        """Return the next transaction's number, which every writer takes."""
        query = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
        return int(self.connection.exec_driver_sql(query).scalar_one())
