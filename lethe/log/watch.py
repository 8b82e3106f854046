"""Watching a log as an independent monitor: it may only grow, and no entry may change.

Each look extends a mirror (`lethe.log.follow.mirror_log`). Now and then everything is read
again, which finds old entries that are served changed or not at all: an incremental look
cannot. A contradiction that the log's key signed is kept in `evidence/` of the mirror.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
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
from lethe.log.log_keys import log_keys
from lethe.log.note import NoteError

EVIDENCE = "evidence"
Alarm = Literal["fork", "rewind", "missing", "changed", "unreachable"]


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look at a log: a report, or an alarm with its reason.

    evidence: for an alarm, the file with the checkpoint that the log's key signed.
    """

    report: LogReport | None = None
    alarm: Alarm | None = None
    detail: str = ""
    evidence: Path | None = None


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
        kept = None if not served else _kept(served[-1], verifier, mirror)
        return Look(alarm=_kind(error), detail=error.detail, evidence=kept)


def watch(
    fetch: Fetch, verifier: Keys, mirror: Path, *, every: float, full_every: float
) -> Iterator[tuple[Look, float]]:
    """Yield looks for ever, each with the seconds to wait before the next one.

    Args:
        fetch: Reads the log.
        verifier: The log's key, or its keys by a trust root.
        mirror: The directory of the mirror.
        every: Seconds between two looks.
        full_every: Seconds between two looks that read everything. The first one does.
    """
    since = full_every
    while True:
        full = since >= full_every
        found = look(fetch, verifier, mirror, full=full)
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


def _kept(note: bytes, verifier: Keys, mirror: Path) -> Path | None:
    """Keep a checkpoint that the log's key signed: with the mirror's it proves the alarm."""
    try:
        log_keys(verifier).open(note.decode())
    except (NoteError, CheckpointError, UnicodeDecodeError):
        return None
    path = mirror / EVIDENCE / f"checkpoint-{hashlib.sha256(note).hexdigest()[:16]}"
    path.parent.mkdir(exist_ok=True)
    write_durably(path, note)
    return path
