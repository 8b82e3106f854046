"""Retrieval quality: recall against exhaustive search, and rows found by their own vectors."""

import numpy as np

from workers.errors import RefusedError
from workers.training.vectors.faiss_file import exhaustive, search
from workers.training.vectors.index import VectorIndex, Vectors

NEIGHBOURS = 10
MOST = 1000  # queries: an exhaustive search of a million rows takes seconds


def recall(index: VectorIndex, queries: Vectors) -> tuple[int, float]:
    """Return k, and the share of the k nearest rows of queries (q, columns) that is found.

    k is 10, or as many as there are rows. Raises RefusedError for an index without rows.
    """
    count = min(NEIGHBOURS, len(index.records))
    if not count:
        raise RefusedError("no row is left in this index: it finds nothing")
    _, found = search(index, queries, count)
    _, nearest = exhaustive(index, queries, count)
    right = sum(
        len(set(own).intersection(all_)) for own, all_ in zip(found, nearest, strict=True)
    )
    return count, right / (count * len(queries))


def found_by_themselves(index: VectorIndex) -> float:
    """Return the share of rows whose vector, as a query, finds the row first.

    At most MOST rows are queried, evenly spaced. The index must have a row.
    """
    places = np.unique(np.linspace(0, len(index.records) - 1, MOST).round().astype(np.int64))
    _, found = search(index, index.vectors[places], 1)
    right = sum(
        [index.records[place]] == names
        for place, names in zip(places.tolist(), found, strict=True)
    )
    return right / len(places)
