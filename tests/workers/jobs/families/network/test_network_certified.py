"""Certified removal of a logistic head from a signed request to its certificate."""

from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.schemas.families.networks import NewNetwork
from app.settings import Settings
from app.vault.master import noise_key
from lethe.log.entries import parse_leaf
from models import Artifact, LogEntry
from tests import small_network
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.small import pack
from tests.workers.jobs.families.network import logistic, networks
from tests.workers.judge.certified.logistic_claims import box_muller

NEWTON = "certified-newton"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: certification does not depend on it."""
    return sqlite_url


def leaves(installation: Installation, event: str) -> list[dict[str, str]]:
    """Return the digests of all entries of an event of the model, in order."""
    with Session(installation.services.engine) as session:
        entries = session.exec(select(LogEntry).where(LogEntry.event == event))
        return [dict(parse_leaf(entry.leaf).digests) for entry in entries]


def bound_of(installation: Installation, request_id: str) -> float:
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == found.verifier.id == "certified-approximate"
    assert all(check.passed for check in found.checks)
    return float(found.guarantee.bounds["distance"])


def test_a_stream_of_requests_is_certified_until_its_noise_is_spent(
    installation: Installation,
) -> None:
    logistic.register(installation, logistic.NOISE, method=NEWTON)
    key = noise_key(installation.services.root_secret, networks.model(installation))
    committed = sha256(b"lethe certified noise key 1\x00" + key).hexdigest()
    assert leaves(installation, "model.registered")[0]["noise"] == committed
    gone: set[str] = set()
    for number in (1, 2):
        record = f"r{number}"
        gone.add(record)
        request_id = networks.erase(installation, networks.some(record))
        bound = bound_of(installation, request_id)
        found = networks.statement(installation, request_id).predicate
        assert found.guarantee.bounds["epsilon"] == "1.0"
        assert found.guarantee.bounds["delta"] == "1e-05"
        assert "Gaussian noise" in found.guarantee.statement
        assert found.method.parameters["noise.release"] == f"{number} of 2"
        assert found.method.parameters["noise.commitment"] == committed
        checks = {check.name: check.value for check in found.checks}
        assert checks["budget"].startswith(f"release {number} of 2")
        assert {"rows-before", "registration", "noise"} <= set(checks)
        off = logistic.published(installation) - logistic.best(gone)
        assert 0.01 < np.linalg.norm(off) <= bound
        # Only with the key can the optimum of the retained rows be computed.
        known = leaves(installation, "model.version")
        context = f"{known[-1]['statistics']}|{len(known) - 1}"
        noise = logistic.SIGMA * box_muller(key, context, len(off))
        assert np.linalg.norm(off - noise) < 1e-5
    third = networks.erase(installation, networks.some("r3"))
    found = networks.statement(installation, third).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert escalation_line(found.method.parameters) == "certified-newton: BudgetSpent"
    assert "escalated" in networks.events(installation, third)
    assert networks.published(installation) == logistic.retrained({"r1", "r2", "r3"})
    # A training begins a new budget, and the log shows which versions are trainings.
    fourth = networks.erase(installation, networks.some("r5"))
    bound_of(installation, fourth)
    last = networks.statement(installation, fourth).predicate.method.parameters
    assert last["noise.release"] == "1 of 2"
    trained = ["start" in digests for digests in leaves(installation, "model.version")]
    assert trained == [True, False, False, True, False]
    with Session(installation.services.engine) as session:
        kinds = {a.kind for a in session.exec(select(Artifact)) if a.wrapped_key is not None}
    assert kinds == {"evidence", "head", "state"}  # no centre, no key, no residual
    installation.check()


def test_without_noise_the_bound_is_certified_and_hf_kcu_gets_it_too(
    installation: Installation,
) -> None:
    # The row norm is measured, the tolerance is the default.
    logistic.register(installation, None)
    gone: set[str] = set()
    for record, method in (("r1", NEWTON), ("r2", "hf-kcu")):
        gone.add(record)
        request_id = networks.erase(installation, networks.some(record), method=method)
        bound = bound_of(installation, request_id)
        found = networks.statement(installation, request_id).predicate
        assert found.method.id == method
        assert set(found.guarantee.bounds) == {"distance"}
        assert "noise" not in found.guarantee.statement
        off = np.linalg.norm(logistic.published(installation) - logistic.best(gone))
        assert off <= bound < 2.0**-7 * np.linalg.norm(logistic.published(installation))


def test_hf_kcu_gets_noise_where_it_is_registered_and_says_nothing_of_its_step(
    installation: Installation,
) -> None:
    wide = {**logistic.NOISE, "epsilon": 20.0}
    logistic.register(installation, wide)
    networks.erase(installation, networks.some("r1"), method=NEWTON)  # close to an optimum
    request_id = networks.erase(installation, networks.some("r2"), method="hf-kcu")
    bound = bound_of(installation, request_id)
    found = networks.statement(installation, request_id).predicate
    assert found.method.parameters["noise.release"] == "2 of 2"
    assert not any(name.startswith("hf-kcu.") for name in found.method.parameters)
    off = np.linalg.norm(logistic.published(installation) - logistic.best({"r1", "r2"}))
    assert 0.01 < off <= bound
    # When the budget is spent, it falls back too, before any computation is wasted.
    spent = networks.erase(installation, networks.some("r3"), method="hf-kcu")
    escalation = escalation_line(
        networks.statement(installation, spent).predicate.method.parameters
    )
    assert escalation == "hf-kcu: BudgetSpent"


def test_requests_of_one_update_are_one_release_and_need_no_held_out_row(
    settings: Settings, ledger: Ledger
) -> None:
    waiting = {"batch_min_requests": 2, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        logistic.register(made, logistic.NOISE, method=NEWTON, held_out=0.0)
        ids = [networks.submit(made, networks.some(record)) for record in ("r1", "r2")]
        made.drain()
        for request_id in ids:
            bound_of(made, request_id)
            said = networks.statement(made, request_id).predicate.method.parameters
            assert (said["noise.release"], said["batch"]) == ("1 of 2", "2")


def test_rows_longer_than_registered_are_refused(installation: Installation) -> None:
    logistic.register(installation, logistic.BOUND)
    caller = installation.caller
    caller.keyid = "feeder"
    assert caller.register_key(role="client", client="c3").status_code == 201
    more = small_network.rows(seed=1, count=4, first=120)
    more["clients"] = np.full(4, "c3")
    more["inputs"][2] *= 100
    path = f"/v1/models/{small_network.MODEL}/contributions"
    answer = caller.signed("POST", path, pack(more), content_type="application/octet-stream")
    assert answer.status_code == 202, answer.text
    installation.drain()
    shown = caller.operator("GET", f"{path}/{answer.json()['id']}").json()
    assert shown["state"] == "failed"
    assert "row_norm 8" in shown["failure"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {NEWTON: {}}}, "certified-newton.row_norm: Field required"),
        ({"settings": {}, "method": NEWTON}, "needs its row_norm"),
        ({"settings": {NEWTON: {**logistic.BOUND, "before": 3}}}, "before: Extra inputs"),
        ({"settings": {NEWTON: {"row_norm": 0.5}}}, "row_norm: Input should be greater"),
        ({"settings": {NEWTON: {**logistic.BOUND, "sigma": 0.1}}}, "sigma needs epsilon"),
        ({"settings": {NEWTON: {**logistic.BOUND, "epsilon": 1.0}}}, "need a sigma above 0"),
        ({"settings": {NEWTON: {**logistic.NOISE, "delta": 1e-11}}}, "keeps no delta below"),
        ({"training": {"rounds": 1}}, "weight_decay above 0"),
        ({"training": {"rounds": 1, "local": {**logistic.LOCAL, "optimizer": "adamw"}}}, "sgd"),
        (
            {"network": {"id": "simple-cnn", "parameters": {}}, "input_shape": [1, 28, 28]},
            "for the network logistic",
        ),
    ],
)
def test_a_registration_that_could_not_be_certified_is_refused_at_once(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError) as caught:
        NewNetwork.model_validate(
            small_network.manifest(
                **{
                    "training": logistic.TRAINING,
                    "settings": {NEWTON: logistic.NOISE},
                    **changes,
                }
            )
        )
    assert words in str(caught.value)
