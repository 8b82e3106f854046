"""Artifacts: sealed files, each under its own key, and the row that holds the wrapped key.

The file is durable before its row commits, so every row has its file. A crash in between leaves
a file without a row, which has no key any more and which a sweep removes. Shredding destroys
the wrapped key in the row, atomically with the rest of the transaction. The file's removal is
pending until `unlinked_at` is set, so a crash at any step leaves the pending removal in the
database. A partial index holds only these rows: an erasure costs the same among a thousand
artifacts and among millions.
"""

import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import case, update
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.journal import OF_ERASURES, ErasureJournal
from app.vault.master import RootSecret
from app.vault.seal import (
    NONCE_SIZE,
    TAG_SIZE,
    ArtifactFile,
    OpenedArtifact,
    SealStream,
    context,
    new_key,
    open_sealed,
    seal,
)
from lethe.files import PARTIAL, open_durably, open_plain, sync_directory, write_all_durably
from models import Artifact
from models.database.session import CHUNK, read_by_id, reading, rows_in, unsynced
from models.database.types import began, clock

log = logging.getLogger(__name__)

GRACE = timedelta(hours=1)  # longer than any transaction between a file and its row
OVERHEAD = NONCE_SIZE + TAG_SIZE  # bytes of a file in addition to its content
RESTORE = "restore the backup"
MISSING = "an artifact's file is missing: restore the data directory from its backup"
# What clients send has no salt. Whoever guesses a row can compute its file, and with the digest
# confirm the guess without any key; so these kinds lose the digest with the file.
GUESSABLE = ("release", "upload")
BATCH = CHUNK  # files checked by one call of `unlink_orphans` or `missing`


def is_file_name(artifact_id: str) -> bool:
    """Return whether an id is a valid file name in the artifacts' directory.

    Write access to the database allows any id, which could name any file the service can reach.
    """
    return artifact_id not in ("", ".", "..") and not {"/", "\0"} & set(artifact_id)


class StagedArtifact:
    """A sealed file being written, without a row. See `ArtifactStore.staged`."""

    def __init__(self, kind: str, file: BinaryIO, artifact_id: str) -> None:
        self.id, self.kind, self.size = artifact_id, kind, 0
        self.key = new_key()
        self._file, self._hash = file, hashlib.sha256()
        self._seal = SealStream(self.key, _content(artifact_id, kind))
        file.write(self._seal.head)

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the content written so far."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Seal and write the next piece. Raises OSError: the disk is full or failing."""
        self._hash.update(data)
        self._file.write(self._seal.update(data))
        size = memoryview(data).nbytes
        self.size += size
        return size

    def flush(self) -> None:
        """Do nothing: the end of the `staged` block makes the file durable."""

    def finish(self) -> None:
        """Write the end of the sealed file."""
        self._file.write(self._seal.finish())


class ArtifactStore:
    """Artifacts in `directory`, with keys wrapped by `root_secret`.

    `journal` records each destroyed key.
    """

    def __init__(
        self, directory: Path, root_secret: RootSecret, journal: ErasureJournal | None = None
    ) -> None:
        self._directory = directory
        self._root_secret = root_secret
        self._journal = journal
        # Positions of the incremental sweeps; a new process starts from the beginning.
        self._turn = threading.Lock()
        self._names: Iterator[str] = iter(())
        self._orphans: dict[str, float] = {}  # when each was first seen, by the monotonic clock
        self._seen_up_to = ""
        self._lost: set[str] = set()

    def put(self, session: Session, kind: str, data: bytes) -> Artifact:
        """Store `data`; it is stored once the caller's transaction commits."""
        return self.put_all(session, kind, [data])[0]

    def put_all(self, session: Session, kind: str, contents: Sequence[bytes]) -> list[Artifact]:
        """Store each content as `put` does, in order, waiting for the disk once."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files, artifacts, now = dict[str, bytes](), list[Artifact](), began(session)
        for data in contents:
            artifact_id, key = str(uuid.uuid4()), new_key()
            digest = hashlib.sha256(data).hexdigest()
            files[artifact_id] = seal(key, data, _content(artifact_id, kind))
            wrapped = self._root_secret.seal(key, _key_of(artifact_id, digest))
            artifacts.append(
                Artifact(
                    id=artifact_id,
                    kind=kind,
                    digest=digest,
                    size=len(data),
                    wrapped_key=wrapped,
                    created_at=now,
                )
            )
        write_all_durably(self._directory, files)
        session.add_all(artifacts)
        session.flush()  # so that rows may refer to the artifacts
        return artifacts

    @contextmanager
    def staged(self, kind: str) -> Iterator[StagedArtifact]:
        """Write an artifact in pieces, before the transaction that writes its row.

        The file is durable when the block succeeds, and removed when it fails. `put_staged`
        writes the row; without a row, `discard` removes the file.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        artifact_id = str(uuid.uuid4())
        with open_durably(self.path(artifact_id)) as file:
            staged = StagedArtifact(kind, file, artifact_id)
            yield staged
            staged.finish()

    def put_staged(self, session: Session, staged: StagedArtifact) -> Artifact:
        """Write the row of a staged artifact in the caller's transaction."""
        wrapped = self._root_secret.seal(staged.key, _key_of(staged.id, staged.digest))
        artifact = Artifact(
            id=staged.id,
            kind=staged.kind,
            digest=staged.digest,
            size=staged.size,
            wrapped_key=wrapped,
            created_at=began(session),
        )
        session.add(artifact)
        session.flush()
        return artifact

    def discard(self, staged: StagedArtifact) -> None:
        """Remove the file of a staged artifact that certainly has no row."""
        self.path(staged.id).unlink(missing_ok=True)

    def get(self, session: Session, artifact_id: str) -> bytes:
        """Return an artifact's content.

        Raises:
            NotStoredError: There is no such artifact.
            ShreddedError: The artifact was shredded.
            SealError: The file is missing or was altered.
        """
        artifact, key = self._unwrapped(session, artifact_id)
        with self._file(artifact) as file:
            blob = file.read(artifact.size + OVERHEAD)
        data = open_sealed(key, blob, _content(artifact.id, artifact.kind))
        if hashlib.sha256(data).hexdigest() != artifact.digest:
            raise SealError("an artifact is not what its digest says: " + RESTORE)
        return data

    def opened(self, session: Session, artifact_id: str) -> ArtifactFile:
        """Return an artifact's content as a file, with one piece in memory. Raises as `get`.

        The caller must close it; it does not use the session.
        """
        artifact, key = self._unwrapped(session, artifact_id)
        file = self._file(artifact)
        place = _content(artifact.id, artifact.kind)
        return ArtifactFile(OpenedArtifact(file, key, place, artifact.digest))

    def require_key(self, session: Session, artifact_id: str) -> None:
        """Check that an artifact has its key, which opens only beside its id and digest.

        Raises NotStoredError, ShreddedError or SealError: as `get`.
        """
        self._unwrapped(session, artifact_id)

    def shred(self, session: Session, artifact_id: str, *kinds: str) -> str | None:
        """Destroy the key in the caller's transaction, and return the content's digest.

        kinds: of these alone, where a column that nothing else confirms names the artifact.
        Whoever writes the column must not choose what is destroyed: an artifact of another kind
        is kept, and None returned.

        Idempotent. Call `unlink_shredded` after the commit, and `app.vault.scrub` for old row
        versions in the database. Raises NotStoredError: there is no such artifact.
        """
        if kinds and _find(session, artifact_id).kind not in kinds:
            log.error("a row named a file of another kind to destroy: it is kept")
            return None
        return self.shred_all(session, [artifact_id])[0]

    def shred_all(self, session: Session, artifact_ids: Sequence[str]) -> list[str]:
        """Shred each artifact; return their digests in order. Raises as `shred`."""
        read_by_id(session, Artifact, artifact_ids)
        artifacts = [_find(session, one) for one in artifact_ids]
        live = [one for one in artifacts if one.wrapped_key is not None]
        now = clock(session) if live else None
        for artifact in live:
            if artifact.wrapped_key is None:  # a duplicate id
                continue
            if self._journal is not None and (key := self._own_key(artifact)) is not None:
                of_erasure = artifact.kind in OF_ERASURES and self._is_of_kind(artifact, key)
                self._journal.shredded(session, artifact, of_erasure=of_erasure)
            artifact.wrapped_key = None
            artifact.shredded_at = now
        session.flush()
        return [artifact.digest for artifact in artifacts]

    def unlink_shredded(self, engine: Engine) -> int:
        """Remove the files of artifacts whose shredding is committed; return their number.

        The digests of GUESSABLE kinds are removed with them. Call it outside any transaction: a
        file removed before a rollback would be lost. A crash before the rows are marked repeats
        the removal.
        """
        unlinked, owed = 0, _owed(engine)
        digest = case((col(Artifact.kind).in_(GUESSABLE), ""), else_=col(Artifact.digest))
        while owed:
            for artifact_id in filter(is_file_name, owed):
                # Another process may remove it at the same time.
                self.path(artifact_id).unlink(missing_ok=True)
            if self._directory.is_dir():
                # Before the rows are marked: a marked row's file is never removed again.
                sync_directory(self._directory)
            # A mark lost in a power cut only repeats the removal: not worth a sync each time.
            with unsynced(engine).begin() as connection:
                marked = update(Artifact).where(col(Artifact.id).in_(owed))
                connection.execute(marked.values(unlinked_at=clock(connection), digest=digest))
            unlinked += len(owed)
            owed = _owed(engine) if len(owed) == CHUNK else []
        return unlinked

    def unlink_orphans(self, engine: Engine, grace: timedelta = GRACE) -> int:
        """Remove files without a live row among the next BATCH files; return their number.

        Successive calls cover the whole directory and then start again. A file without a row is
        removed once it is older than `grace`; until then its transaction may still be running.
        If the clock was set ahead, every new file looks old, so this process must also have
        seen the file without a row for that long. A shredded artifact's file that an older copy
        of the directory brought back is removed at once.
        """
        if not self._directory.is_dir():
            return 0
        with self._turn:
            names = list(islice(self._names, BATCH))
            if not names:
                self._names = _names_in(self._directory)
                names = list(islice(self._names, BATCH))
                self._orphans = {
                    name: since
                    for name, since in self._orphans.items()
                    if (self._directory / name).exists()
                }
        now, wait = time.monotonic(), grace.total_seconds()
        oldest_open = time.time() - wait
        live, shredded = _sort(engine, names)
        with self._turn:
            since = {name: self._orphans.setdefault(name, now) for name in set(names) - live}
            for name in live:
                self._orphans.pop(name, None)
        removed = 0
        for name, seen in since.items():
            path = self._directory / name
            if name in shredded or (now - seen >= wait and _modified(path) < oldest_open):
                path.unlink(missing_ok=True)  # another process may sweep at the same time
                removed += 1
        if removed:
            sync_directory(self._directory)
        return removed

    def missing(self, engine: Engine) -> int:
        """Return the number of live artifacts known to have no file.

        Each call checks the next BATCH of artifacts, and again those known to have no file.
        """
        with self._turn:
            query = select(Artifact.id, Artifact.wrapped_key).order_by(col(Artifact.id))
            with Session(reading(engine)) as session:
                following = query.where(col(Artifact.id) > self._seen_up_to).limit(BATCH)
                batch = session.exec(following).all()
            self._seen_up_to = batch[-1][0] if len(batch) == BATCH else ""
            self._lost |= {one for one, wrapped_key in batch if wrapped_key is not None}
            absent = sorted(
                one
                for one in self._lost
                if not is_file_name(one) or not self.path(one).exists()
            )
            # An artifact may have been shredded, and its file removed, since the query.
            self._lost = _sort(engine, absent)[0]
            return len(self._lost)

    def require_master(self, session: Session, root_secret: RootSecret) -> None:
        """Check that `root_secret` opens an artifact's key: one secret seals all.

        The first one that the index has, however many there are: /readyz asks each second.
        Raises SealError: it was sealed under another root secret.
        """
        live = col(Artifact.shredded_at).is_(None), col(Artifact.wrapped_key).is_not(None)
        found = session.exec(select(Artifact).where(*live).limit(1)).first()
        if found is not None and found.wrapped_key is not None:
            root_secret.open(found.wrapped_key, _key_of(found.id, found.digest))

    def _unwrapped(self, session: Session, artifact_id: str) -> tuple[Artifact, bytes]:
        artifact = _find(session, artifact_id)
        if artifact.wrapped_key is None:
            raise ShreddedError("this artifact was erased; its digest is all that remains")
        return artifact, self._unwrapped_key(artifact)

    def _unwrapped_key(self, artifact: Artifact) -> bytes:
        place = _key_of(artifact.id, artifact.digest)
        return self._root_secret.open(artifact.wrapped_key or b"", place)

    def _own_key(self, artifact: Artifact) -> bytes | None:
        """Return an artifact's key, None if the stored one was sealed for something else.

        Without this check, whoever wrote the row could have any key of the database written to
        the erasure journal, and a restore would destroy it.
        """
        with suppress(SealError):
            return self._unwrapped_key(artifact)
        return None

    def _is_of_kind(self, artifact: Artifact, key: bytes) -> bool:
        """Return whether the stored content was sealed as the kind that the row names."""
        with suppress(SealError):
            place = _content(artifact.id, artifact.kind)
            OpenedArtifact(self._file(artifact), key, place, artifact.digest).close()
            return True
        return False

    def _file(self, artifact: Artifact) -> BinaryIO:
        """Open an artifact's file, after checking its size.

        Write access to the directory could place a file that takes all memory to read.
        """
        try:
            file = os.fdopen(open_plain(self.path(artifact.id)), "rb")
        except FileNotFoundError:
            raise SealError(MISSING) from None
        if os.fstat(file.fileno()).st_size != artifact.size + OVERHEAD:
            file.close()
            raise SealError("an artifact has another size than it was stored with: " + RESTORE)
        return file

    def path(self, artifact_id: str) -> Path:
        """Return the file of an artifact. Raises NotStoredError: the id names no file here."""
        if not is_file_name(artifact_id):
            raise NotStoredError("no artifact has such an id: run `lethe log fsck`")
        return self._directory / artifact_id


def _find(session: Session, artifact_id: str) -> Artifact:
    artifact = session.get(Artifact, artifact_id)
    if artifact is None:
        raise NotStoredError("no artifact has this id")
    return artifact


def _owed(engine: Engine) -> list[str]:
    """Return the next shredded artifacts whose files are not yet removed."""
    query = select(Artifact.id).where(
        col(Artifact.wrapped_key).is_(None), col(Artifact.unlinked_at).is_(None)
    )
    with Session(reading(engine)) as session:
        return list(session.exec(query.limit(CHUNK)))


def _sort(engine: Engine, names: list[str]) -> tuple[set[str], set[str]]:
    """Return which names belong to live artifacts and which to shredded ones."""
    live: set[str] = set()
    shredded: set[str] = set()
    with Session(reading(engine)) as session:
        query = select(Artifact.id, Artifact.wrapped_key)
        whole = [name for name in names if not name.startswith(PARTIAL)]
        for artifact_id, wrapped_key in rows_in(session, query, col(Artifact.id), whole):
            (shredded if wrapped_key is None else live).add(artifact_id)
    return live, shredded


def _names_in(directory: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:  # also closed when the generator is
        # A folder is not an artifact, and unlinking it would fail every sweep.
        yield from (entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _content(artifact_id: str, kind: str) -> bytes:
    return context("artifact", artifact_id, kind)


def _key_of(artifact_id: str, digest: str) -> bytes:
    return context("artifact-key", artifact_id, digest)
