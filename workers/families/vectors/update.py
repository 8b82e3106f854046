"""An index, as its options and rows determine it, and the erased rows that its judge seeks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models import Model
from workers.arrays import decode_tensors, encode_tensors
from workers.families.recipe.rows import TableBlock
from workers.training.recipes.fit import FitRows
from workers.training.vectors import files
from workers.training.vectors.build import build
from workers.training.vectors.index import HNSW, VectorOptions
from workers.updates.update import split


def options_of(model: Model) -> VectorOptions:
    """Return everything that determines a model's index, except its rows.

    Raises RefusedError.
    """
    return VectorOptions.parse(model.config)


def claim_of(options: VectorOptions) -> str:
    """Return the guarantee class: a graph's links are rebuilt, other indexes drop the rows."""
    return "exact-retrained" if options.index == HNSW else "exact"


def built(model: Model, rows: FitRows) -> bytes:
    """Return the file of the index of rows, which are in the order of their commitments."""
    vectors = rows.features.astype(np.float32)
    return files.encode(build(options_of(model), rows.records, vectors))


@dataclass(frozen=True, slots=True, eq=False)
class Erased:
    """The rows that an update erased and their salts: sealed until the last certificate."""

    block: TableBlock
    salts: Mapping[str, bytes]

    def encode(self) -> bytes:
        """Return the bytes that the vault seals."""
        salts = b"".join(self.salts[record] for record in self.block.records)
        arrays = {
            "salts": np.frombuffer(salts, np.uint8).reshape(-1, 32),
            "vectors": self.block.features,
        }
        return encode_tensors(arrays, {"records": self.block.records})

    @classmethod
    def decode(cls, data: bytes) -> "Erased":
        """Decode the bytes of `encode`. Raises ArtifactError for other bytes."""
        arrays, metadata = decode_tensors(data)
        records, vectors = metadata["records"], arrays["vectors"]
        salts = dict(zip(records, split(arrays["salts"]), strict=True))
        return cls(TableBlock(records, vectors, np.zeros(len(records))), salts)

    def digests(self) -> list[str]:
        """Return the hex digests of the rows, sorted, as `Draft.rows_gone` has them."""
        return sorted(one.hex() for one in self.block.digests(self.salts).values())


def rows_of(blocks: Mapping[int, TableBlock], records: Sequence[str]) -> TableBlock:
    """Return the rows of some records as one block, in the order of the blocks."""
    wanted = set(records)
    parts = [
        (record, features)
        for block in blocks.values()
        for record, features in zip(block.records, block.features, strict=True)
        if record in wanted
    ]
    names, vectors = [record for record, _ in parts], np.array([row for _, row in parts])
    return TableBlock(names, vectors, np.zeros(len(parts)))
