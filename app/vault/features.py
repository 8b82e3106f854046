"""Features at rest: a subject's rows in one blob under the subject's own key.

Erasing one row means rewriting the others under a new key and destroying the old key: copies of
the old ciphertext, in a backup or on a discarded disk, can never be opened again.

The key is also sealed for its owner, the client and the subject. Otherwise anyone with write
access to the database could assign rows to another owner, and an erasure of all the first
owner's rows would miss them.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy import bindparam, update
from sqlalchemy import select as columns
from sqlalchemy.engine import Engine
from sqlmodel import Session, col

from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.journal import ErasureJournal
from app.vault.master import RootSecret
from app.vault.seal import context, new_key, open_sealed, seal
from lethe.files import write_durably
from models import FeatureBlock, Subject
from models.database.session import CHUNK, read_by_id, reading
from models.database.types import tag_of, utcnow

Owner = tuple[str, ...]  # tags of client and subject
OWNERS = "owners.named"  # marker in the keys directory: all keys are sealed for their owners
FETCH = 100  # blocks in memory at once when a whole model is read


class FeatureVault:
    """Feature blocks in the database, with keys wrapped by `root_secret`; payloads are opaque.

    `journal` records each destroyed key.
    """

    def __init__(self, root_secret: RootSecret, journal: ErasureJournal | None = None) -> None:
        self._root_secret = root_secret
        self._journal = journal

    def store(self, session: Session, subject: Subject, payload: bytes, rows: int) -> None:
        """Seal `payload` under a new key of `subject`; an earlier key is destroyed.

        The subject must be flushed: the blob is bound to its id.
        """
        assert subject.id is not None
        key, generation = new_key(), subject.key_generation + 1
        # One that never had a key has no block: no query for each of many new subjects.
        block = session.get(FeatureBlock, subject.id) if subject.key_generation else None
        if block is None:
            block = FeatureBlock(
                subject_id=subject.id,
                model_id=subject.model_id,
                rows=0,
                key_generation=0,
                ciphertext=b"",
            )
        block.rows = rows
        block.key_generation = generation
        block.ciphertext = seal(
            key, payload, _content(subject.model_id, subject.id, generation)
        )
        owner = _owner(session, subject)
        subject.wrapped_key = self._root_secret.seal(
            key, _key_of(subject.id, generation, owner)
        )
        subject.key_generation = generation
        subject.shredded_at = None
        session.add(subject)
        session.add(block)

    def rewrite(
        self, session: Session, subject: Subject, payload: bytes | None, rows: int
    ) -> None:
        """Replace the payload under a new key, or remove it if None; destroys the old key.

        Raises NotStoredError: nothing is stored for the subject.
        """
        block = session.get(FeatureBlock, subject.id)
        if block is None:
            raise NotStoredError("no features are stored for this subject")
        if self._journal is not None and self._is_own_key(session, subject, block):
            self._journal.rekeyed(session, subject)
        if payload is not None:
            self.store(session, subject, payload, rows)
            return
        subject.wrapped_key = None
        subject.shredded_at = utcnow()
        session.add(subject)
        session.delete(block)

    def _is_own_key(self, session: Session, subject: Subject, block: FeatureBlock) -> bool:
        """Return whether a subject's stored key is one that was sealed for it.

        Without this check, whoever wrote the row could have another subject's key written to
        the erasure journal, and a restore would destroy that one's rows.
        """
        place = _key_of(block.subject_id, block.key_generation, _owner(session, subject))
        with suppress(SealError):
            self._root_secret.open(subject.wrapped_key or b"", place)
            return True
        return False

    def load(self, session: Session, subject_id: int) -> bytes:
        """Return a subject's payload.

        Raises:
            NotStoredError: Nothing was ever stored for the subject.
            ShreddedError: The subject's key was destroyed.
            SealError: The stored blob was altered or belongs elsewhere.
        """
        subject = session.get(Subject, subject_id)
        if subject is not None and subject.shredded_at is not None:
            raise ShreddedError("this subject's features were erased")
        block = session.get(FeatureBlock, subject_id)
        if subject is None or block is None or subject.wrapped_key is None:
            raise NotStoredError("no features are stored for this subject")
        generation = block.key_generation
        owner = _owner(session, subject)
        key = self._root_secret.open(
            subject.wrapped_key, _key_of(subject_id, generation, owner)
        )
        return open_sealed(
            key, block.ciphertext, _content(subject.model_id, subject_id, generation)
        )

    def load_each(self, session: Session, subject_ids: Sequence[int]) -> dict[int, bytes]:
        """Return each subject's payload by its id. Raises as `load`."""
        read_by_id(session, Subject, subject_ids)
        read_by_id(session, FeatureBlock, subject_ids)
        return {subject: self.load(session, subject) for subject in subject_ids}

    def load_many(
        self, session: Session, model_id: int, fetch: int = FETCH
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (subject id, payload) of everything stored for a model, by subject id.

        fetch: number of blocks in memory at once, at least 1.

        Raises SealError: a stored blob was altered or belongs elsewhere, or lacks its key.
        """
        query = (
            columns(
                col(FeatureBlock.subject_id),
                col(FeatureBlock.key_generation),
                col(FeatureBlock.ciphertext),
                col(Subject.wrapped_key),
                col(Subject.client_tag),
                col(Subject.subject_tag),
            )
            .join(Subject, col(Subject.id) == col(FeatureBlock.subject_id))
            .where(col(FeatureBlock.model_id) == model_id)
            .order_by(col(FeatureBlock.subject_id))
            .execution_options(yield_per=fetch)
        )
        with session.connection().execute(query) as found:
            for subject_id, generation, ciphertext, wrapped, *owner in found:
                key = self._root_secret.open(
                    wrapped or b"", _key_of(subject_id, generation, tuple(owner))
                )
                place = _content(model_id, subject_id, generation)
                yield subject_id, open_sealed(key, ciphertext, place)

    def foreign(self, session: Session) -> Iterator[int]:
        """Yield the id of each subject whose key is not sealed for it and its client."""
        for subject_id, generation, wrapped, owner in _keys(session):
            try:
                self._root_secret.open(wrapped, _key_of(subject_id, generation, owner))
            except SealError:
                yield subject_id

    def name_owners(self, engine: Engine, keys: Path) -> int:
        """Seal keys from before owner binding for the subjects' current owners.

        Databases filled at a revision up to 0012 have such keys, which do not open until then
        (`tests/migrations/test_then.py`). It runs once, recorded by a file in the directory
        `keys`: otherwise somebody with a copy of the older database could restore rows and
        assign them to others. A key replaced meanwhile is already sealed for its owner. Returns
        the number of such keys found after the upgrade ran, 0 if it ran now.
        """
        named = []
        with Session(reading(engine)) as session:
            for subject_id, generation, wrapped, owner in _keys(session):
                place = _key_of(subject_id, generation, owner)
                with suppress(SealError):
                    self._root_secret.open(wrapped, place)
                    continue
                with suppress(SealError):  # reported by fsck
                    key = self._root_secret.open(wrapped, _key_of(subject_id, generation, ()))
                    sealed = self._root_secret.seal(key, place)
                    named.append({"whose": subject_id, "old": wrapped, "new": sealed})
        if (keys / OWNERS).exists():
            return len(named)
        statement = (
            update(Subject)
            .where(col(Subject.id) == bindparam("whose"))
            .where(col(Subject.wrapped_key) == bindparam("old"))
            .values(wrapped_key=bindparam("new"))
        )
        for start in range(0, len(named), CHUNK):
            with engine.begin() as connection:
                connection.execute(statement, named[start : start + CHUNK])
        with suppress(FileExistsError):  # from a concurrent upgrade
            write_durably(keys / OWNERS, b"", replace=False)
        return 0


def _keys(session: Session) -> Iterator[tuple[int, int, bytes, Owner]]:
    """Yield id, generation, sealed key and owner of each subject with stored rows."""
    query = columns(
        col(Subject.id),
        col(Subject.key_generation),
        col(Subject.wrapped_key),
        col(Subject.client_tag),
        col(Subject.subject_tag),
    ).where(col(Subject.wrapped_key).is_not(None))
    with session.connection().execute(query.execution_options(yield_per=CHUNK)) as found:
        for subject_id, generation, wrapped, *owner in found:
            yield subject_id or 0, generation, wrapped or b"", tuple(owner)


def _owner(session: Session, subject: Subject) -> Owner:
    """Return the stored tags of a subject's client and of the subject."""
    dialect = session.get_bind().dialect
    return (
        tag_of(dialect, "client", subject.client_tag),
        tag_of(dialect, "subject", subject.subject_tag),
    )


def _content(model_id: int, subject_id: int, generation: int) -> bytes:
    return context("features", model_id, subject_id, generation)


def _key_of(subject_id: int, generation: int, owner: Owner) -> bytes:
    return context("features-key", subject_id, generation, *owner)
