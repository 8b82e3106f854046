"""The file of an index, what FAISS reads of it, and lists that depend on a row alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from workers.errors import ArtifactError
from workers.training.vectors import faiss_file, files
from workers.training.vectors.build import build, drop, nearest
from workers.training.vectors.index import VectorOptions

library: Any = faiss  # its types are those of another version
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(70, 5)).astype(np.float32)
CENTROIDS = RNG.normal(size=(6, 5)).astype(np.float32)
IDS = [f"id {row} ά" for row in range(70)]


def options(kind: str, metric: str = "l2") -> VectorOptions:
    centroids = CENTROIDS if kind == "ivf" else CENTROIDS[:0]
    return VectorOptions(kind, metric, 5, 6, centroids, 4, 20, 70, 1)


@pytest.mark.parametrize("rows", [0, 70])
@pytest.mark.parametrize("metric", ["l2", "inner-product"])
@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_faiss_finds_what_the_file_holds(
    tmp_path: Path, kind: str, metric: str, rows: int
) -> None:
    index = build(options(kind, metric), IDS[:rows], VECTORS[:rows])
    file = files.encode(index)
    assert files.encode(files.decode(file)) == file
    path = tmp_path / "index.faiss"
    path.write_bytes(faiss_file.to_bytes(files.decode(file)))
    read = library.read_index(str(path))
    assert (read.ntotal, read.d) == (rows, 5)
    if rows:
        _, labels = read.search(VECTORS[:9], 3)
        names = files.id_table(index).decode().split("\n")
        scores = -(VECTORS[:9] @ VECTORS.T)
        if metric == "l2":
            scores = np.square(VECTORS[:9, None] - VECTORS[None]).sum(axis=2)
        wanted = np.argsort(scores, axis=1)[:, :3]
        right = [
            names[label] == IDS[row]
            for label, row in zip(labels.flat, wanted.flat, strict=True)
        ]
        assert np.mean(right) > (0.8 if kind == "hnsw" else 0.99)  # a graph finds most


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_bytes_do_not_depend_on_what_was_dropped(kind: str) -> None:
    whole = build(options(kind), IDS, VECTORS)
    gone = [IDS[3], IDS[40]]
    rest = [row for row in range(70) if IDS[row] not in gone]
    alone = build(options(kind), [IDS[row] for row in rest], VECTORS[rest])
    assert files.encode(drop(whole, gone)) == files.encode(alone)
    with pytest.raises(ArtifactError):
        drop(whole, ["nobody"])


@pytest.mark.parametrize("metric", ["l2", "inner-product"])
def test_a_row_has_its_list_whatever_lies_beside_it(metric: str) -> None:
    """A matrix product rounds by its shape; and of equal centroids the first is taken."""
    twice = replace(options("ivf", metric), centroids=np.concatenate([CENTROIDS] * 2))
    lists = nearest(twice, VECTORS)
    assert lists.tolist() == [int(nearest(twice, row[None])[0]) for row in VECTORS]
    scores = -(VECTORS.astype(np.float64) @ CENTROIDS.T.astype(np.float64))
    if metric == "l2":
        scores = np.square(VECTORS[:, None] - CENTROIDS[None]).sum(axis=2)
    assert lists.tolist() == scores.argmin(axis=1).tolist()


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_other_bytes_are_no_index(kind: str) -> None:
    file = files.encode(build(options(kind), IDS, VECTORS))
    assert file.count(b'\\"metric\\":\\"l2\\"') == 1
    for wrong in (
        b"",
        file[:-1],
        file + b"\0",
        file.replace(b'\\"index\\":\\"', b'\\"index\\":\\"x', 1),
        *([file.replace(b'\\"m\\":4', b'\\"m\\":0', 1)] if kind == "hnsw" else []),
        file.replace(IDS[5].encode(), b"\n" * len(IDS[5].encode()), 1),
    ):
        with pytest.raises(ArtifactError):
            files.decode(wrong)
