"""The published file of an index: arrays and options in one safetensors file."""

from typing import Any

import numpy as np

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.training.vectors.index import HNSW, IVF, Graph, VectorIndex, VectorOptions

KIND = "vectors/1"
MOST_LINKS = 256  # of a row on a level, as in `app.schemas.families.vectors`
UNREADABLE = "these bytes are not a vector index of Lethe: fetch it again"


def encode(index: VectorIndex) -> bytes:
    """Return the file of an index: a pure function of it."""
    options = index.options
    # Each id is on its own line, also the first: searching for an id finds both its ends.
    ids = "".join(f"\n{record}" for record in index.records) + "\n"
    arrays: dict[str, Any] = {
        "ids": np.frombuffer(ids.encode(), dtype=np.uint8),
        "vectors": index.vectors,
    }
    metadata: dict[str, object] = {
        "columns": options.columns,
        "index": options.index,
        "kind": KIND,
        "metric": options.metric,
    }
    if index.sizes is not None:
        arrays |= {"centroids": options.centroids, "sizes": index.sizes}
        metadata |= {"probes": options.probes}
    if (graph := index.graph) is not None:
        arrays |= {"levels": graph.levels, "neighbours": graph.neighbours}
        metadata |= {
            "ef_construction": options.construction,
            "ef_search": options.search,
            "entry": graph.entry,
            "m": options.m,
            "seed": options.seed,
            "top": graph.top,
        }
    return encode_tensors(arrays, metadata)


def decode(data: bytes) -> VectorIndex:
    """Return the index that `encode` wrote. Raises ArtifactError for any other bytes."""
    arrays, metadata = decode_tensors(data)
    try:
        index = _index(arrays, metadata)
        if _consistent(index) and encode(index) == data:
            return index
    except (KeyError, IndexError, TypeError, ValueError):
        pass
    raise ArtifactError(UNREADABLE)


def id_table(index: VectorIndex) -> bytes:
    """Return the record ids as text: line i, from 0, is the record of FAISS label i."""
    return "".join(f"{record}\n" for record in index.records).encode()


def _index(arrays: dict[str, Any], metadata: dict[str, Any]) -> VectorIndex:
    records = arrays["ids"].tobytes().decode().split("\n")[1:-1]
    columns = int(metadata["columns"])
    none = np.empty((0, columns), dtype=np.float32)
    options = VectorOptions(
        index=metadata["index"],
        metric=metadata["metric"],
        columns=columns,
        probes=metadata.get("probes", 1),
        centroids=arrays.get("centroids", none),
        m=metadata.get("m", 0),
        construction=metadata.get("ef_construction", 0),
        search=metadata.get("ef_search", 0),
        seed=metadata.get("seed", 0),
    )
    graph = None
    if options.index == HNSW:
        entry, top = metadata["entry"], metadata["top"]
        graph = Graph(arrays["levels"], arrays["neighbours"], entry, top)
    sizes = arrays["sizes"] if options.index == IVF else None
    return VectorIndex(options, records, arrays["vectors"], sizes, graph)


def _consistent(index: VectorIndex) -> bool:
    """Return whether the arrays fit each other: FAISS would not check."""
    count, sizes, graph = len(index.records), index.sizes, index.graph
    if index.vectors.shape != (count, index.options.columns):
        return False
    if index.vectors.dtype != np.float32 or index.options.centroids.dtype != np.float32:
        return False
    if sizes is not None:
        shape = (len(sizes), index.options.columns)
        fits = index.options.centroids.shape == shape and int(sizes.sum()) == count
        return fits and bool((sizes >= 0).all())
    if graph is None:
        return True
    levels, links = graph.levels, graph.neighbours
    if levels.shape != (count,) or levels.dtype != np.int32 or links.dtype != np.int32:
        return False
    if count == 0:
        return graph.entry == -1 and not links.size
    m = index.options.m
    if not isinstance(m, int) or not 2 <= m <= MOST_LINKS:  # FAISS never returns from 0
        return False
    # FAISS: level 0 has 2 M links, each further one M.
    wanted = int(m * (levels.astype(np.int64) + 1).sum())
    return (
        bool((levels >= 1).all() and levels.max() == graph.top + 1)
        and links.shape == (wanted,)
        and bool((links >= -1).all() and (links < count).all())
        and 0 <= graph.entry < count
        and int(levels[graph.entry]) == graph.top + 1
    )
