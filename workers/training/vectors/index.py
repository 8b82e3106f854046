"""A vector index and its registered options."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError

Vectors = NDArray[np.float32]
FLAT, IVF, HNSW = "flat", "ivf", "hnsw"
L2, INNER_PRODUCT = "l2", "inner-product"


@dataclass(frozen=True, slots=True, eq=False)
class VectorOptions:
    """Everything an index depends on, apart from its rows.

    columns: width of a vector. probes: lists that a search of an inverted file visits;
    centroids (k, columns) are for inverted files. m, construction, search and seed are for a
    graph: FAISS's M, efConstruction, efSearch and the seed of the levels.
    """

    index: str
    metric: str
    columns: int
    probes: int
    centroids: Vectors
    m: int
    construction: int
    search: int
    seed: int

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> "VectorOptions":
        """Return the options of a registered configuration. Raises RefusedError."""
        try:
            known = config["vectors"]
            columns = int(config["columns"])
            packed = base64.b64decode(known["centroids"], validate=True)
            return cls(
                index=str(known["index"]),
                metric=str(known["metric"]),
                columns=columns,
                probes=int(known["probes"]),
                centroids=np.frombuffer(packed, "<f4").reshape(-1, columns).astype(np.float32),
                m=int(known["m"]),
                construction=int(known["ef_construction"]),
                search=int(known["ef_search"]),
                seed=int(known["seed"]),
            )
        except (KeyError, TypeError, ValueError):
            raise RefusedError(
                "the index in the model's configuration cannot be read: register the "
                "model again"
            ) from None


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Links of an HNSW index as FAISS has them: levels (n,), neighbours, entry point, top."""

    levels: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    entry: int
    top: int


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndex:
    """records[i] is the id of vectors[i], of (n, columns).

    sizes (k,): rows of each list of an inverted file, whose rows come list after list. graph:
    for an HNSW index.
    """

    options: VectorOptions
    records: list[str]
    vectors: Vectors
    sizes: NDArray[np.int64] | None = None
    graph: Graph | None = None
