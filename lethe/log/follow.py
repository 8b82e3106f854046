"""Following a log without trusting who serves it: every hash is computed from the entries.

1. The checkpoint is signed by the log's key.
2. Each entry hashes to its leaf in the level-0 tiles.
3. Each hash of a higher tile is the root of the full tile below it.
4. The root of all entries is the one the checkpoint signs.
5. When a mirror grows: the tree it held is a prefix of the new one.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lethe.log.checkpoint import (
    Checkpoint,
    CheckpointError,
    open_checkpoint,
    parse_checkpoint,
)
from lethe.log.entries import EntryError, parse_leaf
from lethe.log.fetch import (
    CHECKPOINT,
    Fetch,
    LogError,
    LogUnreachableError,
    MissingFileError,
    fetch_from,
)
from lethe.log.note import NoteError, NoteVerifier, SignatureLine, read_note
from lethe.log.tiles import (
    TILE_HEIGHT,
    TILE_WIDTH,
    TileError,
    TileRef,
    decode_bundle,
    encode_bundle,
    node_reader,
    split_tile,
    tile_level,
)
from lethe.log.tree import EMPTY_ROOT, leaf_hash, root_of, tree_root

__all__ = [
    "Fetch",
    "LogError",
    "LogReport",
    "LogUnreachableError",
    "MissingFileError",
    "fetch_from",
    "mirror_log",
    "read_log",
    "succeeded",
    "verify_log",
]

ENTRIES = "tile/entries/"
Keep = Callable[[str, bytes], None]  # takes each file's path and bytes once it is checked


@dataclass(frozen=True, slots=True)
class LogReport:
    """What was checked: all `entries` and hash `tiles` below this signed head.

    `unverified` has the checkpoint's signature lines by keys that were not given: ignored.
    `first` is the first entry, None in an empty log.
    """

    origin: str
    size: int
    root: bytes
    entries: int
    tiles: int
    checkpoint: str
    unverified: tuple[SignatureLine, ...]
    first: bytes | None = None


def verify_log(fetch: Fetch, verifier: NoteVerifier) -> LogReport:
    """Read a whole log and return what was checked, in memory for one bundle at a time.

    Raises:
        LogError: The log is not what `verifier` signed; the message names the file.
        LogUnreachableError: The log could not be read, so nothing is known.
    """
    return _follow(fetch, verifier, lambda _path, _data: None)


def read_log(fetch: Fetch, verifier: NoteVerifier) -> tuple[LogReport, list[bytes]]:
    """Verify a log as `verify_log` does, and return all its entries too, in memory.

    Raises:
        LogError, LogUnreachableError: As `verify_log`.
    """
    leaves: list[bytes] = []

    def keep(path: str, data: bytes) -> None:
        if path.startswith(ENTRIES):
            leaves.extend(decode_bundle(data))

    return _follow(fetch, verifier, keep), leaves


def mirror_log(fetch: Fetch, verifier: NoteVerifier, directory: Path) -> LogReport:
    """Verify a log and make `directory` a copy of it that any static web server can serve.

    Nothing is written before everything is verified, and the checkpoint is replaced last:
    a crash leaves the mirror at its old size with some files more.

    Raises:
        LogError: The log does not verify, or does not extend what the mirror holds.
        LogUnreachableError: The log could not be read or the mirror not written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Inside the mirror, so that moving a file into place is an atomic rename.
        with TemporaryDirectory(prefix=".incoming-", dir=directory) as name:
            return _mirror(fetch, verifier, directory, Path(name))
    except OSError as error:
        raise LogUnreachableError(f"the mirror cannot be written: {error.strerror}") from None


def _mirror(fetch: Fetch, verifier: NoteVerifier, directory: Path, incoming: Path) -> LogReport:
    held = _held_checkpoint(directory, verifier)
    paths: list[str] = []

    def keep(path: str, data: bytes) -> None:
        target = incoming / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        paths.append(path)

    report = _follow(fetch, verifier, keep)
    if held is not None:
        _require_extension(held, report, fetch_from(incoming))
    keep(CHECKPOINT, report.checkpoint.encode())
    for path in paths[:-1]:
        _publish(incoming, directory, path)
    # A checkpoint on disk before its tiles would sign what a power cut then removes.
    for parent in {(directory / path).parent for path in paths[:-1]}:
        _sync_directory(parent)
    _publish(incoming, directory, CHECKPOINT)
    _sync_directory(directory)
    return report


def succeeded(report: LogReport) -> Checkpoint | None:
    """Return the last checkpoint of the log that this one says it succeeds, if it does.

    The old log's key signed it: compare that key, which the entry has too, with what you know.
    """
    try:
        leaf = parse_leaf(report.first or b"")
    except EntryError:
        return None
    if leaf.checkpoint is None:
        return None
    return parse_checkpoint(leaf.checkpoint.partition("\n\n")[0] + "\n")


def _follow(fetch: Fetch, verifier: NoteVerifier, keep: Keep) -> LogReport:
    note, checkpoint = _read_checkpoint(fetch, verifier)
    first: list[bytes] = []

    def see(path: str, data: bytes) -> None:
        if not first and path.startswith(ENTRIES):
            first.append(decode_bundle(data)[0])
        keep(path, data)

    root, tiles = _check_tree(fetch, checkpoint.size, see)
    if root != checkpoint.root:
        raise LogError(
            f"{CHECKPOINT}: its root is not that of the {checkpoint.size} entries served",
            path=CHECKPOINT,
        )
    size = checkpoint.size
    unverified = read_note(note, [verifier]).unverified
    return LogReport(
        checkpoint.origin, size, root, size, tiles, note, unverified, next(iter(first), None)
    )


def _read_checkpoint(fetch: Fetch, verifier: NoteVerifier) -> tuple[str, Checkpoint]:
    try:
        note = fetch(CHECKPOINT).decode()
        return note, open_checkpoint(note, verifier)
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


def _check_tree(fetch: Fetch, size: int, keep: Keep) -> tuple[bytes, int]:
    """Return the root of the entries and how many tiles agree with them."""
    tiles = 0
    edges: list[list[bytes]] = []  # the hashes in each level's partial tile
    level, below = 0, list[bytes]()  # below: the root of each full tile one level down
    while size >> TILE_HEIGHT * level:
        above: list[bytes] = []
        edge: list[bytes] = []
        for ref in tile_level(level, size):
            start = ref.index * TILE_WIDTH
            if level:
                hashes = below[start : start + ref.width]
            else:
                hashes = _read_leaves(fetch, TileRef(None, ref.index, ref.width), keep)
            _check_tile(fetch, ref, hashes, keep)
            tiles += 1
            if ref.width == TILE_WIDTH:
                above.append(root_of(hashes))
            else:
                edge = hashes
        edges.append(edge)
        below, level = above, level + 1
    return _root_of_edges(edges), tiles


def _root_of_edges(edges: list[list[bytes]]) -> bytes:
    """Fold the partial tiles, lowest first: each is the last leaf of the one above it."""
    root: list[bytes] = []
    for edge in edges:
        if edge or root:
            root = [root_of(edge + root)]
    return root[0] if root else EMPTY_ROOT


def _read_leaves(fetch: Fetch, ref: TileRef, keep: Keep) -> list[bytes]:
    entries = _read(fetch, ref, decode_bundle)
    keep(ref.path, encode_bundle(entries))
    return [leaf_hash(entry) for entry in entries]


def _check_tile(fetch: Fetch, ref: TileRef, expected: list[bytes], keep: Keep) -> None:
    hashes = _read(fetch, ref, split_tile)
    for position, (found, wanted) in enumerate(zip(hashes, expected, strict=True)):
        if found != wanted:
            what = "the tile below it" if ref.level else "the entry in its bundle"
            raise LogError(f"{ref.path}: hash {position} is not that of {what}", path=ref.path)
    keep(ref.path, b"".join(expected))


def _read(fetch: Fetch, ref: TileRef, split: Callable[[bytes], list[bytes]]) -> list[bytes]:
    """Fetch a tile or bundle and return its `ref.width` items."""
    served = ref
    try:
        try:
            data = fetch(ref.path)
        except MissingFileError:
            if ref.width == TILE_WIDTH:
                raise
            # A log may delete a partial tile once the full one exists (tlog-tiles).
            served = TileRef(ref.level, ref.index)
            data = fetch(served.path)
        items = split(data)
    except MissingFileError:
        raise MissingFileError(f"{ref.path} is missing", path=ref.path) from None
    except TileError as error:
        raise LogError(f"{served.path}: {error.detail}", path=served.path) from None
    if len(items) != served.width:
        raise LogError(
            f"{served.path} holds {len(items)} items, not {served.width}", path=served.path
        )
    return items[: ref.width]


def _held_checkpoint(directory: Path, verifier: NoteVerifier) -> Checkpoint | None:
    try:
        note = fetch_from(directory)(CHECKPOINT).decode()
        return open_checkpoint(note, verifier)
    except MissingFileError:
        return None
    except (NoteError, CheckpointError, UnicodeDecodeError):
        raise LogError(
            "the mirror holds another log's checkpoint: give an empty directory",
            path=CHECKPOINT,
        ) from None


def _require_extension(held: Checkpoint, report: LogReport, fetch: Fetch) -> None:
    """Refuse a log that forked: the mirror may hold the only proof of its earlier state."""
    if held.size > report.size:
        raise LogError(
            f"the log has {report.size} entries and the mirror {held.size}: it was rolled "
            "back, or an old copy is served; the mirror is kept as it was",
            path=CHECKPOINT,
        )
    read = node_reader(lambda ref: fetch(ref.path), report.size)
    if tree_root(held.size, read) != held.root:
        raise LogError(
            f"the log forked: its first {held.size} entries are not those the mirror "
            "holds; keep both checkpoints as proof",
            path=CHECKPOINT,
        )


def _publish(incoming: Path, directory: Path, path: str) -> None:
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    (incoming / path).replace(target)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
