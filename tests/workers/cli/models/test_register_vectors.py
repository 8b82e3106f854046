"""`lethe model register vectors`: tables, lists, .npz, centroids, and what is refused."""

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from app.schemas.families.vectors import NewVectors
from app.uploads.rows import parse_vectors
from models import Model
from tests.uploads import parsed
from tests.workers.cli.models.registering import FittingService
from workers.cli.models import command as model
from workers.families.vectors.update import built
from workers.training.recipes.fit import FitRows
from workers.training.vectors.files import decode

VECTORS = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
IDS = [f"text-{row}" for row in range(60)]
library: Any = faiss  # its types are those of another version


class Service(FittingService):
    """Accepts a registration as the API does, and builds the index here."""

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        wanted = NewVectors.model_validate(manifest)
        parsed(data, partial(parse_vectors, columns=wanted.columns, max_bytes=1 << 24))
        row = Model(ref="m", tombstone_key=b"", **wanted.pinned())
        records = rows["records"].tolist()
        return built(row, FitRows(rows["features"], rows["labels"], records=records))


def register(folder: Path, options: Any, *words: object) -> Result:
    file = folder / "index.json"
    file.write_text(options if isinstance(options, str) else json.dumps(options))
    arguments = ["register", "vectors", file, "--url", "http://x", "--ref", "m", *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def embeddings(folder: Path, **columns: Any) -> Path:
    """Write a table with a column of lists, as embeddings are stored."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), VECTORS.shape[1])
    found = {"id": IDS, "text": ["…"] * 60, "embedding": lists, **columns}
    path = folder / "texts.parquet"
    pq.write_table(pa.table(found), path)
    return path


LISTS = ("--record-id", "id", "--features", "embedding")


@pytest.mark.parametrize("source", ["lists", "columns", "npz"])
def test_vectors_need_no_label(tmp_path: Path, service: Service, source: str) -> None:
    words: tuple[str, ...] = LISTS
    data = embeddings(tmp_path)
    if source == "columns":
        columns = {f"f{place}": VECTORS[:, place] for place in range(6)}
        pq.write_table(pa.table({"id": IDS, **columns}), data)
        words = ("--record-id", "id", "--features", "f*")
    elif source == "npz":
        data = tmp_path / "texts.npz"
        np.savez(data, features=VECTORS, clients=np.array(["a"] * 60), records=np.array(IDS))
        words = ()
    found = register(tmp_path, {"index": "flat"}, data, *words)
    assert found.exit_code == 0, found.output
    assert "60 vectors of 6 float32 numbers" in found.output
    assert "own rows as queries: 1.000" in found.output
    index = decode(service.file)
    assert sorted(index.records) == sorted(IDS)
    stored = dict(zip(index.records, index.vectors.tolist(), strict=True))
    assert stored == dict(zip(IDS, VECTORS.tolist(), strict=True))


def test_columns_of_a_query_are_vectors(tmp_path: Path, service: Service) -> None:
    with sqlite3.connect(tmp_path / "texts.db") as database:
        database.execute(
            "CREATE TABLE t (id, a REAL, b REAL, c REAL, d REAL, e REAL, f REAL, g)"
        )
        database.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, 'x')",
            ([one, *row] for one, row in zip(IDS, VECTORS.tolist(), strict=True)),
        )
    database.close()
    words = ("--query", "SELECT * FROM t ORDER BY rowid", "--record-id", "id")
    source = f"sqlite:///{tmp_path / 'texts.db'}"
    found = register(
        tmp_path, {"index": "flat"}, "--sql", source, *words, "--features", "[a-f]"
    )
    assert found.exit_code == 0, (found.output, found.exception)
    assert found.output.splitlines()[:4] == [
        "60 vectors of 6 float32 numbers: a, b, c, d, e, f",
        'client: "all" for every row; --client names a column',
        "not used: g",
        "held out: 0 rows (none, unless asked for)",
    ]
    index = decode(service.file)
    stored = dict(zip(index.records, index.vectors.tolist(), strict=True))
    assert stored == dict(zip(IDS, VECTORS.tolist(), strict=True))


@pytest.mark.parametrize("suffix", [".npy", ".faiss"])
def test_centroids_are_a_matrix_or_those_of_an_index(
    tmp_path: Path, service: Service, suffix: str
) -> None:
    centroids = VECTORS[:4] + 1
    np.save(tmp_path / "centroids.npy", centroids)
    coarse = library.IndexFlatL2(6)
    coarse.add(centroids)
    ivf = library.IndexIVFFlat(coarse, 6, 4)
    library.write_index(ivf, str(tmp_path / "centroids.faiss"))
    options = {"index": "ivf", "centroids": f"centroids{suffix}", "probes": 4}
    found = register(tmp_path, options, embeddings(tmp_path), *LISTS, "--holdout", "0.2")
    assert found.exit_code == 0, found.output
    assert "12 held-out rows as queries: 1.000" in found.output
    assert np.array_equal(decode(service.file).options.centroids, centroids)


@pytest.mark.parametrize(
    ("options", "words", "problem"),
    [
        ("{", LISTS, "not a readable JSON"),
        ({"index": "annoy"}, LISTS, "index"),
        ({"index": "flat", "m": 8}, LISTS, "m: only for an index of the kind hnsw"),
        ({"index": "ivf"}, LISTS, "centroids"),
        ({"index": "ivf", "centroids": "none.npy"}, LISTS, "no file none.npy"),
        ({"index": "ivf", "centroids": "narrow.npy"}, LISTS, "have 3 dimensions"),
        ({"index": "ivf", "centroids": "text.faiss"}, LISTS, "IVF index"),
        ({"index": "ivf", "centroids": "flat.faiss"}, LISTS, "IVF index"),
        ({"index": "flat"}, ("--record-id", "twice", *LISTS[2:]), "twice: 1 rows repeat"),
        ({"index": "flat"}, (*LISTS[:3], "ragged"), "ragged: lists of different lengths"),
        ({"index": "flat"}, (*LISTS[:3], "holes"), "holes: 1 of 60 vectors"),
        ({"index": "flat"}, (*LISTS[:3], "words"), "words: lists of string"),
        ({"index": "flat"}, ("--features", "other"), "other"),
    ],
)
def test_what_is_wrong_is_named_and_not_sent(
    tmp_path: Path, service: Service, options: Any, words: tuple[str, ...], problem: str
) -> None:
    np.save(tmp_path / "narrow.npy", VECTORS[:4, :3])
    (tmp_path / "text.faiss").write_text("no index")
    library.write_index(library.IndexFlatL2(6), str(tmp_path / "flat.faiss"))
    holes = VECTORS.tolist()
    holes[7][2] = float("nan")
    data = embeddings(
        tmp_path,
        twice=[*IDS[:59], IDS[0]],
        ragged=[[1.0] * (1 + row % 2) for row in range(60)],
        holes=holes,
        words=[["a"]] * 60,
    )
    found = register(tmp_path, options, data, *words)
    assert found.exit_code != 0
    assert problem in f"{found.output} {found.exception}"
    assert not service.rows


def test_held_out_rows_are_sent_as_queries(tmp_path: Path, service: Service) -> None:
    found = register(
        tmp_path, {"index": "flat"}, embeddings(tmp_path), *LISTS, "--send-holdout"
    )
    assert found.exit_code == 0, found.output
    held, learned = service.rows["held_out_records"].tolist(), service.rows["records"].tolist()
    assert len(held) == 6  # a tenth; for other commands no row is held out
    assert sorted(held + learned) == sorted(IDS)
    by_id = dict(zip(IDS, VECTORS.tolist(), strict=True))
    assert service.rows["held_out_features"].tolist() == [by_id[one] for one in held]
    none = register(
        tmp_path, {"index": "flat"}, embeddings(tmp_path), *LISTS, "--send-holdout",
        "--holdout", "none",
    )  # fmt: skip
    assert "no row is held out" in f"{none.output} {none.exception}"
