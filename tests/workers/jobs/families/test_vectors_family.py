"""Vector indexes from a signed request to a certificate; the oracle builds with FAISS alone."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from click.testing import CliRunner
from sqlmodel import Session, select

from lethe.certificates.evidence import record_commitment
from models import Artifact, ModelVersion, Record, RequestEvent
from tests.installation import Installation, shown
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.uploaded import MODEL, contribute, owners, published, submit
from workers.cli.models import command as cli
from workers.families import base
from workers.families.vectors import update
from workers.jobs import execute
from workers.lineage.versions import OTHER_FILES
from workers.training.vectors import files
from workers.training.vectors.build import build
from workers.training.vectors.build import drop as honest_drop
from workers.training.vectors.index import VectorIndex

library: Any = faiss  # its types are those of another version
ROWS, COLUMNS = 90, 8
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
    """One kind of database: an index uses the same calls as all rows."""
    return sqlite_url


def rows() -> dict[str, Any]:
    vectors = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return {
        "features": vectors,
        **owners(ROWS),
        "records": np.array([f"passage-{i:03d}" for i in range(ROWS)]),
    }


def send(
    installation: Installation,
    arrays: dict[str, Any],
    options: dict[str, Any] = KINDS["flat"],
    **changes: Any,
) -> Any:
    manifest = {
        "family": "vectors",
        "columns": COLUMNS,
        "vectors": options,
        **changes,
    }
    return uploaded.send(installation, manifest, arrays)


def register(
    installation: Installation, kind: str = "flat", arrays: dict[str, Any] | None = None
) -> None:
    """Register an index and build it."""
    uploaded.take(installation, send(installation, arrays or rows(), KINDS[kind]))


def exported(installation: Installation) -> tuple[bytes, list[str]]:
    """Return the FAISS file of the current version, and the record id of each label."""
    kind = base.of(networks.model(installation))
    file = published(installation)
    table = kind.beside(file)["ids"].decode()
    return kind.export(file, "faiss", [], {}), table.split("\n")[:-1]


def in_order(installation: Installation, gone: Sequence[str] = ()) -> list[int]:
    """Return the indices of the retained rows, by their commitments."""
    with Session(installation.services.engine) as session:
        salts = {one.record: bytes(one.salt) for one in session.exec(select(Record))}
    names = rows()["records"].tolist()
    kept = [place for place, name in enumerate(names) if name not in gone]
    return sorted(kept, key=lambda place: record_commitment(salts[names[place]], names[place]))


def oracle(kind: str, vectors: Any) -> bytes:
    """Return FAISS's own file of an index built from scratch, following its manual."""
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
    """Check that the current version is the index that FAISS builds from the remaining rows."""
    order, arrays = in_order(installation, gone), rows()
    file, ids = exported(installation)
    if kind == "ivf":  # FAISS labels rows in the order of adding, here list by list
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


def test_what_is_contributed_is_in_the_index_and_leaves_it(installation: Installation) -> None:
    arrays = rows()
    later = {name: values[60:] for name, values in arrays.items()}
    register(installation, "ivf", {name: values[:60] for name, values in arrays.items()})
    contribute(installation, later)
    check_rest(installation, "ivf")
    gone = ["passage-003", "passage-070"]
    request = submit(installation, *gone)
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    check_rest(installation, "ivf", gone)


def test_all_rows_may_leave(installation: Installation) -> None:
    register(installation, "hnsw")
    request = submit(installation, *rows()["records"].tolist())
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    assert exported(installation) == (oracle("hnsw", rows()["features"][:0]), [])


def left_in(index: VectorIndex, records: Sequence[str]) -> VectorIndex:
    """Drop all but the last record."""
    return honest_drop(index, records[:-1])


def as_another(index: VectorIndex, records: Sequence[str]) -> VectorIndex:
    """Drop the records, and publish one erased vector under a retained id."""
    found, vectors = honest_drop(index, records), index.vectors
    erased = vectors[index.records.index(records[0])]
    return replace(found, vectors=np.concatenate([erased[None], found.vectors[1:]]))


@pytest.mark.parametrize("lie", [left_in, as_another])
def test_a_row_left_in_is_refuted_and_the_index_built_anew(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, lie: Any
) -> None:
    register(installation)
    monkeypatch.setattr("workers.training.vectors.build.drop", lie)
    request = submit(installation, "passage-003", "passage-040")
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    assert shown(installation, request)["state"] == "certified"
    check_rest(installation, "flat", ["passage-003", "passage-040"])


def in_another_order(index: VectorIndex, records: Sequence[str]) -> VectorIndex:
    """Drop the records, and link the rest from the last to the first."""
    found = honest_drop(index, records)
    return build(found.options, [*found.records][::-1], found.vectors[::-1].copy())


def by_another_seed(index: VectorIndex, records: Sequence[str]) -> VectorIndex:
    """Drop the records, and publish a graph of another seed as the registered one."""
    found = honest_drop(index, records)
    options = replace(found.options, seed=found.options.seed + 1)
    return replace(found, graph=build(options, found.records, found.vectors).graph)


@pytest.mark.parametrize("lie", [in_another_order, by_another_seed])
def test_a_graph_that_was_built_otherwise_is_refuted_and_built_anew(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, lie: Any
) -> None:
    register(installation, "hnsw")
    monkeypatch.setattr("workers.training.vectors.build.drop", lie)
    request = submit(installation, "passage-003")
    installation.drain()
    assert failed_checks(installation, request) == "6 re-execution"
    assert shown(installation, request)["state"] == "certified"
    check_rest(installation, "hnsw", ["passage-003"])


def test_a_graph_of_which_two_builds_differ_is_no_registration(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = iter(range(9))

    def build_otherwise(options: Any, *rows: Any) -> VectorIndex:
        made = build(replace(options, seed=next(seeds)), *rows)
        return replace(made, options=options)

    monkeypatch.setattr(update, "build", build_otherwise)
    register(installation, "hnsw")
    found = networks.model(installation)
    assert found.state == "failed"
    assert "two builds of the graph give different bytes" in (found.failure or "")
    assert networks.versions(installation) == []


def test_a_flipped_bit_of_the_file_passes_no_judge(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    honest = files.encode

    def wrong(index: VectorIndex) -> bytes:
        file = bytearray(honest(index))
        file[-1] ^= 1
        return bytes(file)

    with monkeypatch.context() as patch:
        patch.setattr(files, "encode", wrong)
        request = submit(installation, "passage-003")
        job_id, stage = installation.dispatcher.nudges.popleft()
        assert stage == "execute"
        execute.run(installation.services, job_id)
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    check_rest(installation, "flat", ["passage-003"])


def test_a_file_of_other_rows_is_not_believed(installation: Installation) -> None:
    """Pointing the database at another file does not get another index published.

    Nor an erasure certified: the published file would not be destroyed.
    """
    register(installation)
    with Session(installation.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        file = files.decode(installation.services.artifacts.get(session, version.head_id))
        other = files.encode(honest_drop(file, ["passage-005"]))
        version.head_id = installation.services.artifacts.put(session, "head", other).id
        session.commit()
    request = submit(installation, "passage-003")
    installation.drain()
    told = shown(installation, request)
    assert (told["state"], told["reason"]) == ("needs-decision", OTHER_FILES)
    assert len(networks.versions(installation)) == 1


@pytest.mark.parametrize("trace", ["vector", "part", "id"])
def test_a_trace_in_the_tail_is_found_though_all_digests_agree(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, trace: str
) -> None:
    """The judge's own build has the same trace: only the probe of the bytes can refute it."""
    register(installation)
    vector = rows()["features"][3].tobytes()
    tail = {"vector": vector, "part": vector[8:24], "id": b"xpassage-003x"}[trace]
    honest = files.encode
    monkeypatch.setattr(files, "encode", lambda index: honest(index) + tail)
    request = submit(installation, "passage-003")
    installation.drain()
    assert shown(installation, request)["state"] not in ("certified", "verifying")
    assert failed_checks(installation, request) == "8 bytes-probe"


def test_the_probe_looks_for_the_rows_that_were_erased(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If others were sealed for it, it would find nothing: their digests reveal that."""
    register(installation)
    honest = update.Erased.encode

    def other(erased: update.Erased) -> bytes:
        block = replace(erased.block, features=-erased.block.features)
        return honest(replace(erased, block=block))

    monkeypatch.setattr(update.Erased, "encode", other)
    request = submit(installation, "passage-003")
    installation.drain()
    assert failed_checks(installation, request) == "8 bytes-probe"


def failed_checks(installation: Installation, request: str) -> str:
    """Return the failed checks of a request's first attempt, from the log."""
    with Session(installation.services.engine) as session:
        query = select(RequestEvent).where(RequestEvent.request_id == request)
        found = session.exec(query.where(RequestEvent.event == "request.escalated")).one()
        return str(found.payload["checks"])


def test_a_download_for_faiss_has_its_id_table(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    register(installation)
    monkeypatch.setattr("workers.cli.service.connect", lambda url: installation.client())
    out = tmp_path / "index.faiss"
    words = ["download", "--url", "http://x", MODEL, "--format", "faiss", "--out", str(out)]
    answer = CliRunner().invoke(cli.model, words)
    assert answer.exit_code == 0, answer.output
    ids = Path(f"{out}.ids").read_text().splitlines()
    _, labels = library.read_index(str(out)).search(rows()["features"], 1)
    assert [ids[label] for label in labels[:, 0]] == rows()["records"].tolist()


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({"index": "annoy"}, COLUMNS, "index"),
        ({"index": "flat", "metric": "cosine"}, COLUMNS, "metric"),
        ({"index": "flat", "probes": 3}, COLUMNS, "only for an index of the kind ivf"),
        ({"index": "ivf"}, COLUMNS, "centroids"),
        ({**KINDS["ivf"], "centroids": "AAA"}, COLUMNS, "base64"),
        ({**KINDS["ivf"], "centroids": "AADAfw=="}, COLUMNS, "as wide as the vectors"),
        ({"index": "flat"}, COLUMNS + 1, "8 dimensions, and the index takes 9"),
        ({"index": "flat"}, 3, "columns"),
    ],
)
def test_an_unusable_registration_is_a_named_problem(
    installation: Installation, options: dict[str, Any], columns: int, words: str
) -> None:
    answer = send(installation, rows(), options, columns=columns)
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Artifact)).all()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("features", lambda one: np.where(one == one[4, 2], np.nan, one), "NaN"),
        ("features", lambda one: one.astype(np.float64), "float32"),
        ("records", lambda one: np.array([*one[:-1], one[0]]), "repeat"),
    ],
)
def test_unusable_vectors_are_a_named_problem(
    installation: Installation, name: str, change: Any, words: str
) -> None:
    arrays = rows()
    answer = send(installation, {**arrays, name: change(arrays[name])})
    assert answer.status_code == 422, answer.text
    assert words in answer.text


def test_a_first_build_that_waits_for_a_worker_with_faiss_says_so(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> Any:
        return installation.caller.operator("GET", f"/v1/models/{MODEL}").json()

    monkeypatch.setattr("workers.families.base.find_spec", lambda _: None)
    assert send(installation, rows()).status_code == 201
    assert (seen()["state"], seen()["failure"]) == ("registered", None)
    installation.drain()
    why = "FAISS is not installed: NoFaissError at execute; the job is retried until this is fixed"
    assert (seen()["state"], seen()["failure"]) == ("registered", why)
    monkeypatch.undo()
    installation.recover()
    assert (seen()["state"], seen()["failure"]) == ("ready", None)
