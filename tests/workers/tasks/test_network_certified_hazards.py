"""A provider who cheats with a certified logistic head is refuted, and a retraining follows."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sqlmodel import Session, select

from models import Model, RequestEvent
from tests.installation import Installation
from tests.workers.tasks import logistic, networks
from workers.tasks import network_certified, network_update
from workers.tasks.network_state import TrainingState
from workers.unlearning.certified import method as newton
from workers.unlearning.certified.method import CertifiedNewton
from workers.unlearning.certified.newton import Reached
from workers.unlearning.certified.objective import Gradient
from workers.unlearning.certified.release import Release

Patch = pytest.MonkeyPatch
ONE = {**logistic.NOISE, "releases": 1}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what is judged does not depend on it."""
    return sqlite_url


def of_terms(patch: Patch, change: Callable[[network_certified.Terms], Any]) -> None:
    honest = network_certified.load_terms
    patch.setattr(network_update, "load_terms", lambda *of: change(honest(*of)))


def less_noise_than_registered(patch: Patch) -> None:
    of_terms(patch, lambda of: replace(of, method=replace(of.method, sigma=logistic.SIGMA / 2)))


def noise_of_a_chosen_key(patch: Patch) -> None:
    of_terms(patch, lambda of: replace(of, key=bytes(32)))


def a_budget_that_never_ends(patch: Patch) -> None:
    always = SimpleNamespace(made=lambda *_: 0)
    patch.setattr(network_certified, "network_releases", always)


def another_centre_for_the_judge(patch: Patch) -> None:
    honest = CertifiedNewton.released

    def released(*of: Any) -> Release:
        found = honest(*of)
        return replace(found, centre={name: part + 1e-4 for name, part in found.centre.items()})

    patch.setattr(CertifiedNewton, "released", released)


def one_ulp(patch: Patch) -> None:
    honest = network_update.encoded

    def encoded(config: Any, weights: Any, state: Any) -> Any:
        moved = weights["head.weight"].clone()
        moved[0, 0] = torch.nextafter(moved[0, 0], torch.tensor(torch.inf))
        return honest(config, {**weights, "head.weight": moved}, state)

    patch.setattr(network_update, "encoded", encoded)


def nothing_was_unlearned(patch: Patch) -> None:
    """The model stays where the erased record pulled it; the gradient is said to be small."""

    def stays(asking: Any, *_: Any, **__: Any) -> Reached:
        size = sum(part.numel() for part in asking.weights.values())
        return Reached(asking.weights, Gradient(torch.zeros(size).double(), 1e-7), 1, 1)

    patch.setattr(newton, "minimise", stays)


def promised(patch: Patch, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    honest = network_certified.bounds_of
    patch.setattr(network_certified, "bounds_of", lambda *of: change(honest(*of)))


def a_closer_bound(patch: Patch) -> None:
    promised(patch, lambda said: {**said, "distance": "0.001"})


def a_better_epsilon(patch: Patch) -> None:
    promised(patch, lambda said: {**said, "epsilon": "0.1"})


def a_release_logged_as_a_training(patch: Patch) -> None:
    def state(start: str, data: str, rounds: int, exact: bool) -> TrainingState:
        return TrainingState(start, data, rounds)

    patch.setattr(network_update, "TrainingState", state)


CHEATS = {
    less_noise_than_registered: "noise: 21 of 21 weights have other noise",
    noise_of_a_chosen_key: "noise: the key is not the committed one",
    another_centre_for_the_judge: "noise: 21 of 21 weights have other noise",
    one_ulp: "noise: 1 of 21 weights have other noise",
    nothing_was_unlearned: "budget: the centre is further from the optimum",
    a_closer_bound: "gradient-bound: the claimed bound is below the proven",
    a_better_epsilon: "claim: what was published cannot be evaluated",
    a_release_logged_as_a_training: "claim: what was published cannot be evaluated",
}


def test_what_was_not_released_as_registered_is_refuted(
    installation: Installation, monkeypatch: Patch
) -> None:
    """Each ends with the retraining, which begins the budget anew for the next."""
    logistic.register(installation, ONE, method="certified-newton")
    records = iter(f"r{number}" for number in (0, 1, 2, 3, 5, 6, 7, 9, 10, 11))
    gone: set[str] = set()

    def erased() -> str:
        gone.add(record := next(records))
        request_id = networks.erase(installation, networks.some(record))
        return networks.statement(installation, request_id).predicate.method.parameters.get(
            "climb", ""
        )

    for cheat, words in CHEATS.items():
        with monkeypatch.context() as patch:
            cheat(patch)
            climb = erased()
        assert climb.startswith("certified-newton: FAIL ("), cheat.__name__
        assert words in climb, cheat.__name__
        assert networks.published(installation) == logistic.retrained(gone)
    assert erased() == ""  # honest, and the only one that the budget has room for
    a_budget_that_never_ends(monkeypatch)
    assert "budget: more than the 1 releases" in erased()
    installation.check()


def test_terms_that_were_changed_since_they_were_registered_are_refuted(
    installation: Installation,
) -> None:
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
