"""Vector indexes as the benchmark of families measures them: recall@10 in place of accuracy."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from workers.judge.bytes_probe import Sought, probe
from workers.training.vectors import faiss_file, files
from workers.training.vectors.build import build, drop
from workers.training.vectors.index import FLAT, HNSW, IVF, VectorOptions

Numbers = NDArray[Any]
NEIGHBOURS = 10
LISTS, PROBES = 32, 8
QUERIES = 500


class Index:
    """An index of a kind; predictions are the places of the 10 nearest rows, (q, 10)."""

    def __init__(self, kind: str, features: Numbers) -> None:
        rows = np.ascontiguousarray(features, np.float32)
        # In a service these are of public rows; every so manyth row stands in for them.
        centroids = rows[:: max(1, len(rows) // LISTS)] if kind == IVF else rows[:0]
        self.options = VectorOptions(
            index=kind,
            metric="l2",
            columns=rows.shape[1],
            probes=PROBES,
            centroids=centroids,
            m=16,
            construction=40,
            search=64,
            seed=0,
        )
        self.gone = rows[:0]
        self.index = build(self.options, list(map(str, range(len(rows)))), rows)
        self.file = files.encode(self.index)

    def predict(self, features: Numbers) -> Numbers:
        """Return the places of the nearest rows, -1 where fewer were found."""
        queries = np.ascontiguousarray(features, np.float32)
        _, names = faiss_file.search(self.index, queries, NEIGHBOURS)
        rows = [[*map(int, one), *[-1] * (NEIGHBOURS - len(one))] for one in names]
        return np.array(rows)

    def delete(self, row: int) -> None:
        """Drop a row and write the file."""
        place = self.index.records.index(str(row))
        self.gone = self.index.vectors[place : place + 1]
        self.index = drop(self.index, [str(row)])
        self.file = files.encode(self.index)

    def verify(self, features: Numbers, labels: Numbers) -> None:
        """Build anew, compare the bytes, and search them and the export for the row."""
        rows = np.ascontiguousarray(features, np.float32)
        first = len(self.gone) and int(min(map(int, self.index.records)))
        names = [str(first + place) for place in range(len(rows))]
        if files.encode(build(self.options, names, rows)) != self.file:
            raise AssertionError("the index is not that of the rest")
        new = {"model": self.file, "faiss": faiss_file.to_bytes(self.index)}
        centroids = self.options.centroids
        sought = Sought(self.gone, [str(first - 1)], rows, set(names), centroids, b"")
        found, _ = probe(new, (), sought)
        if found:
            raise AssertionError("an erased row is in the new files")


class Flat:
    """FAISS's own flat index, built outside."""

    def fit(self, features: Numbers, labels: Numbers) -> "Flat":
        """Add all rows."""
        library: Any = faiss  # its types are those of another version
        self.index = library.IndexFlatL2(features.shape[1])
        self.index.add(np.ascontiguousarray(features, np.float32))
        return self

    def predict(self, features: Numbers) -> Numbers:
        """Return the places of the nearest rows."""
        queries = np.ascontiguousarray(features, np.float32)
        places: Numbers = self.index.search(queries, NEIGHBOURS)[1]
        return places


def recall(found: Numbers, known: Numbers, asked: Numbers, labels: Numbers) -> float:
    """Return the share of the 10 nearest rows, by numpy, that are among those found.

    Of the first QUERIES rows asked of: numpy compares each with every row.
    """
    rows = known.astype(np.float32).astype(np.float64)
    queries, right = asked[:QUERIES].astype(np.float32).astype(np.float64), 0
    for query, places in zip(queries, found[:QUERIES], strict=True):
        nearest = np.argsort(np.square(rows - query).sum(axis=1), kind="stable")
        right += len(set(nearest[:NEIGHBOURS].tolist()).intersection(places.tolist()))
    return right / (NEIGHBOURS * len(queries))


KINDS = (FLAT, IVF, HNSW)
