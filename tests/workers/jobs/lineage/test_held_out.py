"""Stored held-out rows: measured at every version, erased, and inaccessible to others.

The oracle computes the figures with scikit-learn from the rows of the test and the file that
the service publishes.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score
from sqlmodel import Session, select

from app.backup.reapply import reapply
from app.ledger.startup import load_issuer
from app.purge.search import search
from app.reconcile.fsck.run import fsck
from app.reconcile.inputs import HELD_OUT_KIND
from app.service.models.held_out import HeldOutRows
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.case_summary import check_summary
from lethe.estimators.forest.published import PublishedForest
from models import Artifact
from tests.installation import Installation
from tests.small import DIMENSION, Caller, pack, rows
from tests.workers.jobs.desk.test_cases import opened, outcomes, shown
from tests.workers.jobs.desk.test_people import ANN, EVE, named, packed, write
from workers.artifacts import decode_head
from workers.jobs import held_out
from workers.training.recipes import process
from workers.training.recipes.files import decode
from workers.training.recipes.fit import fit as fit_here
from workers.training.shards.predict import ShardedModel

HELD = 24


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: held-out rows use the same calls as all artifacts."""
    return sqlite_url


def evaluated(
    arrays: dict[str, Any], count: int = HELD, numbers: bool = False
) -> dict[str, Any]:
    """Return a registration's arrays with held-out rows: held0 is Eve's, of client c0."""
    rng = np.random.default_rng(7)
    width = arrays["features"].shape[1]
    features = rng.normal(size=(count, width))
    labels: Any = features[:, 0] * 2 if numbers else rng.integers(3, size=count)
    emails = [EVE] + [""] * (count - 1)
    return {
        **arrays,
        "held_out_features": features,
        "held_out_labels": labels,
        "held_out_records": np.array([f"held{i}" for i in range(count)]),
        "held_out_clients": np.array([f"c{i % 5}" for i in range(count)]),
        "held_out_subjects": np.array([f"person{i}" for i in range(count)]),
        "held_out_identity_email": packed(*emails),
    }


def ready(installation: Installation, count: int = HELD) -> dict[str, Any]:
    """Fit the small model with held-out rows, and return the arrays sent."""
    arrays = evaluated(named(), count)
    installation.ready(arrays=arrays)
    return arrays


def versions(installation: Installation, ref: str = "small") -> list[dict[str, Any]]:
    """Return a model's versions as an operator sees them."""
    answer = installation.caller.operator("GET", f"/v1/models/{ref}/versions")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def artifact(installation: Installation, number: Any = "current", ref: str = "small") -> bytes:
    """Return the file of a version."""
    path = f"/v1/models/{ref}/versions/{number}/artifact"
    return bytes(installation.caller.operator("GET", path).content)


def oracle(installation: Installation, arrays: dict[str, Any], without: int = 0) -> str:
    """Return scikit-learn's accuracy of the current head, from held-out row `without` on."""
    head, _ = decode_head(artifact(installation))
    features, labels = arrays["held_out_features"], arrays["held_out_labels"]
    found = (features[without:] @ head).argmax(axis=1)
    return f"{accuracy_score(labels[without:], found):.4f}"


def stored(installation: Installation) -> list[Artifact]:
    """Return the artifacts of held-out rows whose keys exist."""
    with Session(installation.services.engine) as session:
        query = select(Artifact).where(Artifact.kind == HELD_OUT_KIND)
        return [one for one in session.exec(query) if one.wrapped_key is not None]


def problems(installation: Installation) -> set[str]:
    """Return the names of the checks in which fsck finds problems."""
    return {one.check for one in fsck(installation.services.ledger).findings}


def test_each_version_is_measured_and_the_certificate_reports_it(
    installation: Installation,
) -> None:
    arrays = ready(installation)
    (first,) = versions(installation)
    assert first["held_out"]["metric"] == "accuracy"
    assert first["held_out"]["rows"] == HELD
    assert first["held_out"]["value"] == oracle(installation, arrays)
    request = installation.caller.erase_records("r1", "r2", "r3").json()["id"]
    installation.drain()
    second = versions(installation)[1]["held_out"]
    assert second["value"] == oracle(installation, arrays)
    assert second["set"] == first["held_out"]["set"]
    shown_model = installation.caller.operator("GET", "/v1/models/small").json()
    assert shown_model["held_out"] == second
    parameters = statement(installation, request)["method"]["parameters"]
    after = f"accuracy {second['value']} on {HELD} rows"
    assert parameters["heldOutBefore"] == f"accuracy {first['held_out']['value']} on 24 rows"
    assert parameters["heldOutAfter"] == after
    assert parameters["heldOutJudged"] == f"{after}, as published"
    installation.check()


def statement(installation: Installation, request: str) -> Any:
    """Return the predicate of a request's certificate."""
    file = installation.caller.http.get(f"/v1/requests/{request}/certificate")
    assert file.status_code == 200, file.text
    return json.loads(parse_bundle(file.content).dsse_envelope.payload)["predicate"]


def test_they_are_deleted_with_their_model(installation: Installation) -> None:
    ready(installation)
    assert len(stored(installation)) == 1
    answer = installation.caller.operator("DELETE", "/v1/models/small")
    assert answer.status_code == 200, answer.text
    assert stored(installation) == []
    assert len(versions(installation)) == 1
    installation.check()


def json_of(figure: dict[str, Any]) -> str:
    """Return a figure as stored in the column."""
    kept = {name: value for name, value in figure.items() if value is not None}
    return json.dumps({**kept, "rows": str(kept["rows"])})


def test_a_figure_that_was_written_by_another_is_neither_shown_nor_certified(
    installation: Installation,
) -> None:
    ready(installation)
    (first,) = versions(installation)
    planted = json_of({**first["held_out"], "value": "0.9999"})
    write(installation, f"UPDATE model_versions SET held_out = '{planted}'")
    for path in ("", "/versions", "/versions/1"):
        answer = installation.caller.operator("GET", f"/v1/models/small{path}")
        assert answer.json()["type"].endswith("version-unlogged"), answer.text
    assert problems(installation) == {"version"}
    request = installation.caller.erase_records("r1").json()["id"]
    installation.drain()
    assert (
        installation.caller.http.get(f"/v1/requests/{request}/certificate").status_code == 404
    )


def test_a_worker_that_publishes_a_better_figure_is_contradicted_in_the_certificate(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = ready(installation)
    honest = held_out.measure

    def measure(*arguments: Any) -> held_out.VersionFigure:
        found = honest(*arguments)
        assert found.figure is not None
        return replace(found, figure={**found.figure, "value": "0.9999"})

    monkeypatch.setattr(held_out, "measure", measure)
    request = installation.caller.erase_records("r1").json()["id"]
    installation.drain()
    predicate = statement(installation, request)
    assert predicate["result"] == "PASS"
    parameters = predicate["method"]["parameters"]
    assert parameters["heldOutAfter"] == "accuracy 0.9999 on 24 rows"
    assert parameters["heldOutJudged"] == (
        f"accuracy {oracle(installation, arrays)} on 24 rows, but published was accuracy "
        "0.9999 on 24 rows"
    )


def test_a_person_of_held_out_rows_leaves_them_and_the_answer_proves_it(
    installation: Installation,
) -> None:
    arrays = ready(installation)
    sealed = artifact(installation)
    assert any("held-out" in one for one in search(installation.settings, ["held0"]).leftovers)
    answer = opened(installation, EVE).json()
    (part,) = answer["parts"]
    assert (part["outcome"], part["records"]) == ("held out only", 1)
    assert (part["held_out_removed"], part["request"]) == (1, None)
    (event,) = [one for one in answer["timeline"] if one["event"] == "model.held-out"]
    assert event["log_index"] == part["removal_log_index"] < part["log_index"]
    signed = shown(installation, answer["ref"], "/summary")
    key, _ = load_issuer(installation.services.settings)
    (named_part,) = check_summary(signed.content, key.public_key()).predicate.parts
    assert (named_part.held_out_removed, named_part.removal_log_index) == (
        1,
        part["removal_log_index"],
    )
    (left,) = stored(installation)
    rows_left = HeldOutRows.read(installation_file(installation, left.id))
    assert rows_left.records == [f"held{i}" for i in range(1, HELD)]
    assert artifact(installation) == sealed
    assert outcomes(opened(installation, EVE).json()) == {"small": "erased before"}
    assert installation.caller.erase_records("r1").status_code == 202
    installation.drain()
    after = versions(installation)[1]["held_out"]
    assert (after["rows"], after["set"]) == (HELD - 1, left.digest)
    assert after["value"] == oracle(installation, arrays, without=1)
    assert search(installation.settings, ["held0"]).leftovers == {}
    installation.check()


def installation_file(installation: Installation, artifact_id: str) -> bytes:
    """Return the content of an artifact."""
    with installation.services.reading() as session:
        return installation.services.artifacts.get(session, artifact_id)


@pytest.mark.parametrize(
    "statement_",
    [
        "UPDATE artifacts SET kind = 'state' WHERE kind = 'held-out'",
        "DELETE FROM artifacts WHERE kind = 'held-out'",
        "UPDATE artifacts SET wrapped_key = NULL WHERE kind = 'held-out'",
        "UPDATE artifacts SET digest = hex(zeroblob(32)) WHERE kind = 'held-out'",
    ],
)
def test_whoever_hides_held_out_rows_stops_the_answer_and_is_found(
    installation: Installation, statement_: str
) -> None:
    ready(installation)
    size = installation.services.ledger.guard.read().size
    write(installation, statement_)
    answer = opened(installation, EVE)
    assert answer.status_code == 503
    assert answer.json()["type"].endswith("held-out-changed")
    assert installation.services.ledger.guard.read().size == size
    assert "held-out" in problems(installation)
    request = installation.caller.erase_records("r1").json()["id"]
    installation.drain()
    shown_request = installation.caller.http.get(f"/v1/requests/{request}").json()
    assert shown_request["state"] in ("executing", "needs-decision")


def test_held_out_rows_that_were_removed_do_not_come_back(installation: Installation) -> None:
    ready(installation)
    write(installation, "CREATE TABLE kept AS SELECT * FROM artifacts WHERE kind = 'held-out'")
    assert opened(installation, EVE).status_code == 201
    installation.check()
    write(
        installation,
        "UPDATE artifacts SET wrapped_key = (SELECT wrapped_key FROM kept) WHERE id = "
        "(SELECT id FROM kept)",
    )
    assert problems(installation) == {"held-out"}
    assert len(stored(installation)) == 2
    services = installation.services
    with Session(services.engine) as session:  # as after a backup from before the removal
        assert reapply(session, services.root_secret, services.journal).keys == 1
        session.commit()
    (left,) = stored(installation)
    assert "held0" not in HeldOutRows.read(installation_file(installation, left.id)).records
    assert problems(installation) == set()


def test_a_clients_rows_leave_with_it_and_few_rows_are_not_measured(
    installation: Installation,
) -> None:
    """Of 24 rows 5 are client c0's: the remaining 19 are too few."""
    ready(installation)
    installation.caller.register_key(keyid="alice")
    accepted = installation.caller.erase({"level": "client", "client": "c0"})
    assert accepted.status_code == 202, accepted.text
    installation.drain()
    figure = versions(installation)[1]["held_out"]
    assert (figure["rows"], figure["value"]) == (19, None)
    assert "fewer than 20 rows" in figure["withheld"]
    (left,) = stored(installation)
    found = HeldOutRows.read(installation_file(installation, left.id))
    assert "c0" not in found.clients
    parameters = statement(installation, accepted.json()["id"])["method"]["parameters"]
    assert parameters["heldOutAfter"].startswith("not measured: fewer than 20 rows")
    assert outcomes(opened(installation, EVE).json()) == {"small": "erased before"}
    installation.check()


def test_no_head_depends_on_held_out_rows(installation: Installation) -> None:
    ready(installation)
    assert installation.caller.register_model(named(), ref="other").status_code == 201
    installation.drain()
    assert artifact(installation) == artifact(installation, ref="other")
    assert versions(installation, "other")[0]["held_out"] is None


def test_rows_whose_key_was_hidden_are_not_taken_for_destroyed(
    installation: Installation,
) -> None:
    """Put back later, the key would open rows that a certificate has as erased."""
    ready(installation)
    installation.caller.register_key(keyid="alice")
    write(installation, "CREATE TABLE kept AS SELECT * FROM artifacts WHERE kind = 'held-out'")
    write(
        installation,
        "UPDATE artifacts SET wrapped_key = NULL, shredded_at = created_at, "
        "unlinked_at = created_at WHERE kind = 'held-out'",
    )
    assert problems(installation) == {"held-out"}
    accepted = installation.caller.erase({"level": "client", "client": "c0"})
    assert accepted.status_code == 202, accepted.text
    installation.drain()
    path = f"/v1/requests/{accepted.json()['id']}"
    assert installation.caller.http.get(path).json()["state"] == "executing"
    assert len(versions(installation)) == 1
    assert problems(installation) == {"held-out"}
    write(
        installation,
        "UPDATE artifacts SET wrapped_key = (SELECT wrapped_key FROM kept), shredded_at = NULL, "
        "unlinked_at = NULL WHERE id = (SELECT id FROM kept)",
    )
    write(installation, "DROP TABLE kept")
    installation.recover()
    installation.drain()
    assert installation.caller.http.get(path).json()["state"] == "certified"
    (left,) = stored(installation)
    found = HeldOutRows.read(installation_file(installation, left.id))
    assert "c0" not in found.clients
    installation.check()


CLAIMS = {
    # A case for Ann would remove somebody else's row.
    "it is Ann's": {
        "held_out_records": np.array(["held1"]),
        "held_out_identity_email": packed(ANN),
    },
    # Versions would be measured on rows that they have learned.
    "it is to be learned": {"records": np.array(["r90", "held1"])},
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_client_cannot_claim_a_held_out_row(installation: Installation, claim: str) -> None:
    ready(installation)
    arrays = rows(count=2, first=90) | {"clients": np.array(["c9"] * 2)} | CLAIMS[claim]
    client = Caller(installation.caller.http, installation.caller.token, keyid="c9")
    client.register_key(role="client", client="c9")
    path, kind = "/v1/models/small/contributions", "application/x-npz"
    sent = client.signed("POST", path, pack(arrays), content_type=kind)
    assert sent.status_code == 202
    installation.drain()
    shown_contribution = installation.caller.http.get(sent.headers["location"]).json()
    assert shown_contribution["state"] == "failed"
    assert "held-out" in shown_contribution["failure"]
    assert "held1" not in shown_contribution["failure"]


TABLE = {"family": "recipe", "ref": "small", "columns": DIMENSION}


@pytest.mark.parametrize("family", ["recipe", "forest", "shards"])
def test_models_that_predict_numbers_have_r2(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    fitted: list[int] = []

    def fit(recipe: Any, table: Any, threads: int, limits: Any) -> bytes:
        fitted.append(len(table))
        return fit_here(recipe, table, threads)

    def fit_all(recipe: Any, tables: Any, threads: int, limits: Any) -> list[bytes]:
        return [fit(recipe, table, threads, limits) for table in tables]

    monkeypatch.setattr(process, "fit", fit)
    monkeypatch.setattr(process, "fit_all", fit_all)

    def predict(file: bytes, features: Any, limits: Any, reader: str = "") -> Any:
        read = ShardedModel.from_bytes if reader else decode
        return read(file).predict(features)

    monkeypatch.setattr(process, "predict", predict)
    arrays = rows()
    arrays["labels"] = arrays["features"][:, 0] * 2.0
    arrays = evaluated(arrays, numbers=True)
    recipe = {
        "estimator": "sklearn.linear_model.Ridge",
        "parameters": {},
        "seed": 0,
        "threads": 1,
    }
    wanted = {**TABLE, "recipe": recipe}
    if family == "forest":
        edges = [[-1.0, -0.5, 0.0, 0.5, 1.0]] * DIMENSION
        wanted = {"family": "forest", "ref": "small", "edges": edges, "forest": {"trees": 3}}
    elif family == "shards":
        wanted |= {"family": "shards", "shards": {"count": 2}}
    answer = installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps(wanted)},
    )
    assert answer.status_code == 201, answer.text
    installation.drain()
    (version,) = versions(installation)
    file = artifact(installation)
    if family == "recipe":
        found = decode(file).predict(arrays["held_out_features"])
        assert set(fitted) == {40}
    elif family == "shards":
        found = ShardedModel.from_bytes(file).predict(arrays["held_out_features"])
    else:
        forest = PublishedForest.from_bytes(file)
        found = forest.means(arrays["held_out_features"]) * 2.0**-10
    expected = r2_score(arrays["held_out_labels"], found)
    assert version["held_out"]["metric"] == "R2"
    assert version["held_out"]["value"] == f"{expected:.4f}"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "labels missing": ({"held_out_labels": None}, "lacks: held_out_labels"),
    "ids missing": ({"held_out_clients": None}, "lacks: held_out_clients"),
    "other columns": ({"held_out_features": np.zeros((HELD, 2))}, f"{DIMENSION} columns"),
    "fewer records": ({"held_out_features": np.zeros((3, DIMENSION))}, "one id for each row"),
    "a NaN": ({"held_out_features": np.full((HELD, DIMENSION), np.nan)}, "a NaN"),
    "a label": ({"held_out_labels": np.full(HELD, 3)}, "between 0 and 2"),
    "text": ({"held_out_labels": np.array(["a"] * HELD)}, "one integer for each row"),
    "a learned id": (
        {"held_out_records": np.array([f"r{i}" for i in range(HELD)])},
        "repeat an id",
    ),
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD.keys())
def test_held_out_rows_that_are_none_are_refused(
    installation: Installation, changes: tuple[dict[str, Any], str]
) -> None:
    arrays = {**evaluated(rows()), **changes[0]}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    if arrays["held_out_features"].shape[0] == HELD == len(arrays["held_out_records"]):
        assert len(arrays["held_out_identity_email"]) == HELD
    answer = installation.caller.register_model(arrays)
    assert answer.status_code == 422
    assert changes[1] in answer.json()["detail"], answer.text
    assert stored(installation) == []


def test_a_contribution_brings_no_held_out_rows(installation: Installation) -> None:
    installation.ready()
    arrays = evaluated(rows(count=2, first=90))
    arrays["clients"] = np.array(["c9"] * 2)
    client = Caller(installation.caller.http, installation.caller.token, keyid="c9")
    client.register_key(role="client", client="c9")
    path, kind = "/v1/models/small/contributions", "application/x-npz"
    sent = client.signed("POST", path, pack(arrays), content_type=kind)
    assert sent.status_code == 422
    assert "only with the registration" in sent.json()["detail"]


def test_rows_without_an_identity_are_removed_by_their_ids(installation: Installation) -> None:
    arrays = ready(installation)
    path = "/v1/people/remove-held-out"

    def remove(*records: str) -> Any:
        body = {"model": "small", "records": list(records)}
        return installation.caller.operator("POST", path, json=body)

    before = stored(installation)[0].digest
    refused = remove("held1", "r1", "nobody")
    assert (refused.status_code, refused.json()["places"]) == (404, "2, 3")
    assert [one.digest for one in stored(installation)] == [before]
    done = remove("held1", "held0")
    assert (done.status_code, done.json()["removed"]) == (200, 2)
    (left,) = stored(installation)
    found = HeldOutRows.read(installation_file(installation, left.id))
    assert found.records == [f"held{i}" for i in range(2, HELD)]
    assert np.array_equal(found.features, arrays["held_out_features"][2:])
    assert outcomes(opened(installation, EVE).json()) == {"small": "erased before"}
    everybody = remove(*found.records)
    assert everybody.status_code == 200
    assert stored(installation) == []
    assert remove("held2").status_code == 404
    installation.check()
