"""Whole logs as files, made from the recursive definition, to serve and to damage."""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.fetch import Fetch, MissingFileError
from lethe.log.note import NoteSigner
from lethe.log.tiles import TILE_HEIGHT, TILE_WIDTH, encode_bundle, entries_path, tile_level
from lethe.log.tree import NodeReader
from tests.lethe.log import oracle

SIGNER = NoteSigner("log.example", Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))
VERIFIER = SIGNER.verifier
STRANGER = NoteSigner("log.example", Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32))


def tile_bytes(level: int, index: int, width: int, read: NodeReader) -> bytes:
    """Return a tile's `width` hashes, concatenated."""
    start = index * TILE_WIDTH
    return b"".join(read(TILE_HEIGHT * level, start + i) for i in range(width))


def log_files(entries: Sequence[bytes], signer: NoteSigner = SIGNER) -> dict[str, bytes]:
    """Return every file that a log of `entries` serves, by path."""
    size = len(entries)
    read = oracle.StrictReader(entries)
    checkpoint = Checkpoint(signer.name, size, oracle.mth(tuple(entries)))
    files = {"checkpoint": sign_checkpoint(checkpoint, signer).encode()}
    level = 0
    while size >> 8 * level:
        for ref in tile_level(level, size):
            files[ref.path] = tile_bytes(level, ref.index, ref.width, read)
            if level == 0:
                start = ref.index * 256
                bundle = encode_bundle(entries[start : start + ref.width])
                files[entries_path(ref.index, ref.width)] = bundle
        level += 1
    return files


def fetch_files(files: dict[str, bytes]) -> Fetch:
    """Return a reader of files in memory."""

    def fetch(path: str) -> bytes:
        if path not in files:
            raise MissingFileError(f"{path} is missing", path=path)
        return files[path]

    return fetch
