"""Registration, contributions and versions, and what may not become a training set."""

import io
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import model_signing
import numpy as np
import pytest
from sqlalchemy import update
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import (
    Artifact,
    Contribution,
    FeatureBlock,
    Job,
    LogEntry,
    Model,
    ModelVersion,
)
from tests.app.api.test_requests import problem
from tests.installation import Installation, install
from tests.small import CLIENTS, MODEL, ROWS, Caller, manifest, pack, rows
from tests.workers.jobs.desk.test_people import packed


def stored(installation: Installation) -> tuple[int, ...]:
    with Session(installation.services.engine) as session:
        tables = (LogEntry, Model, Contribution, Artifact, Job)
        return tuple(len(session.exec(select(table)).all()) for table in tables)


def changed(**arrays: Any) -> bytes:
    """The small registration's arrays, some replaced; None leaves one out."""
    merged = {**rows(), **arrays}
    return pack({name: array for name, array in merged.items() if array is not None})


def with_nan() -> np.ndarray[Any, Any]:
    features = rows()["features"].copy()
    features[3, 2] = np.nan
    return features  # type: ignore[no-any-return]


def lying_zip() -> bytes:
    """A header that claims a terabyte."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("labels", "clients"):
            inner = io.BytesIO()
            np.save(inner, rows()[name])
            archive.writestr(f"{name}.npy", inner.getvalue())
        inner = io.BytesIO()
        header = {"descr": "<f8", "fortran_order": False, "shape": (2**37, 6)}
        np.lib.format.write_array_header_1_0(inner, header)
        archive.writestr("features.npy", inner.getvalue())
    return stream.getvalue()


BAD_DATA: list[tuple[str, bytes]] = [
    ("no zip at all", b"PK\x03\x04 hello"),
    ("empty", b""),
    ("features missing", changed(features=None)),
    ("clients missing", changed(clients=None)),
    ("NaN", changed(features=with_nan())),
    ("infinity", changed(features=np.full((ROWS, 6), np.inf))),
    ("integers", changed(features=np.ones((ROWS, 6), dtype=np.int32))),
    ("wrong width", changed(features=np.ones((ROWS, 5)))),
    ("one dimension", changed(features=np.ones(ROWS))),
    ("labels too few", changed(labels=np.zeros(3, dtype=int))),
    ("labels of floats", changed(labels=np.zeros(ROWS))),
    ("label out of range", changed(labels=np.full(ROWS, 3))),
    ("negative label", changed(labels=np.full(ROWS, -1))),
    ("record ids repeat", changed(records=np.array(["r0"] * ROWS))),
    ("objects", changed(records=np.array([{"a": 1}] * ROWS, dtype=object))),
    ("control character in an id", changed(clients=np.array(["a\nb"] * ROWS))),
    ("an id too long", changed(clients=np.array(["x" * 201] * ROWS))),
    ("no rows", pack({name: array[:0] for name, array in rows().items()})),
    ("a header that lies", lying_zip()),
]  # fmt: skip


@pytest.mark.parametrize(
    "data", [case[1] for case in BAD_DATA], ids=[case[0] for case in BAD_DATA]
)
def test_an_unusable_upload_is_a_named_problem_and_stores_nothing(
    installation: Installation, data: bytes
) -> None:
    before = stored(installation)
    response = installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", data)},
        data={"manifest": json.dumps(manifest())},
    )
    problem(response, 422, "upload-invalid")
    assert stored(installation) == before


def test_rows_beyond_the_exactness_bound_are_refused(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2**33 rows of 16 bits would be needed: lower the bound rather than upload them.
    monkeypatch.setattr("app.uploads.npz.EXACT_SUM", ROWS * 32767**2)
    before = stored(installation)
    body = problem(installation.caller.register_model(), 422, "upload-invalid")
    assert "overflow" in body["detail"]
    assert stored(installation) == before


BAD_MANIFESTS: list[tuple[str, dict[str, Any]]] = [
    ("no penalty", {"penalty": 0}),
    ("negative penalty", {"penalty": -1}),
    ("penalty of text", {"penalty": "NaN"}),
    ("too many bits", {"bits": 17}),
    ("no columns", {"exponents": []}),
    ("one class", {"classes": ["only"]}),
    ("unknown method", {"method": "magic"}),
    ("ref of spaces", {"ref": "a b"}),
    ("digest of letters", {"extractor": {"id": "identity", "digest": "xyz"}}),
    ("unknown field", {"callback": "http://example.org"}),
]


@pytest.mark.parametrize("changes", [case[1] for case in BAD_MANIFESTS], ids=[case[0] for case in BAD_MANIFESTS])  # fmt: skip
def test_an_unusable_manifest_is_a_named_problem(
    installation: Installation, changes: dict[str, Any]
) -> None:
    before = stored(installation)
    problem(installation.caller.register_model(**changes), 422, "body-invalid")
    assert stored(installation) == before


def test_registering_needs_an_operator(installation: Installation) -> None:
    nobody = Caller(installation.caller.http, "lethe_operator_guess")
    problem(nobody.register_model(), 401, "token-invalid")


def test_a_reference_is_taken_once(ready: Installation) -> None:
    problem(ready.caller.register_model(penalty=0.25), 409, "conflict")
    problem(ready.caller.register_model(rows(seed=1)), 409, "conflict")


def test_the_same_registration_again_is_the_same_model(ready: Installation) -> None:
    before = stored(ready)
    again = ready.caller.register_model()  # as after a lost answer
    assert (again.status_code, again.json()["state"]) == (201, "ready")
    assert stored(ready) == before


def test_a_registration_becomes_a_version_and_its_upload_is_gone(ready: Installation) -> None:
    model = ready.caller.operator("GET", f"/v1/models/{MODEL}").json()
    assert (model["state"], model["current_version"]) == ("ready", 1)
    versions = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions").json()["items"]
    assert [version["retained_count"] for version in versions] == [ROWS]
    with Session(ready.services.engine) as session:
        uploads = session.exec(select(Artifact).where(Artifact.kind == "upload")).all()
        assert [upload.wrapped_key for upload in uploads] == [None]
        blocks = session.exec(select(FeatureBlock)).all()
        assert sum(block.rows for block in blocks) == ROWS
        assert len(blocks) == CLIENTS
    ready.check()


def test_requests_to_a_model_not_yet_fitted_are_told_to_wait(
    installation: Installation,
) -> None:
    installation.caller.register_key()
    installation.caller.register_model()
    problem(installation.caller.erase_records("r1"), 409, "model-not-ready")


SERIAL = itertools.count()


def contribute(installation: Installation, arrays: dict[str, Any], **caller: Any) -> Any:
    client = Caller(
        installation.caller.http, installation.caller.token, keyid=f"client-{next(SERIAL)}"
    )
    client.register_key(role=caller.pop("role", "client"), client="c1")
    return client.signed(
        "POST",
        f"/v1/models/{MODEL}/contributions",
        pack(arrays),
        content_type="application/x-npz",
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "max_contribution_rows",
            "a contribution has at most 4 rows, with held-out ones: send several",
        ),
        (
            "max_contribution_owners",
            "a contribution names at most 4 clients and subjects: send several",
        ),
    ],
)
def test_a_contribution_is_bounded_because_others_wait_for_it(
    settings: Settings, ledger: Ledger, setting: str, said: str
) -> None:
    with install(settings.model_copy(update={setting: 4})) as made:
        made.ready()  # of an operator: more rows, and more clients
        before = list((settings.data_dir / "artifacts").iterdir())
        many = one_client(100, 5) | {"subjects": np.array([f"s{n}" for n in range(5)])}
        few = {name: values[:4] for name, values in many.items()}
        assert problem(contribute(made, many), 422, "upload-invalid")["detail"] == said
        assert list((settings.data_dir / "artifacts").iterdir()) == before
        assert contribute(made, few).status_code == 202
        made.drain()


def test_held_out_rows_that_a_contribution_names_are_rows_of_it(
    settings: Settings, ledger: Ledger
) -> None:
    """Their identities are stored while others wait, too."""
    with install(settings.model_copy(update={"max_contribution_rows": 4})) as made:
        made.ready()
        sent, whose = one_client(100, 2), ["h1", "h2", "h3"]
        held = {
            "held_out_records": np.array(whose),
            "held_out_identity_email": packed(*(f"{one}@example.org" for one in whose)),
        }
        said = problem(contribute(made, sent | held), 422, "upload-invalid")["detail"]
        assert said == "a contribution has at most 4 rows, with held-out ones: send several"
        few = {name: values[:2] for name, values in held.items()}
        assert contribute(made, sent | few).status_code == 202


def test_few_contributions_of_a_key_wait_in_a_models_queue(ready: Installation) -> None:
    """Erasures of the model wait for all before them, each of which is an update."""
    object.__setattr__(ready.services.settings, "waiting_contributions_per_key", 2)
    clients = [Caller(ready.caller.http, ready.caller.token, keyid=one) for one in "ab"]
    for client in clients:
        client.register_key(role="client", client="c1")

    def send(client: Caller, first: int, again: str = "") -> Any:
        return client.signed(
            "POST",
            f"/v1/models/{MODEL}/contributions",
            pack(one_client(first, 1)),
            content_type="application/x-npz",
            headers={"Idempotency-Key": again} if again else {},
        )

    assert send(clients[0], 100, again="one").status_code == 202
    assert send(clients[0], 101).status_code == 202
    artifacts = ready.settings.data_dir / "artifacts"
    before = set(artifacts.iterdir())
    refused = send(clients[0], 102)
    assert "2 contributions" in problem(refused, 429, "contribution-limit")["detail"]
    assert "retry-after" not in refused.headers
    assert set(artifacts.iterdir()) == before
    assert send(clients[0], 100, again="one").status_code == 202  # as before
    assert send(clients[1], 103).status_code == 202
    ready.drain()
    assert send(clients[0], 102).status_code == 202
    object.__setattr__(ready.services.settings, "waiting_contributions_per_key", 0)
    for first in (104, 105, 106):
        assert send(clients[0], first).status_code == 202
    ready.drain()


def test_the_same_idempotency_key_gets_the_same_contribution(ready: Installation) -> None:
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c1")

    def send(first: int) -> Any:
        return client.signed(
            "POST",
            f"/v1/models/{MODEL}/contributions",
            pack(one_client(first)),
            content_type="application/x-npz",
            headers={"Idempotency-Key": "once"},
        )

    first = send(100)
    before = stored(ready)
    assert send(100).json() == first.json()
    assert stored(ready) == before
    problem(send(200), 422, "idempotency-key-reused")


def test_an_idempotency_key_does_not_pass_for_a_contribution_to_another_model(
    ready: Installation,
) -> None:
    assert ready.caller.register_model(ref="second").status_code == 201
    ready.drain()
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c1")

    def send(model: str, key: str = "once") -> Any:
        return client.signed(
            "POST",
            f"/v1/models/{model}/contributions",
            pack(one_client(100)),
            content_type="application/x-npz",
            headers={"Idempotency-Key": key},
        )

    assert send(MODEL).status_code == 202
    before = stored(ready)
    problem(send("second"), 422, "idempotency-key-reused")
    assert stored(ready) == before
    second = send("second", "another")
    assert ready.caller.http.get(second.headers["location"]).json()["model"] == "second"


def one_client(first: int, count: int = 4) -> dict[str, Any]:
    return {**rows(seed=9, count=count, first=first), "clients": np.array(["c1"] * count)}


def test_a_client_adds_records_and_erases_them_again(ready: Installation) -> None:
    response = contribute(ready, one_client(first=100))
    assert response.status_code == 202, response.text
    ready.drain()
    shown = ready.caller.http.get(response.headers["location"]).json()
    assert shown["state"] == "learned"
    assert ready.caller.erase_records("r100", "r101", "r102", "r103").status_code == 202
    ready.drain()
    items = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions").json()["items"]
    assert [item["retained_count"] for item in items] == [ROWS, ROWS + 4, ROWS]
    assert items[0]["head"] == items[2]["head"], "add and erase must cancel exactly"
    assert items[0]["statistics"] == items[2]["statistics"] != items[1]["statistics"]
    ready.check()


def test_contributions_are_refused_where_they_must_be(ready: Installation) -> None:
    problem(contribute(ready, one_client(first=1)), 409, "conflict")
    problem(contribute(ready, rows(count=4, first=200)), 403, "key-not-entitled")
    missing = {
        name: array for name, array in one_client(first=300).items() if name != "records"
    }
    problem(contribute(ready, missing), 422, "upload-invalid")
    stranger = ready.caller.signed(
        "POST",
        f"/v1/models/{MODEL}/contributions",
        pack(one_client(first=400)),
        content_type="application/x-npz",
    )
    problem(stranger, 403, "key-not-entitled")  # a requester's key contributes nothing


def test_two_contributions_of_one_record_end_with_one(ready: Installation) -> None:
    first = contribute(ready, one_client(first=100))
    second = contribute(ready, one_client(first=102))  # overlaps; the first is not learned yet
    assert (first.status_code, second.status_code) == (202, 202)
    ready.drain()
    states = [
        ready.caller.http.get(answer.headers["location"]).json()["state"]
        for answer in (first, second)
    ]
    assert states == ["learned", "failed"]
    ready.check()


def test_an_erasure_withdraws_and_shreds_every_earlier_version(ready: Installation) -> None:
    path = f"/v1/models/{MODEL}/versions/1/artifact"
    assert ready.caller.operator("GET", path).status_code == 200
    ready.caller.erase_records("r0")
    ready.drain()
    gone = ready.caller.operator("GET", path)
    problem(gone, 410, "shredded")
    assert "download the current version" in gone.json()["detail"]
    with Session(ready.services.engine) as session:
        kept = {
            artifact.kind
            for artifact in session.exec(select(Artifact))
            if artifact.wrapped_key is not None
        }
        assert kept == {"head", "state", "evidence"}
        names = {a.id for a in session.exec(select(Artifact)) if a.wrapped_key is not None}
    files = {path.name for path in (ready.settings.data_dir / "artifacts").iterdir()}
    assert files == names


def test_the_current_version_has_an_alias_for_file_and_signature(ready: Installation) -> None:
    base = f"/v1/models/{MODEL}/versions"
    by_name, by_number = (ready.caller.operator("GET", f"{base}/{n}") for n in ("current", 1))
    assert by_name.json() == by_number.json()
    files = [
        ready.caller.operator("GET", f"{base}/{n}/artifact").content for n in ("current", 1)
    ]
    assert files[0] == files[1]
    ready.caller.erase_records("r1")
    ready.drain()
    assert ready.caller.operator("GET", f"{base}/current").json()["number"] == 2
    for name in ("newest", "0", "-1"):
        problem(ready.caller.operator("GET", f"{base}/{name}"), 422, "body-invalid")


def test_a_model_without_a_version_has_no_current_one(installation: Installation) -> None:
    installation.caller.register_key()
    installation.caller.register_model()
    path = f"/v1/models/{MODEL}/versions/current"
    for one in (path, f"{path}/artifact", f"{path}/signature"):
        problem(installation.caller.operator("GET", one), 404, "not-found")


def test_the_issuer_signs_the_file_of_a_version_until_it_is_withdrawn(
    ready: Installation, tmp_path: Path
) -> None:
    """Checked by the reference implementation of OpenSSF Model Signing, unmodified."""
    base = f"/v1/models/{MODEL}/versions/1"
    file, signature, issuer = (tmp_path / name for name in ("any-name", "sig", "issuer.pem"))
    file.write_bytes(ready.caller.operator("GET", f"{base}/artifact").content)
    signature.write_bytes(ready.caller.operator("GET", f"{base}/signature").content)
    issuer.write_bytes(ready.caller.operator("GET", "/v1/certificates/issuer").content)
    verifier = model_signing.verifying.Config().use_elliptic_key_verifier(public_key=issuer)  # type: ignore[no-untyped-call]
    verifier.verify(file, signature)
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="mismatch"):
        verifier.verify(file, signature)
    ready.caller.erase_records("r1")
    ready.drain()
    problem(ready.caller.operator("GET", f"{base}/signature"), 410, "shredded")
    with Session(ready.services.engine) as session:  # who writes the tables takes that back
        session.connection().execute(update(ModelVersion).values(withdrawn_at=None))
        session.commit()
    problem(ready.caller.operator("GET", f"{base}/signature"), 410, "shredded")
    assert ready.caller.operator("GET", f"{base[:-1]}2/signature").status_code == 200


def test_a_version_that_the_log_has_as_withdrawn_is_not_served(ready: Installation) -> None:
    """Whoever writes the tables puts the key of its file back, and its row."""
    path = f"/v1/models/{MODEL}/versions/1/artifact"
    assert ready.caller.operator("GET", path).status_code == 200
    with Session(ready.services.engine) as session:
        (row,) = session.exec(select(ModelVersion)).all()
        key = session.get_one(Artifact, row.head_id).wrapped_key
        file = ready.settings.data_dir / "artifacts" / row.head_id
        content = file.read_bytes()
    ready.caller.erase_records("r1")
    ready.drain()
    file.write_bytes(content)
    with Session(ready.services.engine) as session:
        session.connection().execute(update(ModelVersion).values(withdrawn_at=None))
        session.get_one(Artifact, row.head_id).wrapped_key = key
        session.commit()
        assert ready.services.artifacts.get(session, row.head_id)
    problem(ready.caller.operator("GET", path), 410, "shredded")
    assert ready.caller.operator("GET", path.replace("/1/", "/2/")).status_code == 200


@pytest.mark.parametrize("column", ["head_digest", "log_index", "number"])
def test_whoever_changes_the_row_of_a_version_gets_nothing_signed(
    ready: Installation, column: str
) -> None:
    wrong = {"head_digest": "0" * 64, "log_index": 0, "number": 2}[column]
    with Session(ready.services.engine) as session:
        session.connection().execute(update(ModelVersion).values({column: wrong}))
        session.commit()
    number = wrong if column == "number" else 1
    path = f"/v1/models/{MODEL}/versions/{number}/signature"
    problem(ready.caller.operator("GET", path), 503, "version-unlogged")
