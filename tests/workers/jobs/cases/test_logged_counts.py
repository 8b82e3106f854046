"""Spent budgets are counted from the log: writing tables cannot lower them."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from sqlmodel import Session, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.settings import Settings
from models import Job, Model
from tests import small_network
from tests.app.ledger.samples import tamper
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.small import pack
from tests.workers.jobs.attempts.ladders import HF_KCU, escalations, policy
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import logistic, networks
from tests.workers.jobs.families.network.test_network_certified import leaves
from workers.families.network import (
    certified as network_certified,
)
from workers.families.network import logged as network_releases
from workers.families.network import (
    training as network_training,
)
from workers.families.network import (
    update as network_update,
)
from workers.families.network.logged import UnprovenTrainingError, releases_since_training
from workers.updates.update import UpdateResult

Patch = pytest.MonkeyPatch


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the counts do not depend on it."""
    return sqlite_url


def test_tables_that_are_emptied_and_columns_that_are_changed_lower_no_count(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    planted = plant(monkeypatch, "yeom:auc")
    networks.erase(installation, networks.some("r0", "r1"))
    tamper(
        installation.services.engine,
        "DELETE FROM request_events WHERE event = 'request.verified'",
        "UPDATE log_entries SET ref = 'n', event = 'x.y' WHERE event <> 'model.registered'",
    )
    # As a newly started process would read the log.
    ledger = load_ledger(installation.settings, installation.services.engine)
    started = replace(installation.services, ledger=ledger)
    networks.erase(replace(installation, services=started), networks.some("r2"))
    assert [claim.requests_before for claim in planted.seen] == [0, 1, 2]


def test_who_kills_a_judge_and_empties_its_seed_spends_alpha_again(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy())
    planted = plant(monkeypatch)

    def dies() -> None:
        planted.told = lambda: None
        with Session(installation.services.engine) as session:
            for job in session.exec(select(Job).where(Job.stage == "verify")):
                job.checkpoint_id = None
            session.commit()
        raise OSError("killed")

    planted.told = dies
    request_id = networks.erase(installation, networks.some("r0"))
    installation.recover()
    assert networks.request(installation, request_id).state == "certified"
    assert [claim.requests_before for claim in planted.seen] == [0, 1]
    begun = leaves(installation, "model.judging")
    assert len({entry["seed"] for entry in begun}) == 2
    assert len({entry["head"] for entry in begun}) == 1


def test_a_seed_that_was_chosen_is_no_judgement(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy())
    plant(monkeypatch)
    monkeypatch.setattr("workers.leases.checkpoints.load", lambda *_: bytes(32))
    request_id = networks.erase(installation, networks.some("r0"))
    assert [told["checks"] for told in escalations(installation, request_id)] == ["1 claim"]


def model_of(ledger: Ledger, *entries: tuple[str, str, bool]) -> Model:
    """Return a model with these logged versions, as (event, head, start) in order."""
    model = Model(ref="m", method="", config={}, classes=[], extractor={}, tombstone_key=b"k")
    for event, head, start in entries:
        said = {"head": head * 64, "statistics": "e" * 64}
        said |= {"start": "f" * 64} if start else {}
        ledger.transact(partial(record_model_event, ref="m", event=event, digests=said))
    return model


TRAINED = ("model.version", "a", True)
REPEATED = ("model.repeated", "a", False)
RELEASED = ("model.version", "b", False)


@pytest.mark.parametrize(
    ("entries", "count"),
    [
        ((TRAINED, REPEATED), 0),
        ((TRAINED, REPEATED, RELEASED, RELEASED), 2),
        ((TRAINED, REPEATED, RELEASED, TRAINED, REPEATED), 0),
        ((TRAINED, RELEASED, REPEATED), 1),
        ((TRAINED,), None),
        ((TRAINED, REPEATED, RELEASED, TRAINED), None),
        ((TRAINED, REPEATED, ("model.version", "c", True), RELEASED), None),
        ((REPEATED, TRAINED), None),
        ((TRAINED, ("model.repeated", "b", False)), None),
        ((), None),
    ],
)
def test_a_budget_begins_with_a_repeated_training_only(
    ledger: Ledger, entries: tuple[tuple[str, str, bool], ...], count: int | None
) -> None:
    model = model_of(ledger, *entries)
    if count is not None:
        assert releases_since_training(ledger, model) == count
        return
    with pytest.raises(UnprovenTrainingError):
        releases_since_training(ledger, model)


def test_a_release_is_counted_up_to_itself(ledger: Ledger) -> None:
    model = model_of(ledger, TRAINED, REPEATED, RELEASED, RELEASED, TRAINED)
    second: Any = SimpleNamespace(number=3, log_index=3)
    assert releases_since_training(ledger, model, second) == 1
    assert network_releases.ordinal(ledger, model, second) == 2
    assert network_releases.ordinal(ledger, model) == 4


def contribute(installation: Installation) -> dict[str, str]:
    """Send nine rows of a new client; return the outcome."""
    caller = installation.caller
    own = caller.keyid, caller.key
    caller.keyid = "feeder"
    assert caller.register_key(role="client", client="c3").status_code == 201
    path = f"/v1/models/{small_network.MODEL}/contributions"
    more = {**small_network.rows(seed=5, count=9, first=1000), "clients": ["c3"] * 9}
    sent = caller.signed("POST", path, pack(more), content_type="application/octet-stream")
    assert sent.status_code == 202, sent.text
    caller.keyid, caller.key = own
    installation.drain()
    shown: dict[str, str] = caller.operator("GET", f"{path}/{sent.json()['id']}").json()
    return shown


def test_weights_published_as_a_training_are_not_published(
    settings: Settings, ledger: Ledger, monkeypatch: Patch
) -> None:
    with install(settings.model_copy(update={"max_tries": 1})) as made_here:
        logistic.register(made_here, logistic.NOISE, method="certified-newton")
        assert [set(e) for e in leaves(made_here, "model.repeated")] == [{"head", "statistics"}]
        first = networks.published(made_here)
        honest = network_training.retrained

        def retrained(*given: Any) -> UpdateResult:
            found = honest(*given)
            return replace(found, encoded=replace(found.encoded, head=first))

        monkeypatch.setattr("workers.families.network.update.retrained", retrained)
        shown = contribute(made_here)
        assert shown["state"] == "failed"
        assert "repeated and ended with another model" in shown["failure"]
        assert networks.published(made_here) == first
        assert len(networks.versions(made_here)) == 1


def test_after_a_training_that_nobody_repeated_there_is_no_budget(
    installation: Installation, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(network_update, "repeat", lambda *_: False)
        logistic.register(installation, logistic.NOISE, method="certified-newton")
    assert escalation_of(installation, "r1") == "certified-newton: UnprovenTraining"
    # The judge repeated that retraining: a budget begins.
    assert escalation_of(installation, "r2") == "1 of 2"
    with monkeypatch.context() as patch:
        patch.setattr(network_update, "repeat", lambda *_: False)
        assert contribute(installation)["state"] == "learned"
    with monkeypatch.context() as patch:  # the judge counts independently
        counted = {"releases_since_training": lambda *_: 0, "ordinal": network_releases.ordinal}
        patch.setattr(network_certified, "logged", SimpleNamespace(**counted))
        assert "FAIL (claim: what was published cannot be" in escalation_of(installation, "r3")
    installation.check()


def escalation_of(installation: Installation, record: str) -> str:
    """Erase a record; return why its method fell back, or the number of its release."""
    found = networks.statement(
        installation, networks.erase(installation, networks.some(record))
    )
    told = found.predicate.method.parameters
    return escalation_line(told) or told["noise.release"]
