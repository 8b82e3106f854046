"""Vector indexes: built from all rows, or without some.

The published file contains the rows themselves, so an erasure removes them from it. Whatever
happened before, the bytes are those of an index built from the remaining rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lethe import canonical
from models import Model, ModelVersion
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
from workers.families.recipe.rows import (
    TableBlock,
    all_digests,
    departure,
    digest_of_rows,
    stored,
    table,
)
from workers.families.recipe.update import Fitting
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits
from workers.training.vectors import files
from workers.training.vectors.build import build, drop
from workers.training.vectors.index import HNSW, VectorOptions
from workers.updates.draft import sha256_hex
from workers.updates.update import Encoded, Update, UpdateResult, split

METHOD, VERSION = "vectors-drop", "1"
STATE = "vectors-state/1"


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


def forget(job: JobContext, before: ModelVersion, members: Sequence[BatchMember]) -> Update:
    """Remove the members' records from the index. Raises RefusedError."""
    found = departure(job, members)
    leaving = sorted(record for member in members for record in member.salts)
    with job.services.reading() as session:
        file = job.services.artifacts.get(session, before.head_id)
        gone = _blocks_of(stored(job.services, session, job.lease.model_id), leaving)
    try:
        new = files.encode(drop(files.decode(file), leaving))
    except ArtifactError:  # the stored file is another model's; the judge builds from the rows
        new = built(job.model, table(found.retained, found.salts, job.model))
    result = _result(job.model, new, all_digests(found.retained, found.salts))
    erased = Erased(gone, {record: found.salts[record] for record in gone.records})
    return Update(result, found.rest, before=erased.encode(), rows_gone=found.gone)


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


def _blocks_of(blocks: Mapping[int, TableBlock], records: Sequence[str]) -> TableBlock:
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


def _first(model: Model, rows: FitRows, most: Limits) -> bytes:
    """Build a graph twice, to compare. Raises RefusedError if the two differ."""
    file = built(model, rows)
    if options_of(model).index == HNSW and built(model, rows) != file:
        raise RefusedError(
            "two builds of the graph give different bytes, so that nobody could compare a "
            "rebuild with them: register an index of the kind flat or ivf"
        )
    return file


def _result(model: Model, file: bytes, digests: Mapping[str, bytes]) -> UpdateResult:
    options, data = options_of(model), digest_of_rows(digests.values())
    registered = sha256_hex(canonical.encode(model.config))
    parameters = {
        "data": "rows",
        "dimensions": str(options.columns),
        "index": options.index,
        "metric": options.metric,
    }
    if options.index == HNSW:
        from workers.training.vectors.faiss_file import environment

        parameters |= {"seed": str(options.seed), **environment()}
    state = canonical.encode({"data": data, "index": registered, "kind": STATE})
    return UpdateResult(
        encoded=Encoded(file, state, data),
        method=METHOD,
        method_version=VERSION,
        claim=claim_of(options),
        parameters=parameters,
    )


FITTING = Fitting(lambda model, rows, most: built(model, rows), _first, _result)
