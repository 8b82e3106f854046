"""The erasure journal: the erased records and keys, stored beside the keys.

A database restored from a backup contains people erased after that backup. The journal is
durable before the erasing transaction commits, hence before anything is certified, and a
restore replays it (`app.backup.reapply`). It holds keyed tags, no ids:

- for a record, the tag in its tombstone (`app.vault.master.record_tag`);
- for a destroyed data key, HMAC-SHA256 of the wrapped key, keyed from the root secret.

The file is append-only, with one numbered line of JSON per update that has the SHA-256 of the
previous line. A line that a crash cut short belongs to a transaction that never committed: it
is ignored and overwritten. A complete line may also belong to such a transaction. So a line
counts only if the log has its transaction's entries: all of its requests as executed, its
records as added back, or its model as deleted (`app.reconcile.journal`).
"""

import fcntl
import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import event, select
from sqlalchemy.orm import SessionTransaction
from sqlmodel import Session, col

from app.steps import reached
from app.vault.master import RootSecret
from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from models import Artifact, Subject
from models.database.session import chunks

FILE = "erased.journal"
FIRST = "0" * 64  # the first line's previous hash
NOTED = "lethe.erasure-journal"  # key in a session's `info`
LINE = 10_000  # tags in one line, which has at most half a megabyte
TAIL = 1 << 21  # bytes: the last line and a truncated one after it
# Artifact kinds that are shredded because of an erasure, but outside its transaction. Other
# kinds shredded there, such as learned uploads, are still needed by a restored database.
OF_ERASURES = frozenset({"before", "draft", "release"})


class JournalError(LetheError):
    """The erasure journal is missing, damaged or not applied; nothing is served."""

    slug, title, status = "erasure-journal", "The erasure journal does not match the log", 503


@dataclass(frozen=True, slots=True)
class Line:
    """The effects of one transaction; `erased` and `returned` are record tags of `model`.

    `requests`: for erased tags, the one request that erases them; for keys of an update, all
    its requests, which are executed together or not at all. `entry`: log index of the
    `contribution.learned` that adds the returned tags back; `digest`: that entry's hex SHA-256
    of all tags of the contribution. `deleted`: the model was deleted, by the `model.deleted` at
    `entry`.
    """

    model: str | None = None
    erased: tuple[bytes, ...] = ()
    returned: tuple[bytes, ...] = ()
    keys: tuple[bytes, ...] = ()
    requests: tuple[str, ...] = ()  # public refs
    entry: int | None = None
    digest: str | None = None
    deleted: bool = False


@dataclass(slots=True)
class Erased:
    """The state after replaying lines. `records`: by model, each erased tag with its line."""

    lines: list[Line] = field(default_factory=list)
    records: dict[str, dict[bytes, Line]] = field(default_factory=dict)
    keys: set[bytes] = field(default_factory=set)
    requests: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)  # models

    def add(self, line: Line) -> None:
        """Replay the next line; records added back are no longer erased."""
        self.lines.append(line)
        self.keys.update(line.keys)
        self.requests.update(line.requests)
        if line.deleted and line.model is not None:
            self.deleted.add(line.model)
        elif line.model is not None:
            tags = self.records.setdefault(line.model, {})
            tags.update(dict.fromkeys(line.erased, line))
            for tag in line.returned:
                tags.pop(tag, None)

    def having(self, counts: Callable[[Line], bool]) -> "Erased":
        """Replay only the lines for which `counts` is true."""
        found = Erased()
        for line in self.lines:
            if counts(line):
                found.add(line)
        return found


@dataclass(slots=True)
class _Noted:
    lines: list[Line] = field(default_factory=list)
    artifacts: dict[str, tuple[bool, bytes]] = field(default_factory=dict)  # of erasure, tag
    subjects: dict[int, bytes] = field(default_factory=dict)


class ErasureJournal:
    """The journal in the file `path`; `root_secret` keys the tags of destroyed keys."""

    def __init__(self, path: Path, root_secret: RootSecret) -> None:
        self.path = path
        self._key = root_secret.derive("erasure journal")

    def key_tag(self, wrapped: bytes) -> bytes:
        """Return the tag of a wrapped data key; wrapped keys have nonces, so tags differ."""
        return hmac.digest(self._key, bytes(wrapped), "sha256")

    def read(self) -> Erased:
        """Replay the whole journal.

        Raises JournalError: the file is missing, or a line in it is damaged.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise self._missing() from None
        return self._parse(data)

    def append(self, lines: Iterable[Line]) -> None:
        """Append lines durably.

        Raises JournalError: as `read`; OSError: the disk is full or failing.
        """
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._missing() from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released on close
            size = os.fstat(descriptor).st_size
            start = max(0, size - TAIL)
            tail = os.pread(descriptor, size - start, start)
            whole = tail[: tail.rfind(b"\n") + 1]
            last, end = whole[whole.rfind(b"\n", 0, -1) + 1 :], start + len(whole)
            number, before = self._number(last), sha256(last).hexdigest() if last else FIRST
            written = b""
            for line in lines:
                number += 1
                written += (encoded := _format(line, number, before))
                before = sha256(encoded).hexdigest()
            os.ftruncate(descriptor, end)
            if os.pwrite(descriptor, written, end) != len(written):
                raise OSError("the disk took only part of a line of the erasure journal")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _number(self, last: bytes) -> int:
        if not last:
            return 0
        try:
            return int(canonical.decode(last.removesuffix(b"\n"))["number"])
        except (canonical.NotCanonicalError, LookupError, TypeError, ValueError):
            raise JournalError(
                f"{self.path} is damaged at its end: restore the keys directory from its "
                "newest backup"
            ) from None

    def erased(self, session: Session, model: str, tags: Iterable[bytes], request: str) -> None:
        """Note that the transaction erases these records for this request (by ref)."""
        for chunk in _split(sorted(tags)):
            line = Line(model, erased=chunk, requests=(request,))
            self._noted(session).lines.append(line)

    def returned(
        self, session: Session, model: str, tags: Iterable[bytes], entry: int, digest: str
    ) -> None:
        """Note that the transaction adds erased records back.

        `entry` is the log index of the transaction's `contribution.learned`, and `digest` that
        entry's hex SHA-256 of the tags. If the transaction does not commit, another entry takes
        that index and the line is ignored.
        """
        for chunk in _split(sorted(tags)):
            line = Line(model, returned=chunk, entry=entry, digest=digest)
            self._noted(session).lines.append(line)

    def deleted(self, session: Session, model: str, entry: int) -> None:
        """Note that the transaction deletes a model, with the log entry at this index."""
        self._noted(session).lines.append(Line(model, entry=entry, deleted=True))

    def shredded(self, session: Session, artifact: Artifact, *, of_erasure: bool) -> None:
        """Note that the transaction destroys an artifact's key. Call it before the change.

        The caller has opened the key: the journal must not name another's. of_erasure: the
        artifact is one of OF_ERASURES.
        """
        assert artifact.wrapped_key is not None
        noted = of_erasure, self.key_tag(artifact.wrapped_key)
        self._noted(session).artifacts.setdefault(artifact.id, noted)

    def rekeyed(self, session: Session, subject: Subject) -> None:
        """Note that the transaction destroys a subject's key. Call it before the change.

        The caller has opened the key: the journal must not name another's.
        """
        assert subject.id is not None
        assert subject.wrapped_key is not None
        self._noted(session).subjects.setdefault(subject.id, self.key_tag(subject.wrapped_key))

    def _noted(self, session: Session) -> _Noted:
        if NOTED not in session.info:
            session.info[NOTED] = _Noted()
            event.listen(session, "before_commit", self._write)
            event.listen(session, "after_soft_rollback", _forget)
        noted: _Noted = session.info[NOTED]
        return noted

    def _write(self, session: Session) -> None:
        """Write the noted lines durably, just before the outermost transaction commits."""
        noted: _Noted = session.info[NOTED]
        if session.in_nested_transaction():
            return
        erasing = any(line.erased for line in noted.lines)
        changing = bool(noted.lines)
        keys = sorted(self._gone(session, noted, erasing))
        refs = tuple(sorted({ref for line in noted.lines for ref in line.requests}))
        gone = (Line(keys=chunk, requests=refs) for chunk in _split(keys))
        lines = [*noted.lines, *gone]
        session.info[NOTED] = _Noted()
        if lines:
            self.append(lines)
            if changing:
                reached("execute.journaled")

    def _gone(self, session: Session, noted: _Noted, erasing: bool) -> Iterable[bytes]:
        """Yield the tags of keys that are really destroyed, not restored by a savepoint."""
        wanted = [
            one for one, (of_erasure, _) in noted.artifacts.items() if erasing or of_erasure
        ]
        for artifact_id, wrapped in _wrapped(session, Artifact, wanted):
            if wrapped is None:
                yield noted.artifacts[artifact_id][1]
        subjects = list(noted.subjects) if erasing else []
        for subject_id, wrapped in _wrapped(session, Subject, subjects):
            tag = noted.subjects[subject_id]
            if wrapped is None or self.key_tag(wrapped) != tag:
                yield tag

    def _missing(self) -> JournalError:
        return JournalError(
            f"{self.path} is missing: restore the keys directory from its newest backup"
        )

    def _parse(self, data: bytes) -> Erased:
        found, before = Erased(), FIRST
        whole = data[: data.rfind(b"\n") + 1]
        for number, encoded in enumerate(whole.splitlines(keepends=True), 1):
            try:
                line = _read(encoded)
            except (canonical.NotCanonicalError, LookupError, TypeError, ValueError):
                line = None
            if line is None or _format(line, number, before) != encoded:
                raise JournalError(
                    f"{self.path} is damaged at line {number}: restore the keys directory from "
                    "its newest backup"
                )
            found.add(line)
            before = sha256(encoded).hexdigest()
        return found


def _wrapped(
    session: Session, kind: type[Artifact] | type[Subject], ids: Sequence[Any]
) -> Iterator[tuple[Any, bytes | None]]:
    """Yield the id and the currently stored wrapped key of each row; None if it is gone."""
    session.flush()
    for chunk in chunks(ids):
        query = select(col(kind.id), col(kind.wrapped_key)).where(col(kind.id).in_(chunk))
        stored = {one: wrapped for one, wrapped in session.connection().execute(query)}
        for one in chunk:
            yield one, stored.get(one)


def _forget(session: Session, previous: SessionTransaction) -> None:
    if not previous.nested:  # `_gone` handles savepoints before the commit
        session.info[NOTED] = _Noted()


def _split(tags: Iterable[bytes]) -> Iterable[tuple[bytes, ...]]:
    held = tuple(tags)
    for start in range(0, len(held), LINE):
        yield held[start : start + LINE]


def _format(line: Line, number: int, before: str) -> bytes:
    value: dict[str, Any] = {"before": before, "number": number}
    if line.model is not None:
        value["model"] = line.model
    for name in ("erased", "returned", "keys"):
        if tags := getattr(line, name):
            value[name] = [format_base64(tag) for tag in tags]
    if line.requests:
        value["requests"] = list(line.requests)
    if line.entry is not None:
        value["entry"] = line.entry
    if line.digest is not None:
        value["digest"] = line.digest
    if line.deleted:
        value["deleted"] = True
    return canonical.encode(value) + b"\n"


def _read(encoded: bytes) -> Line:
    value = canonical.decode(encoded.removesuffix(b"\n"))
    erased, returned, keys = (
        tuple(parse_base64(tag) for tag in value.get(name, ()))
        for name in ("erased", "returned", "keys")
    )
    requests, entry = tuple(value.get("requests", ())), value.get("entry")
    digest, deleted = value.get("digest"), value.get("deleted", False)
    return Line(value.get("model"), erased, returned, keys, requests, entry, digest, deleted)
