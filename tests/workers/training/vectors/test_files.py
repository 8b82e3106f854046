"""The file of an index, what FAISS reads of it, and lists that depend on a row alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError, RefusedError
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


def retold(kind: str, rows: int = 70, **told: Any) -> bytes:
    """Return the file of an index that says something else: options, or whole arrays."""
    index = build(options(kind), IDS[:rows], VECTORS[:rows])
    arrays, metadata = decode_tensors(files.encode(index))
    own = {name: value for name, value in told.items() if isinstance(value, np.ndarray)}
    said = {name: value for name, value in told.items() if name not in own}
    return encode_tensors(arrays | own, metadata | said)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("flat", {"index": "xflat"}),
        ("flat", {"metric": "cosine"}),
        ("flat", {"metric": None}),
        *(("ivf", {"probes": wrong}) for wrong in (0, 2**31, 10**40, 1.5, "6", True, None)),
        *(
            ("hnsw", {name: wrong})
            for name in ("ef_construction", "ef_search", "m", "entry", "top", "seed")
            for wrong in (-2, 2**31, 10**40, "7", True, None)
        ),
        ("hnsw", {"top": 1.0}),
        ("hnsw", {"entry": 1.0}),
    ],
)
def test_an_option_that_faiss_would_not_take_is_refused(
    kind: str, told: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactError):
        files.decode(retold(kind, **told))


@pytest.mark.parametrize("columns", [0, -1, 2**31, 10**40])
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_width_that_no_index_has_is_refused(kind: str, columns: int) -> None:
    wide = {} if columns < 0 else {"vectors": np.empty((0, min(columns, 2**31)), np.float32)}
    with pytest.raises(ArtifactError):
        files.decode(retold(kind, 0, columns=columns, **wide))


@pytest.mark.parametrize("told", [{"m": 2**31}, {"m": 0}, {"top": 3}, {"ef_search": "x"}])
def test_a_graph_without_rows_is_checked_too(told: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError):
        files.decode(retold("hnsw", 0, **told))


def test_lists_do_not_add_up_by_overflow() -> None:
    """Four lists of 2^62 rows and one of 70 are 70 rows, modulo 2^64."""
    sizes = [np.array([2**62] * 4 + [70, 0]), np.array([70.0, 0, 0, 0, 0, 0])]
    for wrong in sizes:
        with pytest.raises(ArtifactError):
            files.decode(retold("ivf", sizes=wrong))
    with pytest.raises(ArtifactError):
        files.decode(
            retold("ivf", 0, sizes=np.empty(0, np.int64), centroids=np.empty((0, 5), "f4"))
        )


def test_no_graph_has_more_levels_than_faiss_draws() -> None:
    for m in (2, 3, 4, 10, 16, 17, 100, 255, 256):
        index = library.IndexHNSWFlat(4, m)
        known = library.vector_to_array(index.hnsw.cum_nneighbor_per_level)
        assert files.most_levels(m) == len(known) - 1, m
    levels = np.full(70, files.most_levels(4) + 1, np.int32)
    links = np.full(int(4 * (levels.astype(int) + 1).sum()), -1, np.int32)
    with pytest.raises(ArtifactError):
        files.decode(
            retold("hnsw", levels=levels, neighbours=links, top=int(levels[0]) - 1, entry=0)
        )


def test_a_link_to_a_row_that_is_not_on_its_level_is_refused() -> None:
    """FAISS followed links that such a row does not have: the process died."""
    index = build(options("hnsw"), IDS, VECTORS)
    graph = index.graph
    assert graph is not None
    high = int(np.flatnonzero(graph.levels > 1)[0])
    low = int(np.flatnonzero(graph.levels == 1)[-1])
    links = graph.neighbours.copy()
    above = int(4 * (graph.levels[:high].astype(int) + 1).sum()) + 2 * 4
    links[above] = low
    with pytest.raises(ArtifactError):
        files.decode(retold("hnsw", neighbours=links))


def test_a_file_that_no_index_can_be_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index.faiss"
    path.write_bytes(faiss_file.to_bytes(build(options("ivf"), IDS, VECTORS)))
    assert np.array_equal(faiss_file.centroids_of(path), CENTROIDS)
    monkeypatch.setattr(faiss_file, "MOST_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr(library, "read_index", lambda *_: pytest.fail("read"))
    with pytest.raises(RefusedError, match=r"save its centroids as a \.npy"):
        faiss_file.centroids_of(path)
