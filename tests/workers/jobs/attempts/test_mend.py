"""`lethe model mend`: a quarantined model is refitted from exactly the logged rows."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from sqlalchemy import delete
from sqlmodel import Session, col, select

from lethe.errors import LetheError
from models import Job, LogEntry, Model, Record, Subject
from tests import small, small_network
from tests.installation import Installation, state
from tests.small import MODEL
from tests.workers.jobs.attempts.test_decisions import decide, spoil
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from workers.families.ridge.family import RidgeFamily
from workers.jobs.execute import LOST, UNVOUCHED
from workers.lineage.logged import CHANGED

Patch = pytest.MonkeyPatch


@pytest.fixture
def broken(ready: Installation) -> Installation:
    """An installation with a model out of service; its last erasure is certified."""
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    ready.drain()
    assert state(ready, request) == "certified"
    quarantine(ready)
    return ready


def quarantine(at: Installation) -> None:
    with Session(at.services.engine) as session:
        model = session.exec(select(Model).where(Model.ref == MODEL)).one()
        model.state, model.failure = "quarantined", "restored from a backup"
        session.commit()


def shown(at: Installation, ref: str = MODEL) -> dict[str, Any]:
    found: dict[str, Any] = at.caller.operator("GET", f"/v1/models/{ref}").json()
    return found


def ask(at: Installation, ref: str = MODEL) -> Any:
    return at.caller.operator("POST", f"/v1/models/{ref}/mend")


def mended(at: Installation, ref: str = MODEL) -> dict[str, Any]:
    answer = ask(at, ref)
    assert answer.status_code == 202, answer.text
    assert (answer.json()["state"], answer.json()["failure"]) == ("quarantined", None)
    at.drain()
    return shown(at, ref)


def head(at: Installation, number: object = "current") -> dict[str, np.ndarray[Any, Any]]:
    answer = at.caller.operator("GET", f"/v1/models/{MODEL}/versions/{number}/artifact")
    assert answer.status_code == 200, answer.text
    return load(answer.content)


def named(at: Installation) -> list[str | None]:
    with Session(at.services.engine) as session:
        query = select(LogEntry.event).order_by(col(LogEntry.index))
        return list(session.exec(query))


def test_it_is_the_model_that_a_fit_to_the_rows_gives(broken: Installation) -> None:
    before = shown(broken)["current_version"]
    now = mended(broken)
    assert (now["state"], now["failure"]) == ("ready", None)
    assert now["current_version"] == before + 1
    assert named(broken)[-2:] == ["model.version", "model.released"]
    gone = broken.caller.operator("GET", f"/v1/models/{MODEL}/versions/{before}/artifact")
    assert gone.status_code == 410
    # The oracle: another model, registered with the remaining rows.
    arrays = {key: np.delete(value, [1, 6], axis=0) for key, value in small.rows().items()}
    other = broken.caller.register_model(arrays, ref="other")
    assert other.status_code == 201, other.text
    broken.drain()
    path = "/v1/models/other/versions/current/artifact"
    fitted = load(broken.caller.operator("GET", path).content)
    found = head(broken)
    assert found.keys() == fitted.keys()
    assert all(np.array_equal(found[name], fitted[name]) for name in found)
    broken.check()
    again = broken.caller.erase_records("r2").json()["id"]
    broken.drain()
    assert state(broken, again) == "certified"
    broken.check()
    quarantine(broken)
    assert mended(broken)["state"] == "ready"


def test_what_was_only_learned_is_mended(ready: Installation) -> None:
    quarantine(ready)
    assert mended(ready)["state"] == "ready"
    quarantine(ready)
    assert mended(ready)["state"] == "ready"  # after a version made by mending
    ready.check()


def test_a_version_that_was_refuted_says_nothing_of_its_rows(
    ready: Installation, monkeypatch: Patch
) -> None:
    """Its rows are those of its computation, including rows that should be erased."""
    with monkeypatch.context() as patch:
        spoil(patch)
        request = str(ready.caller.erase_records("r1", "r6").json()["id"])
        ready.drain()
    assert decide(ready, request, "abandon") == 200
    size = len(named(ready))
    now = mended(ready)
    assert (now["state"], now["failure"]) == ("quarantined", f"not mended: {UNVOUCHED}")
    assert len(named(ready)) == size
    ready.check()


def test_a_row_that_came_back_is_not_learned_again(ready: Installation) -> None:
    """The planted violation: the old block is restored, and the records are as logged."""
    services = ready.services
    with Session(services.engine) as session:
        owner = session.exec(select(Record.subject_id).where(Record.record == "r1")).one()
        old = services.features.load(session, owner)
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    ready.drain()
    assert state(ready, request) == "certified"
    with Session(services.engine) as session:
        subject = session.get_one(Subject, owner)
        services.features.rewrite(session, subject, old, 8)
        session.commit()
    quarantine(ready)
    now = mended(ready)
    assert (now["state"], now["failure"]) == ("quarantined", f"not mended: {LOST}")


def test_a_lost_record_is_not_passed_over(broken: Installation) -> None:
    with Session(broken.services.engine) as session:
        session.connection().execute(delete(Record).where(col(Record.record) == "r9"))
        session.commit()
    assert mended(broken)["failure"] == f"not mended: {LOST}"
    with Session(broken.services.engine) as session:
        assert session.exec(select(Job).where(Job.kind == "mend")).one().done_at is not None


def test_a_record_that_goes_during_the_fit_is_noticed(
    broken: Installation, monkeypatch: Patch
) -> None:
    honest = RidgeFamily.refit

    def slow(family: Any, job: Any) -> Any:
        result = honest(family, job)
        with Session(broken.services.engine) as session:
            session.connection().execute(delete(Record).where(col(Record.record) == "r9"))
            session.commit()
        return result

    monkeypatch.setattr(RidgeFamily, "refit", slow)
    assert mended(broken)["failure"] == f"not mended: {LOST}"


def test_a_changed_registration_makes_no_version(broken: Installation) -> None:
    with Session(broken.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.config = {**model.config, "penalty": 9.0}
        session.commit()
    now = mended(broken)
    assert (now["state"], now["failure"]) == ("quarantined", f"not mended: {CHANGED}")


def test_only_a_quarantined_model_that_waits_for_no_decision_is_mended(
    ready: Installation, monkeypatch: Patch
) -> None:
    answer = ask(ready)
    assert (answer.status_code, "the model is ready" in answer.text) == (409, True)
    assert ask(ready, "nobody").status_code == 404
    with monkeypatch.context() as patch:
        spoil(patch)
        ready.caller.erase_records("r1", "r6")
        ready.drain()
    answer = ask(ready)
    assert (answer.status_code, "request decide" in answer.text) == (409, True)
    with Session(ready.services.engine) as session:
        assert session.exec(select(Job).where(Job.kind == "mend")).first() is None
    strange = ready.caller.http.post(f"/v1/models/{MODEL}/mend")
    assert strange.status_code == 401


def test_asking_twice_mends_once_and_what_waits_goes_on(
    broken: Installation, monkeypatch: Patch
) -> None:
    versions = named(broken).count("model.version")
    assert ask(broken).status_code == ask(broken).status_code == 202
    with Session(broken.services.engine) as session:
        assert len(session.exec(select(Job).where(Job.kind == "mend")).all()) == 1
    broken.drain()
    assert named(broken).count("model.version") == versions + 1
    assert ask(broken).status_code == 409


def test_a_worker_that_dies_leaves_it_to_the_next(
    broken: Installation, monkeypatch: Patch
) -> None:

    class AbsentError(LetheError):
        slug, title, status = "absent", "The disk is full", 503

    def absent(*_: object) -> None:
        raise AbsentError("of nobody")

    with monkeypatch.context() as patch:
        patch.setattr(RidgeFamily, "refit", absent)
        assert mended(broken)["state"] == "quarantined"
    broken.recover()
    assert shown(broken)["state"] == "ready"
    broken.check()


def test_an_error_of_the_fit_itself_ends_the_job_and_says_so(
    broken: Installation, monkeypatch: Patch
) -> None:
    def divide(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RidgeFamily, "refit", divide)
    assert mended(broken)["state"] == "quarantined"
    for _ in range(broken.settings.max_tries):
        broken.recover()
    assert "ZeroDivisionError" in shown(broken)["failure"]
    with Session(broken.services.engine) as session:
        assert session.exec(select(Job).where(Job.kind == "mend")).one().done_at is not None


def test_a_family_that_is_fitted_elsewhere_is_mended_too(
    installation: Installation, monkeypatch: Patch
) -> None:
    """A recipe: a separate process fits it, and its statistics are the digest of its rows."""
    assert installation.caller.register_key().status_code == 201
    wanted = {"ref": "trees", "classes": ["no", "maybe", "yes"], "columns": 4}
    recipe = {"estimator": "sklearn.tree.DecisionTreeClassifier", "parameters": {}}
    manifest = {**wanted, "family": "recipe", "recipe": recipe}
    answer = installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", small.pack(uploaded.rows()))},
        data={"manifest": json.dumps(manifest)},
    )
    assert answer.status_code == 201, answer.text
    installation.drain()
    first = head_digest(installation)
    with Session(installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.state, model.failure = "quarantined", "the file of its version was lost"
        session.commit()
    assert mended(installation, "trees")["state"] == "ready"
    assert head_digest(installation) == first
    installation.check()


def head_digest(at: Installation) -> str:
    answer = at.caller.operator("GET", "/v1/models/trees/versions/current")
    return str(answer.json()["head"])


def test_a_network_is_trained_again_to_the_same_bits(installation: Installation) -> None:
    networks.register(installation)
    request = networks.erase(installation, networks.whole("c1"), method="retrain")
    assert state(installation, request) == "certified"
    with Session(installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.state, model.failure = "quarantined", "restored from a backup"
        session.commit()
    assert mended(installation, small_network.MODEL)["state"] == "ready"
    _, erased, again = networks.versions(installation)
    assert (again.head_digest, again.statistics_digest) == (
        erased.head_digest,
        erased.statistics_digest,
    )
    installation.check()
