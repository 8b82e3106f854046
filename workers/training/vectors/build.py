"""A vector index as a function of its options and the set of its rows.

Rows are in the order of their records' commitments; those of an inverted file by list first.
So dropping rows gives the index of the others, whatever the index held before.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from workers.errors import ArtifactError
from workers.training.vectors.index import HNSW, IVF, L2, VectorIndex, VectorOptions, Vectors

BLOCK = 1 << 22  # numbers compared with centroids at a time


def drop(index: VectorIndex, records: Collection[str]) -> VectorIndex:
    """Return the index of the other rows.

    Raises ArtifactError for a record that is not in it.
    """
    leaving = set(records)
    keep = np.array([record not in leaving for record in index.records], dtype=np.bool_)
    if len(keep) - int(keep.sum()) != len(leaving):
        raise ArtifactError("a record to drop is not in the index")
    rest = [record for record in index.records if record not in leaving]
    vectors = index.vectors[keep]
    if index.sizes is None:
        return build(index.options, rest, vectors)
    lists = np.repeat(np.arange(len(index.sizes)), index.sizes)[keep]
    sizes = np.bincount(lists, minlength=len(index.sizes)).astype(np.int64)
    return replace(index, records=rest, vectors=vectors, sizes=sizes)


def build(options: VectorOptions, records: Sequence[str], vectors: Vectors) -> VectorIndex:
    """Return the index of rows in the order of their commitments; vectors (n, columns)."""
    names = list(records)
    if options.index == IVF:
        lists = nearest(options, vectors)
        order = np.argsort(lists, kind="stable")
        sizes = np.bincount(lists, minlength=len(options.centroids)).astype(np.int64)
        names = [names[place] for place in order.tolist()]
        return VectorIndex(options, names, vectors[order], sizes=sizes)
    if options.index == HNSW:
        from workers.training.vectors.faiss_file import link  # FAISS

        return VectorIndex(options, names, vectors, graph=link(options, vectors))
    return VectorIndex(options, names, vectors)


def nearest(options: VectorOptions, vectors: Vectors) -> NDArray[np.int64]:
    """Return for each row (n, columns) the position of its centroid; ties go to the first.

    In float64, column by column: unlike a matrix product's, the bits depend neither on the
    processor nor on the other rows.
    """
    found = np.zeros(len(vectors), dtype=np.int64)
    centroids = options.centroids.astype(np.float64)
    step = max(1, BLOCK // max(1, len(centroids)))
    for start in range(0, len(vectors), step):
        rows = vectors[start : start + step].astype(np.float64)
        total = np.zeros((len(rows), len(centroids)))
        for column in range(options.columns):
            left, right = rows[:, column, None], centroids[None, :, column]
            if options.metric == L2:
                total += np.square(left - right)
            else:
                total -= left * right
        found[start : start + step] = total.argmin(axis=1)
    return found
