"""Artifacts: sealed files, each under its own key, and the row that holds the wrapped key.

The file is durable before its row commits, so a row never points at nothing; a crash in
between leaves a file without a row, which nobody can open and a sweep removes. Shredding
destroys the wrapped key in the row, atomically with whatever else the transaction says.
"""

import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from sqlmodel import Session, col, select

from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.journal import ErasureJournal
from app.vault.master import MasterKey
from app.vault.seal import context, new_key, open_sealed, seal
from lethe.files import PARTIAL, sync_directory, write_durably
from models import Artifact
from models.clock import clock
from models.session import reading

GRACE = timedelta(hours=1)  # longer than any transaction between a file and its row
CHUNK = 500  # SQLite's oldest limit on bound variables is 999


class ArtifactStore:
    """Artifacts in `directory`, their keys wrapped by `master`.

    `journal` notes each key that is destroyed.
    """

    def __init__(
        self, directory: Path, master: MasterKey, journal: ErasureJournal | None = None
    ) -> None:
        self._directory = directory
        self._master = master
        self._journal = journal

    def put(self, session: Session, kind: str, data: bytes) -> Artifact:
        """Store `data`; it is there once the caller's transaction commits."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        artifact_id, key = str(uuid.uuid4()), new_key()
        digest = hashlib.sha256(data).hexdigest()
        write_durably(self._path(artifact_id), seal(key, data, _content(artifact_id, kind)))
        artifact = Artifact(
            id=artifact_id,
            kind=kind,
            digest=digest,
            size=len(data),
            wrapped_key=self._master.seal(key, _key_of(artifact_id, digest)),
        )
        session.add(artifact)
        session.flush()  # rows that refer to it may follow
        return artifact

    def get(self, session: Session, artifact_id: str) -> bytes:
        """Return an artifact's content.

        Raises:
            NotStoredError: There is no such artifact.
            ShreddedError: It was shredded.
            SealError: The file is missing or was altered.
        """
        artifact = _find(session, artifact_id)
        if artifact.wrapped_key is None:
            raise ShreddedError("this artifact was erased; its digest is all that remains")
        key = self._master.open(artifact.wrapped_key, _key_of(artifact.id, artifact.digest))
        try:
            blob = self._path(artifact.id).read_bytes()
        except FileNotFoundError:
            raise SealError(
                "an artifact's file is missing: restore the data directory from its backup"
            ) from None
        data = open_sealed(key, blob, _content(artifact.id, artifact.kind))
        if hashlib.sha256(data).hexdigest() != artifact.digest:
            raise SealError("an artifact is not what its digest says: restore the backup")
        return data

    def shred(self, session: Session, artifact_id: str) -> str:
        """Destroy the key, with the caller's transaction, and return the content's digest.

        Shredding twice is shredding once. Call `unlink_shredded` after the commit, and
        `app.vault.scrub` for what the database keeps of overwritten rows.

        Raises:
            NotStoredError: There is no such artifact.
        """
        artifact = _find(session, artifact_id)
        if artifact.wrapped_key is not None:
            if self._journal is not None:
                self._journal.shredded(session, artifact)
            artifact.wrapped_key = None
            artifact.shredded_at = clock(session)
            session.add(artifact)
            session.flush()
        return artifact.digest

    def unlink_shredded(self, session: Session, grace: timedelta = GRACE) -> int:
        """Remove the files of shredded artifacts and what a crash left; return how many.

        Only what is committed counts, also inside a transaction that has shredded more: a
        file removed before a rollback would be lost. A file without a row goes once it is
        older than `grace`; before, its transaction may still be running.
        """
        if not self._directory.is_dir():
            return 0
        names = [path.name for path in self._directory.iterdir()]
        oldest_open = time.time() - grace.total_seconds()
        with Session(reading(session.get_bind().engine)) as committed:
            live, shredded = _sort(committed, names)
        removed = 0
        for name in set(names) - live:
            path = self._directory / name
            if name in shredded or _modified(path) < oldest_open:
                path.unlink(missing_ok=True)  # another process may sweep at the same time
                removed += 1
        if removed:
            sync_directory(self._directory)
        return removed

    def missing(self, session: Session) -> int:
        """Return how many live artifacts have no file."""
        query = select(Artifact.id).where(col(Artifact.wrapped_key).is_not(None))
        live = set(session.exec(query))
        there = set(os.listdir(self._directory)) if self._directory.is_dir() else set()
        # One of them may have been shredded, and its file removed, since the rows were read.
        with Session(reading(session.get_bind().engine)) as later:
            return len(_sort(later, sorted(live - there))[0])

    def require_master(self, session: Session, master: MasterKey) -> None:
        """Return if `master` opens what is stored, as far as one artifact can tell.

        Raises:
            SealError: It is another master key than the one that sealed it.
        """
        query = select(Artifact).where(col(Artifact.wrapped_key).is_not(None))
        newest = session.exec(query.order_by(col(Artifact.created_at).desc()).limit(1)).first()
        if newest is not None and newest.wrapped_key is not None:
            master.open(newest.wrapped_key, _key_of(newest.id, newest.digest))

    def _path(self, artifact_id: str) -> Path:
        return self._directory / artifact_id


def _find(session: Session, artifact_id: str) -> Artifact:
    artifact = session.get(Artifact, artifact_id)
    if artifact is None:
        raise NotStoredError("no artifact has this id")
    return artifact


def _sort(session: Session, names: list[str]) -> tuple[set[str], set[str]]:
    """Return which names belong to live artifacts and which to shredded ones."""
    live: set[str] = set()
    shredded: set[str] = set()
    for chunk in _chunks([name for name in names if not name.startswith(PARTIAL)]):
        query = select(Artifact.id, Artifact.wrapped_key).where(col(Artifact.id).in_(chunk))
        for artifact_id, wrapped_key in session.exec(query):
            (shredded if wrapped_key is None else live).add(artifact_id)
    return live, shredded


def _chunks(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), CHUNK):
        yield names[start : start + CHUNK]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _content(artifact_id: str, kind: str) -> bytes:
    return context("artifact", artifact_id, kind)


def _key_of(artifact_id: str, digest: str) -> bytes:
    return context("artifact-key", artifact_id, digest)
