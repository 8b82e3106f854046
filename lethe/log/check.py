"""Check a log's files against each other: all of them, or those that are new since a tree.

The new part of a tree joins the old one at its right edge: in each level, the hashes of the
tile that was not full. The log serves them, and they are trusted only because they lead to the
root of the old tree, which was checked before. This is a consistency proof made from tiles.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from lethe.log.fetch import Fetch, LogError, MissingFileError
from lethe.log.tiles import (
    TILE_HEIGHT,
    TILE_WIDTH,
    TileError,
    TileRef,
    decode_bundle,
    encode_bundle,
    split_tile,
    tile_level,
)
from lethe.log.tree import EMPTY_ROOT, leaf_hashes, root_of

Keep = Callable[[str, bytes], None]  # takes each file's path and bytes once it is checked

CONNECTIONS = 4
AHEAD = 8  # files in memory at once, of at most 17 MB each


@dataclass(frozen=True, slots=True)
class CheckedTree:
    """The root of the served entries, and their root at the older size.

    entries, tiles: how many were read and agree with each other.
    """

    root: bytes
    old_root: bytes
    entries: int
    tiles: int


def check_tree(
    fetch: Fetch, size: int, keep: Keep, old: int = 0, *, full: bool = True
) -> CheckedTree:
    """Read the tree of `size` entries and compute its root, and its root at size `old`.

    full: read everything. Otherwise files that were complete at `old` are skipped, and the new
    root is only as trustworthy as `old_root`: compare that with a root that you know.

    Raises LogError: a file is missing, malformed or inconsistent with the files below it;
    LogUnreachableError: the log could not be read.
    """
    start = 0 if full else old
    tiles, read = 0, 0
    edges: list[list[bytes]] = []  # the hashes in each level's partial tile
    old_edges: list[list[bytes]] = []  # likewise at size `old`
    below: list[bytes] = []  # the roots of the full tiles one level down, from `known` on
    with closing(_read_ahead(fetch, _files(start, size))) as files:
        for level in range(_levels(size)):
            known = start >> TILE_HEIGHT * level
            above: list[bytes] = []
            edge: list[bytes] = []
            old_edge: list[bytes] = []
            for ref in tile_level(level, size, start >> TILE_HEIGHT * (level + 1)):
                first = ref.index * TILE_WIDTH
                if level:
                    served = next(files)
                    rest = below[max(first - known, 0) : first + ref.width - known]
                    hashes = served[: max(known - first, 0)] + rest
                else:
                    entries = next(files)
                    keep(TileRef(None, ref.index, ref.width).path, encode_bundle(entries))
                    read += len(entries)
                    hashes = leaf_hashes(entries)
                    served = next(files)
                _require_same(ref, served, hashes)
                keep(ref.path, b"".join(hashes))
                tiles += 1
                if ref.index == old >> TILE_HEIGHT * (level + 1):
                    old_edge = hashes[: (old >> TILE_HEIGHT * level) % TILE_WIDTH]
                if ref.width == TILE_WIDTH:
                    above.append(root_of(hashes))
                else:
                    edge = hashes
            edges.append(edge)
            old_edges.append(old_edge)
            below = above
    return CheckedTree(_root_of_edges(edges), _root_of_edges(old_edges), read, tiles)


def _levels(size: int) -> int:
    return -(-size.bit_length() // TILE_HEIGHT)


def _files(start: int, size: int) -> Iterator[TileRef]:
    """Yield every bundle and tile of the tree that was not complete at `start`, in order."""
    for level in range(_levels(size)):
        for ref in tile_level(level, size, start >> TILE_HEIGHT * (level + 1)):
            if level == 0:
                yield TileRef(None, ref.index, ref.width)
            yield ref


def _root_of_edges(edges: list[list[bytes]]) -> bytes:
    """Fold the partial tiles, lowest first: each one's root is the last leaf of the next."""
    root: list[bytes] = []
    for edge in edges:
        if edge or root:
            root = [root_of(edge + root)]
    return root[0] if root else EMPTY_ROOT


def _require_same(ref: TileRef, served: list[bytes], computed: list[bytes]) -> None:
    for position, (found, wanted) in enumerate(zip(served, computed, strict=True)):
        if found != wanted:
            what = "the tile below it" if ref.level else "the entry in its bundle"
            raise LogError(f"{ref.path}: hash {position} is not that of {what}", path=ref.path)


def _read_ahead(fetch: Fetch, refs: Iterable[TileRef]) -> Generator[list[bytes]]:
    """Yield the items of each file in order, and prefetch the next ones."""
    pending: deque[Future[list[bytes]]] = deque()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        try:
            for ref in refs:
                pending.append(pool.submit(_read, fetch, ref))
                if len(pending) == AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _read(fetch: Fetch, ref: TileRef) -> list[bytes]:
    """Fetch a tile or bundle and return its `ref.width` items."""
    split = decode_bundle if ref.level is None else split_tile
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
