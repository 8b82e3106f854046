"""The published file of an index: arrays and options in one safetensors file."""

from math import exp, log
from typing import Any

import numpy as np

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.training.vectors.index import (
    FLAT,
    HNSW,
    INNER_PRODUCT,
    IVF,
    L2,
    Graph,
    VectorIndex,
    VectorOptions,
)

KIND = "vectors/1"
# The least and the most of each option, as in `app.schemas.families.vectors`: FAISS takes
# numbers of 32 bits, and never returns from 0 links.
COLUMNS = (1, 10_000)
OF_LISTS = {"probes": (1, 65_536)}
OF_GRAPH = {"m": (2, 256), "construction": (1, 10_000), "search": (1, 10_000)}
SEEDS = (0, 2**31 - 1)
LEAST_LIKELY = 1e-9  # a level that is drawn less often, FAISS does not have
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
    except (KeyError, IndexError, OverflowError, TypeError, ValueError):
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


def most_levels(m: int) -> int:
    """Return how many levels a row of FAISS's graph may have, `HNSW::set_default_probas`."""
    scale, level = 1 / log(m), 0
    while exp(-level / scale) * (1 - exp(-1 / scale)) >= LEAST_LIKELY:
        level += 1
    return level


def _consistent(index: VectorIndex) -> bool:
    """Return whether options and arrays are FAISS's and fit each other: it would not check."""
    options, count, sizes = index.options, len(index.records), index.sizes
    if options.index not in (FLAT, IVF, HNSW) or options.metric not in (L2, INNER_PRODUCT):
        return False
    if not _within(options.columns, COLUMNS):
        return False
    if index.vectors.shape != (count, options.columns) or index.vectors.dtype != np.float32:
        return False
    if sizes is not None:
        shape = (len(sizes), options.columns)
        fits = options.centroids.shape == shape and options.centroids.dtype == np.float32
        # Each by itself: a sum of larger ones could overflow to the right one.
        fits &= sizes.dtype == np.int64 and bool(((sizes >= 0) & (sizes <= count)).all())
        fits &= all(_within(getattr(options, name), of) for name, of in OF_LISTS.items())
        return fits and len(sizes) > 0 and int(sizes.sum()) == count
    return index.graph is None or _is_graph(index.graph, options, count)


def _within(value: Any, bounds: tuple[int, int]) -> bool:
    return type(value) is int and bounds[0] <= value <= bounds[1]


def _is_graph(graph: Graph, options: VectorOptions, count: int) -> bool:
    """Return whether every link of a graph of `count` rows can be followed."""
    levels, links, m = graph.levels, graph.neighbours, options.m
    if not all(_within(getattr(options, name), of) for name, of in OF_GRAPH.items()):
        return False
    if not _within(options.seed, SEEDS):
        return False
    if type(graph.entry) is not int or type(graph.top) is not int:
        return False
    if levels.shape != (count,) or levels.dtype != np.int32 or links.dtype != np.int32:
        return False
    if count == 0:
        return (graph.entry, graph.top) == (-1, -1) and links.shape == (0,)
    if not 0 <= graph.entry < count:
        return False
    # FAISS: level 0 has 2 M links, each further one M.
    wide = levels.astype(np.int64)
    ends = np.cumsum(m * (wide + 1))
    fits = levels.min() >= 1 and levels.max() == levels[graph.entry] == graph.top + 1
    if not fits or graph.top + 1 > most_levels(m) or links.shape != (int(ends[-1]),):
        return False
    if links.min() < -1 or links.max() >= count:
        return False
    # A row has no links on a level above its own: FAISS would read what follows its last.
    for level in range(1, graph.top + 1):
        own = np.flatnonzero(wide > level)
        at = (ends - m * (wide - level))[own, None] + np.arange(m)
        found = links[at]
        if (wide[found[found >= 0]] <= level).any():
            return False
    return True
