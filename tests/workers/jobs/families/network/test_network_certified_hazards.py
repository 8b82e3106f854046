"""A cheating provider of a certified logistic head is refuted, and a retraining follows."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sqlmodel import Session, select

from models import Model, RequestEvent
from tests import small_network
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.small import pack
from tests.workers.jobs.families.network import logistic, networks
from tests.workers.jobs.lineage.changed_rows import uncompared
from workers.families.network import (
    case as network_case,
)
from workers.families.network import (
    certified as network_certified,
)
from workers.families.network import logged as network_releases
from workers.families.network import (
    training as network_training,
)
from workers.families.network.case import Common
from workers.families.network.config import TrainingState
from workers.families.network.noisy import SilosError
from workers.judge.certified.logistic_noise import NoiseClaim
from workers.judge.checks import ODD_INPUT
from workers.methods.certified.release import noisy
from workers.training.networks.weights import decode_weights, encode_weights

Patch = pytest.MonkeyPatch
ONE = {**logistic.NOISE, "releases": 1}
Left = tuple[Common, NoiseClaim]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: judgements do not depend on it."""
    return sqlite_url


def one_ulp(patch: Patch) -> None:
    honest = network_training.encoded

    def encoded(config: Any, weights: Any, state: Any) -> Any:
        return honest(config, weights if state.exact else nudged(weights), state)

    patch.setattr("workers.families.network.training.encoded", encoded)


def nudged(weights: Any) -> Any:
    moved = weights["head.weight"].clone()
    moved[0, 0] = torch.nextafter(moved[0, 0], torch.tensor(torch.inf))
    return {**weights, "head.weight": moved}


def a_release_logged_as_a_training(patch: Patch) -> None:
    def state(*fields: Any, exact: bool = True) -> TrainingState:
        return TrainingState(*fields)

    patch.setattr("workers.families.network.training.TrainingState", state)


def a_budget_that_never_ends(patch: Patch) -> None:
    always = SimpleNamespace(
        releases_since_training=lambda *_: 0, ordinal=network_releases.ordinal
    )
    patch.setattr(network_certified, "logged", always)


def test_equal_rows_that_come_back_do_not_bring_the_noise_back(
    installation: Installation,
) -> None:
    """Learning and erasing again leaves the same rows: equal noise would cancel itself."""
    wide = {**logistic.NOISE, "epsilon": 20.0, "releases": 2}
    logistic.register(installation, wide, method="certified-newton")
    networks.erase(installation, networks.some("r1"))
    first = logistic.published(installation)
    extra = {**small_network.rows(seed=5, count=9, first=1000), "clients": np.full(9, "c3")}
    caller = installation.caller
    own = caller.keyid, caller.key
    caller.keyid = "feeder"
    assert caller.register_key(role="client", client="c3").status_code == 201
    path = f"/v1/models/{small_network.MODEL}/contributions"
    sent = caller.signed("POST", path, pack(extra), content_type="application/octet-stream")
    assert sent.status_code == 202
    caller.keyid, caller.key = own
    installation.drain()
    request_id = networks.erase(installation, networks.some(*extra["records"].tolist()))
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "certified-approximate"
    second = logistic.published(installation)
    # The same rows have the same centre, so equal noise would leave no distance except
    # rounding. Two draws differ by √2 σ times a χ of 21 degrees of freedom, which is below
    # σ√21/2 once in two million.
    assert np.linalg.norm(second - first) > logistic.SIGMA * np.sqrt(len(first)) / 2


def test_what_is_no_release_escalates_to_a_retraining_that_begins_the_budget_anew(
    installation: Installation, monkeypatch: Patch
) -> None:
    logistic.register(installation, ONE, method="certified-newton")

    def erased(record: str) -> str:
        request_id = networks.erase(installation, networks.some(record))
        found = networks.statement(installation, request_id).predicate
        return escalation_line(found.method.parameters) or found.guarantee.class_

    with monkeypatch.context() as patch:
        one_ulp(patch)
        escalation = erased("r0")
    assert escalation.startswith("certified-newton: FAIL (noise: 1 of 21 weights")
    assert networks.published(installation) == logistic.retrained({"r0"})
    with monkeypatch.context() as patch:
        a_release_logged_as_a_training(patch)
        escalation = erased("r1")
    assert escalation.startswith("certified-newton: FAIL (claim: what was published cannot be")
    assert erased("r2") == "certified-approximate"  # the only one that the budget allows
    a_budget_that_never_ends(monkeypatch)
    assert "budget: more than the 1 releases" in erased("r3")
    installation.check()


def published(left: Left, change: Callable[[Any], Any]) -> Left:
    """Return the results with another file, published under its own digest."""
    common, noise = left
    network, weights = decode_weights(common.file)
    file = encode_weights(network.id, network.parameters, change(weights))
    after = common.case.after.model_copy()
    after.head_digest = hashlib.sha256(file).hexdigest()
    return replace(common, file=file, case=replace(common.case, after=after)), noise


def centred(left: Left, centre: Any, sigma: float) -> Left:
    """Return the results with noise of this size around another centre."""
    common, noise = left
    network, _ = decode_weights(common.file)
    context = f"{common.case.after.statistics_digest}|{noise.ordinal}"
    made = noisy(network, centre, noise.key, context, sigma)
    bias, weight = centre["head.bias"].numpy(), centre["head.weight"].numpy()
    common, _ = published(left, lambda _: made)
    return common, replace(noise, centre_bias=bias, centre_weight=weight)


def centre_of(noise: NoiseClaim, by: float = 0.0) -> Any:
    return {
        "head.bias": torch.from_numpy(noise.centre_bias + np.float32(by)),
        "head.weight": torch.from_numpy(noise.centre_weight),
    }


def promised(left: Left, **bounds: str) -> Left:
    plan = left[0].case.plan
    plan = replace(plan, bounds={**plan.bounds, **bounds})
    return replace(left[0], case=replace(left[0].case, plan=plan)), left[1]


def roomy(left: Left) -> Left:
    """Return the results with twice the bound, so that no other check narrowly fails."""
    return promised(left, distance=repr(2 * float(left[0].case.plan.bounds["distance"])))


CHEATS: dict[str, tuple[Callable[[Left], Left], set[str]]] = {
    "honest": (lambda left: left, set()),
    "honest, made again": (
        lambda left: centred(left, centre_of(left[1]), logistic.SIGMA),
        set(),
    ),
    "less noise": (lambda left: centred(left, centre_of(left[1]), 0.005), {"noise"}),
    "another key": (lambda left: (left[0], replace(left[1], key=bytes(32))), {"noise"}),
    "another centre": (
        lambda left: (
            roomy(left)[0],
            replace(left[1], centre_bias=left[1].centre_bias + np.float32(1e-4)),
        ),
        {"noise"},
    ),
    "too far from the optimum": (
        lambda left: roomy(centred(left, centre_of(left[1], 0.005), logistic.SIGMA)),
        {"budget"},
    ),
    "beyond the tolerance": (
        lambda left: centred(left, centre_of(left[1], 9.0), logistic.SIGMA),
        {"gradient-bound", "budget"},
    ),
    "no noise": (lambda left: published(left, lambda _: centre_of(left[1])), {"noise"}),
    "one ulp": (lambda left: published(left, nudged), {"noise"}),
    "a closer bound": (lambda left: promised(left, distance="0.001"), {"gradient-bound"}),
    "other rows before": (
        lambda left: (replace(left[0], rows_before="0" * 64), left[1]),
        {"rows-before"},
    ),
    "other rows after": (
        lambda left: (replace(left[0], rows_after="0" * 64), left[1]),
        {"data", "noise"},
    ),
    "a file of another digest": (
        lambda left: (replace(left[0], file=published(left, nudged)[0].file), left[1]),
        {"model-file", "noise"},
    ),
}
UNREADABLE: dict[str, Callable[[Left], Left]] = {
    "a better epsilon": lambda left: promised(left, epsilon="0.1"),
    "a bound more": lambda left: promised(left, secrecy="total"),
    "no model": lambda left: (replace(left[0], file=b"no model file"), left[1]),
}


def test_each_check_finds_what_was_tampered_with(
    installation: Installation, monkeypatch: Patch
) -> None:
    honest = network_case.judge_certified
    left: list[Left] = []

    def judge(*given: Any) -> Any:
        left.append(given)
        return honest(*given)

    monkeypatch.setattr(network_case, "judge_certified", judge)
    logistic.register(installation, ONE, method="certified-newton")
    networks.erase(installation, networks.some("r1"))
    for name, (cheat, wanted) in CHEATS.items():
        report = honest(*cheat(left[0])).report
        assert {c.name for c in report.checks if not c.passed} == wanted, name
        assert report.result == ("FAIL" if wanted else "PASS"), name
    for name, cheat in UNREADABLE.items():
        with pytest.raises(Exception) as caught:  # the caller refutes it
            honest(*cheat(left[0]))
        assert isinstance(caught.value, ODD_INPUT), name


def test_terms_that_were_changed_since_they_were_registered_are_refuted(
    installation: Installation, monkeypatch: Patch
) -> None:
    uncompared(monkeypatch)
    logistic.register(installation, ONE, method="certified-newton")
    with Session(installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        more = {"certified-newton": {**ONE, "epsilon": 5.0}}
        model.config = {**model.config, "settings": more}
        session.add(model)
        session.commit()
    request_id = networks.erase(installation, networks.some("r0"))
    assert networks.request(installation, request_id).state == "needs-decision"
    with Session(installation.services.engine) as session:
        query = select(RequestEvent).where(RequestEvent.event == "request.escalated")
        (escalated,) = session.exec(query)
    assert "registration" in escalated.payload["checks"]


@pytest.mark.parametrize("method", ["certified-newton", "hf-kcu"])
def test_silos_are_not_sent_the_weights_without_noise(
    installation: Installation, method: str
) -> None:
    services = installation.services
    divided = replace(services, settings=services.settings.model_copy(update={"silos": 1}))
    config: Any = SimpleNamespace(settings={"certified-newton": logistic.NOISE})
    nothing: Any = None  # refused before the model is read
    with pytest.raises(SilosError, match="unset LETHE_SILOS, or use retrain"):
        network_certified.load_terms(divided, nothing, config, {}, method)
    # Without noise nothing is hidden.
    config.settings = {"certified-newton": logistic.BOUND}
    assert network_certified.load_terms(divided, nothing, config, {}, method).key is None
