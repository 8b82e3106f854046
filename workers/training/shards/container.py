"""A model's shards in one safetensors file, and the manifest of their digests.

The tensor `shard-000` has the bytes of the first shard's own file, and so on. The metadata is
the manifest: how the answers are aggregated, and for each shard the SHA-256 of its file and
of its rows. The log has the manifest's digest with each version.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lethe import canonical
from workers.arrays import MALFORMED, decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.training.recipes.fit import FitRows

KIND = "shards/1"


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """Hex SHA-256 of a shard's file, and over the salted digests of its rows, sorted."""

    file: str
    rows: str


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """A version's manifest of its shards. aggregate: mean, vote or apart."""

    aggregate: str
    shards: tuple[ShardEntry, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The manifest as JSON."""
        shards = [{"file": one.file, "rows": one.rows} for one in self.shards]
        return {"aggregate": self.aggregate, "kind": KIND, "shards": shards}

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, RFC 8785."""
        return canonical.encode(self.document)

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the bytes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def parse(cls, document: Any) -> "ShardManifest":
        """Return the manifest of a document. Raises ArtifactError for any other document."""
        try:
            shards = tuple(ShardEntry(one["file"], one["rows"]) for one in document["shards"])
            found = cls(document["aggregate"], shards)
            texts = [
                found.aggregate,
                *(text for one in shards for text in (one.file, one.rows)),
            ]
            if all(type(text) is str for text in texts) and found.document == document:
                return found
        except MALFORMED:
            pass
        raise ArtifactError(
            "this is not a manifest of shards, which is canonical JSON with "
            "aggregate, kind and shards: fetch the file again"
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "ShardManifest":
        """Return the manifest that `to_bytes` spelled. Raises ArtifactError."""
        try:
            document = canonical.decode(data)  # which proves that it is canonical
        except canonical.NotCanonicalError:
            raise ArtifactError(
                "this is not a manifest of shards, which is canonical JSON with "
                "aggregate, kind and shards: fetch the file again"
            ) from None
        return cls.parse(document)


def manifest_of(aggregate: str, files: Sequence[bytes], rows: Sequence[str]) -> ShardManifest:
    """Return the manifest of shards by their files and the digests of their rows."""
    entries = (
        ShardEntry(hashlib.sha256(file).hexdigest(), digest)
        for file, digest in zip(files, rows, strict=True)
    )
    return ShardManifest(aggregate, tuple(entries))


def encode(manifest: ShardManifest, files: Sequence[bytes]) -> bytes:
    """Return the file of some shards: a pure function."""
    arrays = {
        f"shard-{place:03}": np.frombuffer(file, dtype=np.uint8)
        for place, file in enumerate(files)
    }
    return encode_tensors(arrays, manifest.document)


def decode(data: bytes) -> tuple[ShardManifest, list[bytes]]:
    """Return the manifest and each shard's file, whose digests are not checked here.

    Raises ArtifactError for bytes that `encode` would not write.
    """
    arrays, document = decode_tensors(data)
    manifest = ShardManifest.parse(document)
    names = [f"shard-{place:03}" for place in range(len(manifest.shards))]
    if sorted(arrays) != names or any(one.dtype != np.uint8 for one in arrays.values()):
        raise ArtifactError(
            "this file does not hold one tensor of bytes, named shard-000 and on, "
            "for each shard of its manifest: fetch it again"
        )
    return manifest, [arrays[name].tobytes() for name in names]


def shard_of(key: bytes, name: str, shards: int) -> int:
    """Return the shard, 0 to shards - 1, of a name: a person's or a record's.

    The remainder of 64 bits of HMAC-SHA256: of 256, none is likelier by more than 2^-56.
    """
    digest = hmac.new(key, name.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") % shards


class Fitter(Protocol):
    """Makes the model file of a table of rows: a pure function of them.

    It has limits, and raises RefusedError if it declines or exceeds them; the message quotes
    no row.
    """

    @property
    def name(self) -> str:
        """The name in certificates."""

    def environment(self) -> dict[str, str]:
        """Return what must agree for equal bytes: versions, processor."""

    def fit(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the model file of each table, also of one without rows."""

    def try_twice(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the files if two runs agree on their bytes."""
