"""The log as static files: hash tiles and entry bundles (C2SP tlog-tiles)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from lethe.errors import LetheError
from lethe.log.tree import HASH_SIZE

TILE_HEIGHT = 8
TILE_WIDTH = 256  # 2**TILE_HEIGHT hashes
MAX_LEVEL = 63
MAX_INDEX = 2**55 - 1  # the last tile of level 0 in a tree of 2**63 - 1 leaves
MAX_ENTRY = 2**16 - 1  # bytes; the length prefix is a uint16
MAX_BUNDLE = TILE_WIDTH * (2 + MAX_ENTRY)  # bytes; no file of a log is larger


class TileError(LetheError):
    """A path, tile or bundle in another format, or a tile that is not in the tree."""

    slug, title, status = "bad-tile", "Not a tile of this log", 404


@dataclass(frozen=True, slots=True)
class TileRef:
    """A tile, or at level None an entry bundle; `width` is 256 when full."""

    level: int | None
    index: int
    width: int = TILE_WIDTH

    @property
    def path(self) -> str:
        """The path under the log's prefix. Raises TileError if it has none."""
        name = "entries" if self.level is None else str(self.level)
        if not 0 <= (self.level or 0) <= MAX_LEVEL or not 0 <= self.index <= MAX_INDEX:
            raise TileError("a tile's level is at most 63 and its index below 2**55")
        if not 1 <= self.width <= TILE_WIDTH:
            raise TileError("a tile holds 1 to 256 hashes: empty tiles are never served")
        digits = str(self.index)
        groups = f"{digits:0>{-(-len(digits) // 3) * 3}}"
        parts = [groups[i : i + 3] for i in range(0, len(groups), 3)]
        # 1234067 -> x001/x234/067: no directory has the name of a file
        number = "/".join([f"x{part}" for part in parts[:-1]] + parts[-1:])
        suffix = "" if self.width == TILE_WIDTH else f".p/{self.width}"
        return f"tile/{name}/{number}{suffix}"


_PATH = re.compile(
    r"tile/(?:(?P<level>[0-9]{1,2})|entries)"
    r"/(?P<index>(?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/(?P<width>[0-9]{1,3}))?"
)


def entries_path(index: int, width: int = TILE_WIDTH) -> str:
    """Return "tile/entries/<index>[.p/<width>]". Raises TileError if out of range."""
    return TileRef(None, index, width).path


def parse_tile_path(path: str) -> TileRef:
    """Parse a path as in `TileRef.path`.

    Raises TileError for any other spelling, so that each file has a single address.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise TileError("a tile's address is tile/<level>/<index>[.p/<width>]")
    ref = TileRef(
        None if match["level"] is None else int(match["level"]),
        int(match["index"].replace("x", "").replace("/", "")),
        TILE_WIDTH if match["width"] is None else int(match["width"]),
    )
    if ref.path != path:
        raise TileError("a tile's address has one spelling: no spare zeros, no .p/256")
    return ref


def tile_width(level: int, index: int, size: int) -> int:
    """Return how many hashes the tile has in a tree of `size` leaves; 0 if there is none."""
    return max(0, min(TILE_WIDTH, (size >> TILE_HEIGHT * level) - index * TILE_WIDTH))


def tile_level(level: int, size: int, first: int = 0) -> Iterator[TileRef]:
    """Yield the tiles of one level in a tree of `size` leaves, from index `first` on."""
    for index in count(first):
        width = tile_width(level, index, size)
        if not width:
            return
        yield TileRef(level, index, width)


def split_tile(data: bytes) -> list[bytes]:
    """Return the hashes of a tile. Raises TileError unless it is 1 to 256 whole hashes."""
    if len(data) % HASH_SIZE or not HASH_SIZE <= len(data) <= TILE_WIDTH * HASH_SIZE:
        raise TileError("a tile is 1 to 256 whole hashes of 32 bytes")
    return [data[i : i + HASH_SIZE] for i in range(0, len(data), HASH_SIZE)]


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """Return entries as big-endian uint16 length || bytes, concatenated.

    Raises TileError unless there are 1 to 256 entries of at most 65,535 bytes.
    """
    if not 1 <= len(entries) <= TILE_WIDTH:
        raise TileError("a bundle holds 1 to 256 entries")
    if any(len(entry) > MAX_ENTRY for entry in entries):
        raise TileError(f"an entry has at most {MAX_ENTRY} bytes")
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def decode_bundle(data: bytes) -> list[bytes]:
    """Return the entries of a bundle. Raises TileError: cut short, or not 1 to 256 entries."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data) or len(entries) == TILE_WIDTH:
            raise TileError("a bundle is 1 to 256 whole entries, each after its length")
        entries.append(data[at + 2 : end])
        at = end
    if not entries:
        raise TileError("a bundle is never empty")
    return entries
