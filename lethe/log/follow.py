"""Following a log without trusting its server: every hash is computed from the entries.

1. The checkpoint is signed by the log's key, or by one that this key led to (a trust root), and
   by the log's ML-DSA-44 key if that was given.
2. Each entry hashes to its leaf in the level-0 tiles.
3. Each hash of a higher tile is the root of the full tile below it.
4. The root of all entries is the one the checkpoint signs.
5. If there is an earlier checkpoint: its tree is a prefix of the new one.

With an earlier checkpoint, 2 and 3 were done before for its entries, and by 5 the new
checkpoint still signs them: only newer files are read. Files of older entries are read again
only with `full`.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from lethe.files import alone_in, sync_directory, write_durably
from lethe.log.check import CheckedTree, Keep, check_tree
from lethe.log.checkpoint import Checkpoint, CheckpointError, parse_checkpoint
from lethe.log.entries import EntryError, parse_leaf
from lethe.log.fetch import (
    CHECKPOINT,
    Fetch,
    LogError,
    LogForkedError,
    LogRewoundError,
    LogUnreachableError,
    MissingFileError,
    fetch_from,
)
from lethe.log.incoming import incoming
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import NoteError, NoteVerifier, SignatureLine, read_note
from lethe.log.policy import NONE, Policy
from lethe.log.tiles import TILE_WIDTH, decode_bundle, entries_path

ENTRIES = "tile/entries/"
Keys = NoteVerifier | LogKeys
MIRROR, STATE = "mirror", "state file"


@dataclass(frozen=True, slots=True)
class LogReport:
    """The result of a verification: the number of `entries` and hash `tiles` that were checked.

    before: how many entries were checked by an earlier call, and are a prefix of this tree.
    `unverified` has the checkpoint's signature lines by keys that were not given; they are
    ignored. `first` is the first entry, None in an empty log. quorum: what `witnessed` found.
    """

    origin: str
    size: int
    root: bytes
    entries: int
    tiles: int
    checkpoint: str
    unverified: tuple[SignatureLine, ...]
    first: bytes | None = None
    before: int = 0
    quorum: str | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """The checkpoint of an earlier call and that log's first entry; `by`: who holds them."""

    checkpoint: Checkpoint
    first: bytes | None
    by: str


def verify_log(
    fetch: Fetch, verifier: Keys, state: Path | None = None, *, full: bool = False
) -> LogReport:
    """Verify a log and return what was checked, with a few bundles at a time in memory.

    state: a file that keeps the verified checkpoint for the next call, which then reads only
    newer files. If another process replaced it meanwhile, the log is compared with that one's
    checkpoint too. full: read everything anyway.

    Raises:
        LogError: The log is not what `verifier` signed, or does not extend the checkpoint in
            the file; the message names the file.
        LogUnreachableError: The log could not be read, so nothing is known, or the state could
            not be written.
    """
    while True:
        held = None if state is None else _read_state(state, verifier)
        report = _follow(fetch, verifier, lambda _path, _data: None, held, full=full)
        if state is None:
            return report
        first = None if report.first is None else format_base64(report.first)
        kept = canonical.encode({"checkpoint": report.checkpoint, "first": first})
        try:
            with alone_in(state.parent):
                if _read_state(state, verifier) == held:
                    write_durably(state, kept + b"\n")
                    return report
        except OSError as error:
            raise LogUnreachableError(
                f"the state file cannot be written: {error.strerror}"
            ) from None


def read_log(fetch: Fetch, verifier: Keys) -> tuple[LogReport, list[bytes]]:
    """Verify a log as `verify_log` does, and return all its entries too, in memory.

    Raises LogError or LogUnreachableError: as `verify_log`.
    """
    leaves: list[bytes] = []

    def keep(path: str, data: bytes) -> None:
        if path.startswith(ENTRIES):
            leaves.extend(decode_bundle(data))

    return _follow(fetch, verifier, keep), leaves


def mirror_log(
    fetch: Fetch, verifier: Keys, directory: Path, *, full: bool = False
) -> LogReport:
    """Verify a log and make `directory` a copy of it that any static web server can serve.

    Nothing is written before everything is verified, and the checkpoint is replaced last: after
    a crash the mirror still has its old size, plus some files. A mirror that holds an earlier
    checkpoint reads only newer files; full: it reads and writes everything again. If another
    process has written to the mirror meanwhile, this begins again.

    Raises LogError: the log does not verify, or does not extend the mirror;
    LogUnreachableError: the log could not be read or the mirror not written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            with incoming(directory) as place:
                report = _mirror(fetch, verifier, directory, place, full=full)
            if report is not None:
                return report
    except OSError as error:
        raise LogUnreachableError(f"the mirror cannot be written: {error.strerror}") from None


def _mirror(
    fetch: Fetch, verifier: Keys, directory: Path, place: Path, *, full: bool
) -> LogReport | None:
    """Extend a mirror; None if its checkpoint was replaced while the log was read."""
    held = _read_mirror(directory, verifier)
    paths: dict[str, None] = {}  # ordered, without duplicates

    def keep(path: str, data: bytes) -> None:
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        paths[path] = None

    report = _follow(fetch, verifier, keep, held, full=full)
    keep(CHECKPOINT, report.checkpoint.encode())
    *tiles, checkpoint = paths
    with alone_in(directory):
        if _read_mirror(directory, verifier) != held:
            return None
        for path in tiles:
            _publish(place, directory, path)
        # Written before its tiles, the checkpoint could survive a power cut that they do not.
        for parent in {(directory / path).parent for path in tiles}:
            sync_directory(parent)
        _publish(place, directory, checkpoint)
        sync_directory(directory)
    return report


def succeeded(report: LogReport) -> Checkpoint | None:
    """Return the last checkpoint of the log that this one says it succeeds, None if none.

    The old log's key signed it; the entry has that key too, so compare it with the key you
    know.
    """
    try:
        leaf = parse_leaf(report.first or b"")
    except EntryError:
        return None
    if leaf.checkpoint is None:
        return None
    return parse_checkpoint(leaf.checkpoint.partition("\n\n")[0] + "\n")


def _follow(
    fetch: Fetch, verifier: Keys, keep: Keep, held: _Held | None = None, *, full: bool = False
) -> LogReport:
    note, checkpoint = _read_checkpoint(fetch, verifier)
    size, before = checkpoint.size, 0
    first: list[bytes] = []
    if held is not None:
        _require_later(held, checkpoint)

    def see(path: str, data: bytes) -> None:
        if not first and path == entries_path(0, min(size, TILE_WIDTH)):
            first.append(decode_bundle(data)[0])
        keep(path, data)

    checked = None if held is None or full else _check_new(fetch, checkpoint, see, held)
    if held is not None and checked is not None:
        before = held.checkpoint.size
    else:
        old = 0 if held is None else held.checkpoint.size
        checked = check_tree(fetch, size, see, old)
    if checkpoint.root != checked.root:
        raise LogError(
            f"{CHECKPOINT}: its root is not that of the {size} entries served", path=CHECKPOINT
        )
    if held is not None:
        if checked.old_root != held.checkpoint.root:
            raise _forked(held)
        first = [held.first] if before and held.first is not None else first
    return LogReport(
        origin=checkpoint.origin,
        size=size,
        root=checked.root,
        entries=checked.entries,
        tiles=checked.tiles,
        checkpoint=note,
        unverified=read_note(note, log_keys(verifier).known).unverified,
        first=next(iter(first), None),
        before=before,
    )


def witnessed(report: LogReport, verifier: Keys, policy: Policy) -> LogReport:
    """Return the report of a log whose checkpoint a quorum of the policy's witnesses signed.

    Raises LogError: none did, or the policy lists other logs, or other keys of this one.
    """
    own = log_keys(verifier).verifiers
    if not any(map(policy.accepts, own)):
        raise LogError("the policy lists other logs than this one", path=CHECKPOINT)
    try:
        opened = read_note(report.checkpoint, [*log_keys(verifier).known, *policy.keys])
    except NoteError as error:
        raise LogError(f"{CHECKPOINT}: {error.detail}", path=CHECKPOINT) from None
    if not any(policy.accepts(key) for key in opened.verified if key in own):
        raise LogError(
            f"{CHECKPOINT}: no key of the log that the policy lists signed it", path=CHECKPOINT
        )
    signed = {key.vkey for key in opened.verified}
    count = sum(key.vkey in signed for key in policy.keys)
    found = f"{count} of {len(policy.keys)} witnesses of the policy signed"
    if not policy.is_met(signed):
        raise LogError(
            f"{CHECKPOINT}: {found} size {report.size}: its quorum is not met; witnesses are "
            "asked every few seconds: if the log has just grown, try again",
            path=CHECKPOINT,
        )
    met = ", and it requires none" if policy.quorum == NONE else ": its quorum is met"
    return replace(report, unverified=opened.unverified, quorum=f"{found}{met}")


def _check_new(
    fetch: Fetch, checkpoint: Checkpoint, keep: Keep, held: _Held
) -> CheckedTree | None:
    """Check what is new since `held`; None if it does not match the checkpoint.

    The caller then reads everything, as without `held`, to find the file at fault.
    """
    old = held.checkpoint
    if (old.size, old.root) == (checkpoint.size, checkpoint.root):
        return CheckedTree(old.root, old.root, 0, 0)
    if not 0 < old.size < checkpoint.size:
        return None
    try:
        checked = check_tree(fetch, checkpoint.size, keep, old.size, full=False)
    except LogUnreachableError:
        raise
    except LogError:
        return None
    roots = (checked.old_root, checked.root)
    return checked if roots == (old.root, checkpoint.root) else None


def _read_checkpoint(fetch: Fetch, verifier: Keys) -> tuple[str, Checkpoint]:
    try:
        note = fetch(CHECKPOINT).decode()
        return note, log_keys(verifier).open(note)[0]
    except MissingFileError:
        raise LogUnreachableError(
            "there is no log here: give the prefix that `checkpoint` lies under, such as "
            "URL/v1/log",
            path=CHECKPOINT,
        ) from None
    except UnicodeDecodeError:
        raise LogError(f"{CHECKPOINT} is not UTF-8", path=CHECKPOINT) from None
    except (NoteError, CheckpointError) as error:
        raise LogError(f"{CHECKPOINT}: {error.detail}", path=CHECKPOINT) from None


def _read_mirror(directory: Path, verifier: Keys) -> _Held | None:
    fetch = fetch_from(directory)
    try:
        checkpoint = _open_held(fetch(CHECKPOINT).decode(), verifier)
    except MissingFileError:
        return None
    except (NoteError, CheckpointError, UnicodeDecodeError):
        raise LogError(
            "the mirror holds another log's checkpoint: give an empty directory",
            path=CHECKPOINT,
        ) from None
    try:
        bundle = fetch(entries_path(0, min(checkpoint.size, TILE_WIDTH)))
        first = decode_bundle(bundle)[0]
    except LetheError:  # empty or malformed: the entry only serves to name the predecessor
        first = None
    return _Held(checkpoint, first, MIRROR)


def _read_state(path: Path, verifier: Keys) -> _Held | None:
    try:
        kept = canonical.decode(path.read_bytes().removesuffix(b"\n"))
        first = kept["first"]
        return _Held(
            _open_held(kept["checkpoint"], verifier),
            None if first is None else parse_base64(first),
            STATE,
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LogUnreachableError(f"the state file cannot be read: {error.strerror}") from None
    except (LetheError, LookupError, TypeError, ValueError, AttributeError):
        raise LogError(
            "the state file holds no checkpoint of this log: give another file, or remove it "
            "to verify everything",
            path=CHECKPOINT,
        ) from None


def _open_held(note: str, verifier: Keys) -> Checkpoint:
    """Return a checkpoint that was verified before: perhaps before a second key was given."""
    return replace(log_keys(verifier), also=None).open(note)[0]


def _require_later(held: _Held, checkpoint: Checkpoint) -> None:
    """Refuse a smaller tree, or another tree of the same size, before anything else is read."""
    old = held.checkpoint
    if old.size > checkpoint.size:
        raise LogRewoundError(
            f"the log has {checkpoint.size} entries and the {held.by} {old.size}: it was "
            f"rolled back, or an old copy is served; the {held.by} is kept as it was",
            path=CHECKPOINT,
        )
    if old.size == checkpoint.size and old.root != checkpoint.root:
        raise _forked(held)


def _forked(held: _Held) -> LogForkedError:
    """Return the error of a fork: the earlier checkpoint may be the only proof of it."""
    return LogForkedError(
        f"the log forked: its first {held.checkpoint.size} entries are not those the {held.by} "
        "holds; keep both checkpoints as proof",
        path=CHECKPOINT,
    )


def _publish(place: Path, directory: Path, path: str) -> None:
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    (place / path).replace(target)
