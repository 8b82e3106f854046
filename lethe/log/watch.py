"""Watching a log as an independent monitor: it may only grow, and no entry may change.

Each look extends a mirror (`lethe.log.follow.mirror_log`). Now and then everything is read
again, which finds old entries that are served changed or not at all: an incremental look
cannot. A contradiction that the log's key signed is kept in `evidence/` of the mirror.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lethe.files import write_durably
from lethe.log.checkpoint import CheckpointError
from lethe.log.fetch import (
    CHECKPOINT,
    Fetch,
    LogError,
    LogForkedError,
    LogRewoundError,
    LogUnreachableError,
    MissingFileError,
)
from lethe.log.follow import Keys, LogReport, mirror_log
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import NoteError, NoteVerifier

EVIDENCE = "evidence"
Alarm = Literal["fork", "rewind", "missing", "changed", "unreachable"]


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look at a log: a report, or an alarm with its reason.

    evidence: for an alarm, the file with the checkpoint that the log's key signed. unsigned:
    the checkpoint, if it lacks the signature of a known key, or of an ML-DSA-44 key where one
    is required. rotated: the log's newest keys, if a rotation from the known ones to them was
    just proven.
    """

    report: LogReport | None = None
    alarm: Alarm | None = None
    detail: str = ""
    evidence: Path | None = None
    unsigned: bytes | None = None
    rotated: tuple[NoteVerifier, ...] = ()


def look(fetch: Fetch, verifier: Keys, mirror: Path, *, full: bool = False) -> Look:
    """Extend the mirror by new entries; full: read everything again.

    Never raises because of what a log serves: an alarm says what is wrong.
    """
    served: list[bytes] = []

    def note(path: str) -> bytes:
        data = fetch(path)
        if path == CHECKPOINT:
            served.append(data)
        return data

    try:
        return Look(mirror_log(note, verifier, mirror, full=full))
    except LogUnreachableError as error:
        return Look(alarm="unreachable", detail=error.detail)
    except LogError as error:
        signed = bool(served) and _is_signed(served[-1], verifier)
        return Look(
            alarm=_kind(error),
            detail=error.detail,
            evidence=_kept(served[-1], mirror) if signed else None,
            unsigned=served[-1] if served and not signed else None,
        )


def watch(
    fetch: Fetch,
    verifier: Keys,
    mirror: Path,
    *,
    every: float,
    full_every: float,
    rotated: Callable[[LogKeys], LogKeys | None] | None = None,
) -> Iterator[tuple[Look, float]]:
    """Yield looks for ever, each with the seconds to wait before the next one.

    Args:
        fetch: Reads the log.
        verifier: The log's key, or its keys by a trust root.
        mirror: The directory of the mirror.
        every: Seconds between two looks.
        full_every: Seconds between two looks that read everything. The first one does.
        rotated: Returns keys that the known ones lead to, None if none is proven. It is asked
            where a signature is missing.
    """
    keys, since = log_keys(verifier), full_every
    while True:
        full = since >= full_every
        found = look(fetch, keys, mirror, full=full)
        newer = None if found.unsigned is None or rotated is None else rotated(keys)
        if newer is not None:
            new = tuple(key for key in newer.newest if key not in keys.newest)
            keys = newer
            found = replace(look(fetch, keys, mirror, full=full), rotated=new)
        # Whoever has only the log's Ed25519 key leaves a proof, too.
        if found.unsigned is not None and _is_signed(found.unsigned, replace(keys, also=None)):
            found = replace(found, evidence=_kept(found.unsigned, mirror))
        if full and found.alarm != "unreachable":
            since = 0.0
        yield found, every
        since += every


def _kind(error: LogError) -> Alarm:
    kinds: tuple[tuple[type[LogError], Alarm], ...] = (
        (LogForkedError, "fork"),
        (LogRewoundError, "rewind"),
        (MissingFileError, "missing"),
    )
    return next((name for kind, name in kinds if isinstance(error, kind)), "changed")


def _is_signed(note: bytes, keys: Keys) -> bool:
    try:
        log_keys(keys).open(note.decode())
    except (NoteError, CheckpointError, UnicodeDecodeError):
        return False
    return True


def _kept(note: bytes, mirror: Path) -> Path:
    """Keep a checkpoint that the log's key signed: with the mirror's it proves the alarm."""
    # The whole digest: of a part, a log could make two notes, and replace the proof by another.
    path = mirror / EVIDENCE / f"checkpoint-{hashlib.sha256(note).hexdigest()}"
    path.parent.mkdir(exist_ok=True)
    write_durably(path, note)
    return path
