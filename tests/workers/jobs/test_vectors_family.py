"""Vector indexes from a signed request to a certificate; the oracle builds with FAISS alone."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np
import pytest
from sqlmodel import Session, select

from lethe.certificates.retained import record_commitment
from models import Record
from tests.installation import Installation
from tests.small import pack
from tests.workers.jobs import networks
from tests.workers.jobs.test_stalled import shown
from workers.families import base

library: Any = faiss  # its types are those of another version
MODEL, ROWS, COLUMNS = "passages", 90, 8
CENTROIDS = np.random.default_rng(9).normal(size=(5, COLUMNS)).astype(np.float32)
KINDS: dict[str, dict[str, Any]] = {
    "flat": {"index": "flat"},
    "ivf": {
        "index": "ivf",
        "metric": "inner-product",
        "probes": 2,
        "centroids": base64.b64encode(CENTROIDS.tobytes()).decode(),
    },
    "hnsw": {"index": "hnsw", "m": 4, "ef_construction": 20, "seed": 3},
}
GUARANTEE = {"flat": "exact", "ivf": "exact", "hnsw": "exact-retrained"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what an index stores goes through the same calls as all rows."""
    return sqlite_url


def rows() -> dict[str, Any]:
    vectors = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return {
        "features": vectors,
        "clients": np.array([f"c{i % 5}" for i in range(ROWS)]),
        "records": np.array([f"passage-{i:03d}" for i in range(ROWS)]),
        "subjects": np.array([f"s{i % 30}" for i in range(ROWS)]),
    }


def send(
    installation: Installation,
    arrays: dict[str, Any],
    options: dict[str, Any] = KINDS["flat"],
    **changes: Any,
) -> Any:
    manifest = {
        "family": "vectors",
        "ref": MODEL,
        "columns": COLUMNS,
        "vectors": options,
        **changes,
    }
    assert installation.caller.register_key().status_code in (200, 201)
    return installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps(manifest)},
    )


def register(
    installation: Installation, kind: str = "flat", arrays: dict[str, Any] | None = None
) -> None:
    """Register an index and build it."""
    answer = send(installation, arrays or rows(), KINDS[kind])
    assert answer.status_code == 201, answer.text
    installation.drain()


def submit(installation: Installation, *records: str) -> str:
    scope = {"level": "sample", "records": list(records)}
    answer = installation.caller.erase(scope, fields={"model": MODEL})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def published(installation: Installation) -> bytes:
    path = f"/v1/models/{MODEL}/versions/current/artifact"
    answer = installation.caller.operator("GET", path)
    assert answer.status_code == 200
    return bytes(answer.content)


def exported(installation: Installation) -> tuple[bytes, list[str]]:
    """Return the FAISS file of the current version, and the record id of each label."""
    kind = base.of(networks.model(installation))
    file = published(installation)
    table = kind.beside(file)["ids"].decode()
    return kind.export(file, "faiss", [], {}), table.split("\n")[:-1]


def in_order(installation: Installation, gone: Sequence[str] = ()) -> list[int]:
    """Return the places of the rows that stay, by their commitments."""
    with Session(installation.services.engine) as session:
        salts = {one.record: bytes(one.salt) for one in session.exec(select(Record))}
    names = rows()["records"].tolist()
    kept = [place for place, name in enumerate(names) if name not in gone]
    return sorted(kept, key=lambda place: record_commitment(salts[names[place]], names[place]))


def oracle(kind: str, vectors: Any) -> bytes:
    """Return FAISS's own file of an index built from nothing, as its manual does it."""
    if kind == "flat":
        made: Any = faiss.IndexFlatL2(COLUMNS)
    elif kind == "ivf":
        coarse = faiss.IndexFlatIP(COLUMNS)
        coarse.add(CENTROIDS)
        made = faiss.IndexIVFFlat(coarse, COLUMNS, len(CENTROIDS), faiss.METRIC_INNER_PRODUCT)
        made.is_trained, made.nprobe = True, 2
    else:
        made = faiss.IndexHNSWFlat(COLUMNS, 4)
        made.hnsw.efConstruction, made.hnsw.efSearch = 20, 64
        made.hnsw.rng = library.RandomGenerator(3)
        library.omp_set_num_threads(1)
    made.add(vectors)
    return bytes(faiss.serialize_index(made).tobytes())


def check_rest(installation: Installation, kind: str, gone: Sequence[str] = ()) -> None:
    """Check that the current version is the index that FAISS builds of the rest."""
    order, arrays = in_order(installation, gone), rows()
    file, ids = exported(installation)
    if kind == "ivf":  # FAISS labels rows as they are added, here list after list
        lists = (arrays["features"][order] @ CENTROIDS.T).argmax(axis=1)
        order = [order[place] for place in np.argsort(lists, kind="stable")]
    assert ids == arrays["records"][order].tolist()
    assert file == oracle(kind, arrays["features"][order])


@pytest.mark.parametrize("kind", KINDS)
def test_an_erasure_gives_the_index_of_the_rest(installation: Installation, kind: str) -> None:
    register(installation, kind)
    check_rest(installation, kind)
    gone = ["passage-003", "passage-040"]
    request = submit(installation, *gone)
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    predicate = networks.statement(installation, request).predicate
    assert predicate.guarantee.class_ == GUARANTEE[kind]
    (found,) = [check for check in predicate.checks if check.name == "bytes-probe"]
    assert found.value == "0 of 2 found in 4 files"
    check_rest(installation, kind, gone)
    installation.check()
