"""The part that needs FAISS: an HNSW index's links, and the file for `faiss.read_index`."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers import libraries
from workers.errors import MissingLibraryError, RefusedError
from workers.training.vectors.index import L2, Graph, VectorIndex, VectorOptions, Vectors

try:
    import faiss as _faiss
except ModuleNotFoundError:
    raise MissingLibraryError(f"FAISS is missing: {libraries.with_extra('vectors')}") from None

faiss: Any = _faiss  # its type stubs are for another version

MOST_BYTES = 1 << 30  # of a file whose centroids are read: it is read whole


def environment() -> dict[str, str]:
    """Return what must agree for equal links: version, processor, threads."""
    processor = f"{platform.machine()} {faiss.get_compile_options().strip()}"
    return {"faiss-cpu": faiss.__version__, "processor": processor, "threads": "1"}


def link(options: VectorOptions, vectors: Vectors) -> Graph:
    """Return the links of rows (n, columns), built in their order by one thread."""
    index = _hnsw(options)
    index.hnsw.rng = faiss.RandomGenerator(options.seed)
    with _one_thread():
        index.add(np.ascontiguousarray(vectors))
    graph = Graph(
        levels=faiss.vector_to_array(index.hnsw.levels),
        neighbours=faiss.vector_to_array(index.hnsw.neighbors),
        entry=int(index.hnsw.entry_point),
        top=int(index.hnsw.max_level),
    )
    assert np.array_equal(_offsets(index, graph), faiss.vector_to_array(index.hnsw.offsets))
    return graph


def to_faiss(index: VectorIndex) -> Any:
    """Return the FAISS index; its labels are the places of the rows."""
    options, vectors = index.options, np.ascontiguousarray(index.vectors)
    if index.graph is not None:
        made = _hnsw(options)
        hnsw = made.hnsw
        faiss.copy_array_to_vector(index.graph.levels, hnsw.levels)
        faiss.copy_array_to_vector(_offsets(made, index.graph), hnsw.offsets)
        faiss.copy_array_to_vector(index.graph.neighbours, hnsw.neighbors)
        hnsw.entry_point, hnsw.max_level = index.graph.entry, index.graph.top
        made.storage.add(vectors)
        made.ntotal = len(vectors)
        return made
    if index.sizes is None:
        made = faiss.IndexFlat(options.columns, _metric(options))
        made.add(vectors)
        return made
    coarse = faiss.IndexFlat(options.columns, _metric(options))
    coarse.add(options.centroids)
    lists = len(index.sizes)
    made = faiss.IndexIVFFlat(coarse, options.columns, lists, _metric(options))
    made.is_trained, made.nprobe = True, min(options.probes, lists)
    start = 0
    for place, size in enumerate(index.sizes.tolist()):
        labels = np.arange(start, start + size, dtype=np.int64)
        codes = vectors[start : start + size].view(np.uint8)
        made.invlists.add_entries(place, size, faiss.swig_ptr(labels), faiss.swig_ptr(codes))
        start += size
    made.ntotal = len(vectors)
    return made


def to_bytes(index: VectorIndex) -> bytes:
    """Return the file that an unmodified `faiss.read_index` reads."""
    return bytes(faiss.serialize_index(to_faiss(index)).tobytes())


def search(
    index: VectorIndex, queries: Vectors, count: int
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """Return for each query (q, columns) its nearest `count` rows, best first.

    Returns distances (q, count), squared for l2, and record ids, fewer if the lists or links
    followed have fewer.
    """
    return _searched(to_faiss(index), index, queries, count)


def exhaustive(
    index: VectorIndex, queries: Vectors, count: int
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """Return the result of `search`, comparing each query with every row."""
    whole = faiss.IndexFlat(index.options.columns, _metric(index.options))
    whole.add(np.ascontiguousarray(index.vectors))
    return _searched(whole, index, queries, count)


def _searched(
    made: Any, index: VectorIndex, queries: Vectors, count: int
) -> tuple[NDArray[np.float32], list[list[str]]]:
    distances, labels = made.search(np.ascontiguousarray(queries, np.float32), count)
    found = [[index.records[one] for one in row if one >= 0] for row in labels.tolist()]
    return distances, found


def centroids_of(path: Path) -> Vectors:
    """Return the centroids (k, columns) of an inverted file that FAISS wrote.

    FAISS believes the lengths that a file states, up to all memory that there is: the file is
    of the operator who registers the model, and is read on that operator's machine.

    Raises RefusedError for a file that is no index, is too large, or has no centroids.
    """
    if path.stat().st_size > MOST_BYTES:
        raise RefusedError(
            f"{path.name}: has more than {MOST_BYTES >> 20} MiB: save its centroids as a .npy "
            "matrix"
        )
    try:
        whole = faiss.read_index(str(path))  # owns what the next lines point to
        index = faiss.extract_index_ivf(whole)
        found = index.quantizer.reconstruct_n(0, index.quantizer.ntotal)
    except (RuntimeError, AttributeError, MemoryError):
        raise RefusedError(
            f"{path.name}: neither a .npy matrix nor an IVF index that FAISS wrote"
        ) from None
    return np.asarray(found, dtype=np.float32)


def _metric(options: VectorOptions) -> int:
    return int(faiss.METRIC_L2 if options.metric == L2 else faiss.METRIC_INNER_PRODUCT)


def _hnsw(options: VectorOptions) -> Any:
    made = faiss.IndexHNSWFlat(options.columns, options.m, _metric(options))
    made.hnsw.efConstruction, made.hnsw.efSearch = options.construction, options.search
    return made


def _offsets(index: Any, graph: Graph) -> Any:
    """Return where each row's links begin: a function of the levels up to it."""
    size = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level).astype(np.uint64)
    ends = np.cumsum(size[graph.levels], dtype=np.uint64)
    return np.concatenate([np.zeros(1, np.uint64), ends])


@contextmanager
def _one_thread() -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
