"""An attacker who can write `models` cannot get a version published by unregistered terms."""

from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from models import Contribution, Model
from tests import small
from tests.installation import Installation, install, shown, state
from tests.workers.jobs.attempts.test_decisions import decide, history
from tests.workers.jobs.cases.test_dishonest_provider import nothing_done
from tests.workers.jobs.families.network import logistic, networks
from tests.workers.jobs.families.network.test_network_certified_hazards import one_ulp
from tests.workers.jobs.lineage.changed_rows import (
    ACCEPTED,
    Change,
    changing,
    config_of,
    member,
    set_column,
    set_config,
)
from workers.jobs import batch
from workers.leases.lease import JobContext
from workers.lineage.logged import CHANGED, RENAMED

Patch = pytest.MonkeyPatch
NEWTON = "certified-newton"
WHEN = [ACCEPTED, "execute.leased", "execute.computed"]
NO_NOISE = member("settings", NEWTON, "sigma", value=0)
NETWORK: dict[str, Change] = {
    "sigma": NO_NOISE,
    "seed": member("training", "seed", value=9),
}
RIDGE: dict[str, Change] = {
    "penalty": member("penalty", value=(2.0).hex()),
    "masked": member("data", value="masked"),
    "nothing": lambda services: set_column(services, "config", {}),
    "extractor": lambda services: set_column(services, "extractor", {}),
    "method": lambda services: set_column(services, "method", "ridge-sketched"),
    "no number": lambda services: set_column(services, "config", '{"bits": NaN}'),
}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


def row(installation: Installation) -> dict[str, Any]:
    """Return the model's row as it is stored."""
    with installation.services.engine.connect() as connection:
        return dict(connection.execute(text("SELECT * FROM models")).mappings().one())


def put_back(installation: Installation, kept: dict[str, Any]) -> None:
    """Restore the registered row, as from a backup."""
    pinned = {name: kept[name] for name in ("config", "classes", "method", "extractor")}
    sets = ", ".join(f"{name} = :{name}" for name in pinned)
    with installation.services.engine.begin() as connection:
        connection.execute(text(f"UPDATE models SET {sets}"), pinned)


def is_held(installation: Installation, request: str, versions: int) -> None:
    """Check that nothing was published and that an operator is told why."""
    assert len(networks.versions(installation)) == versions, "a version was published"
    told = shown(installation, request)
    assert (told["state"], told["reason"]) == ("needs-decision", CHANGED)
    stored = row(installation)
    assert (stored["state"], stored["failure"]) == ("quarantined", CHANGED)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("field", NETWORK)
def test_no_network_is_published_by_another_configuration(
    installation: Installation, field: str, when: str
) -> None:
    logistic.register(installation, logistic.NOISE, method=NEWTON)
    kept, before = row(installation), networks.published(installation)
    request = networks.submit(installation, networks.some("r1"))
    with changing(installation, when, NETWORK[field]):
        installation.drain()
    is_held(installation, request, versions=1)
    assert networks.published(installation) == before
    # A decision alone changes nothing: the row still differs.
    assert decide(installation, request, "retry") == 200
    installation.drain()
    is_held(installation, request, versions=1)
    put_back(installation, kept)
    assert decide(installation, request, "retry") == 200
    installation.drain()
    found = networks.statement(installation, request).predicate
    assert found.guarantee.class_ == "certified-approximate"
    assert found.method.parameters["noise.release"] == "1 of 2"
    assert networks.model(installation).state == "ready"
    installation.check()


def test_what_is_changed_and_set_back_in_between_is_not_used(
    installation: Installation, monkeypatch: Patch
) -> None:
    """The compared row is the one used for the computation."""
    logistic.register(installation, logistic.NOISE, method=NEWTON)
    honest = config_of(installation.services)
    collect = batch.collect

    def late(job: JobContext) -> Any:
        NO_NOISE(job.services)
        return collect(job)

    monkeypatch.setattr(batch, "collect", late)
    request = networks.submit(installation, networks.some("r1"))
    back: Change = lambda services: set_config(services, honest)  # noqa: E731
    with changing(installation, "execute.computed", back):
        installation.drain()
    found = networks.statement(installation, request).predicate
    assert found.guarantee.class_ == "certified-approximate"
    off = logistic.published(installation) - logistic.best({"r1"})
    assert np.linalg.norm(off) > 0.01, "there is no noise in it"


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("field", RIDGE)
def test_no_ridge_head_is_published_by_another_configuration(
    ready: Installation, field: str, when: str
) -> None:
    kept = row(ready)
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    with changing(ready, when, RIDGE[field]):
        ready.drain()
    put_back(ready, kept)
    is_held(ready, request, versions=1)
    assert "request.executed" not in history(ready, request)
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert state(ready, request) == "certified"
    assert networks.statement(ready, request).predicate.method.id == "ridge-exact"
    ready.check()


@pytest.mark.parametrize("when", ["verify.recorded", "execute.computed"])
def test_no_refit_is_published_by_another_configuration(
    ready: Installation, monkeypatch: Patch, when: str
) -> None:
    kept = row(ready)
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    once: list[str] = []

    def write(step: str) -> None:
        if step == "verify.recorded":
            monkeypatch.undo()
        if step == when and not once and "request.escalated" in history(ready, request):
            once.append(step)
            RIDGE["penalty"](ready.services)

    nothing_done(monkeypatch)
    steps.install(write)
    try:
        ready.drain()
    finally:
        steps.install(None)
    assert once
    is_held(ready, request, versions=2)
    put_back(ready, kept)
    assert decide(ready, request, "retry") == 200
    ready.drain()
    assert state(ready, request) == "certified"
    assert networks.statement(ready, request).predicate.method.id == "ridge-exact-refit"
    ready.check()


def test_no_retraining_is_published_by_another_configuration(
    installation: Installation, monkeypatch: Patch
) -> None:
    logistic.register(installation, logistic.NOISE, method=NEWTON)
    kept = row(installation)
    request = networks.submit(installation, networks.some("r1"))
    one_ulp(monkeypatch)
    with changing(installation, "verify.recorded", NETWORK["seed"]):
        installation.drain()
    is_held(installation, request, versions=2)
    put_back(installation, kept)
    assert decide(installation, request, "retry") == 200
    installation.drain()
    assert networks.published(installation) == logistic.retrained({"r1"})
    assert state(installation, request) == "certified"
    installation.check()


def test_requests_of_one_update_are_held_and_go_on_together(
    settings: Settings, fitted: PrivateKey
) -> None:
    waiting = {"batch_min_requests": 2, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        made.caller.key = fitted
        kept = row(made)
        requests = [str(made.caller.erase_records(one).json()["id"]) for one in ("r1", "r2")]
        with changing(made, "execute.computed", RIDGE["penalty"]):
            made.drain()
        is_held(made, requests[0], versions=1)
        put_back(made, kept)
        assert decide(made, requests[0], "retry") == 200
        made.drain()
        assert [state(made, one) for one in requests] == ["certified"] * 2
        assert len(networks.versions(made)) == 2, "they were not executed together"
        made.check()


def test_giving_up_what_was_not_begun_lets_the_next_one_run(ready: Installation) -> None:
    kept = row(ready)
    first, second = (str(ready.caller.erase_records(one).json()["id"]) for one in ("r1", "r2"))
    with changing(ready, ACCEPTED, RIDGE["penalty"]):
        ready.drain()
    is_held(ready, first, versions=1)
    put_back(ready, kept)
    assert decide(ready, first, "abandon") == 200
    ready.recover()
    assert (state(ready, first), state(ready, second)) == ("failed", "certified")
    ready.check()


@pytest.mark.parametrize("when", WHEN)
def test_nothing_is_learned_by_another_configuration(ready: Installation, when: str) -> None:
    caller, own = ready.caller, (ready.caller.keyid, ready.caller.key)
    caller.keyid = "feeder"
    assert caller.register_key(role="client", client="c1").status_code == 201
    more = small.rows(seed=1, count=4, first=1000)
    more["clients"] = np.full(4, "c1")
    path = f"/v1/models/{small.MODEL}/contributions"
    sent = caller.signed(
        "POST", path, small.pack(more), content_type="application/octet-stream"
    )
    assert sent.status_code == 202, sent.text
    with changing(ready, when, RIDGE["penalty"]):
        ready.drain()
    caller.keyid, caller.key = own
    assert len(networks.versions(ready)) == 1
    with Session(ready.services.engine) as session:
        found = session.exec(select(Contribution).where(Contribution.state == "failed")).one()
    assert found.failure == CHANGED


def test_two_models_that_swapped_their_references_publish_nothing(ready: Installation) -> None:
    """Each row then matches a registration, but its versions belong to the other."""
    assert ready.caller.register_model(ref="other", penalty=2.0).status_code == 201
    ready.drain()
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    with Session(ready.services.engine) as session:
        one, other = session.exec(select(Model).order_by(Model.ref)).all()
        names = ("ref", "config", "classes", "method", "extractor", "tombstone_key")
        mine, its = ({name: getattr(row, name) for name in names} for row in (one, other))
        one.ref = "-"
        session.flush()
        for row_, values in ((other, mine), (one, its)):
            for name, value in values.items():
                setattr(row_, name, value)
            session.flush()
        session.commit()
    ready.drain()
    assert len(networks.versions(ready)) == 2
    assert shown(ready, request)["reason"] == RENAMED
