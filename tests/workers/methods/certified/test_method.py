"""certified-newton on small federations; the oracle is a dense refit in float64."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.methods.network.hf_kcu.small import (
    CONFIG,
    EXACT,
    NETWORK,
    PENALTY,
    POISONED,
    case_of,
    refit,
    spoil,
    without,
)
from tests.workers.methods.network.small import KilledError, Silent, equal, killed_after
from workers.errors import RefusedError
from workers.methods.certified.bound import with_bound, with_noise
from workers.methods.certified.budget import (
    Budget,
    BudgetSpentError,
    LooseResidualError,
)
from workers.methods.certified.method import (
    CertifiedNewton,
    LooseBoundError,
    minimise,
    power_above,
)
from workers.methods.certified.noise import commitment, gaussian
from workers.methods.certified.objective import NotConvexError
from workers.methods.certified.release import Release
from workers.methods.network.base import (
    Hooks,
    Side,
    Unlearned,
    UnlearningCase,
    UnlearningRequest,
)
from workers.methods.network.hf_kcu.products import Asking, NobodyAnsweredError
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.training.fedavg.base import Work
from workers.training.fedavg.errors import CheckpointError
from workers.training.networks.registry import network
from workers.training.networks.weights import from_vector, initial_weights, norm, to_vector

KEY = bytes(range(32))
DATA = "ab" * 32
METHOD = CertifiedNewton(row_norm=12.0)
NOISY = replace(METHOD, sigma=0.01, releases=4, tolerance=0.1)


@cache
def optimum() -> np.ndarray:
    return refit(without(POISONED, "ben"))


def case(**more: Any) -> UnlearningCase:
    return replace(case_of("ben"), data=DATA, **more)


@pytest.fixture(scope="module")
def plain() -> Release:
    return METHOD.release(case(), None)


@pytest.fixture(scope="module")
def noised() -> Release:
    return NOISY.release(case(), KEY)


def distance(weights: Any) -> float:
    return float(np.linalg.norm(to_vector(weights).double().numpy() - optimum()))


def test_it_ends_at_the_optimum_of_those_who_stay(plain: Release) -> None:
    assert distance(plain.weights) < 1e-6 * norm(plain.weights)
    assert distance(case().weights) > 0.1
    assert distance(plain.weights) <= plain.bound < 1e-3
    assert plain.bound == plain.residual
    assert equal(plain.weights, plain.centre)
    assert plain.notes["certified.bound"] == repr(plain.bound)
    assert int(plain.notes["certified.steps"]) >= 2
    assert float(plain.notes["certified.first-step-gradient"]) <= float(
        plain.notes["certified.first-step-predicted"]
    )
    assert plain.work.steps > 0
    assert plain.work.seconds > 0


def test_from_far_away_steps_are_halved_and_the_end_is_the_same() -> None:
    far = 3 * np.random.default_rng(1).normal(size=15)
    away = case_of("ben", theta=far)
    asking = Asking(NETWORK, away.weights, CONFIG.local, 0)
    reached = minimise(asking, away.retained, PENALTY, 12.0, steps=20, iterations=60)
    assert distance(reached.weights) < 1e-5
    # One gradient at the start, the products, and more trials than steps: some were halved.
    assert asking.questions - 1 - reached.products > reached.steps


def test_noise_lies_between_the_published_and_the_centre(noised: Release) -> None:
    assert noised.key == KEY
    assert distance(noised.centre) <= noised.residual <= Budget(0.01, 1.0, 1e-5, 4).allowance
    assert 0.01 < distance(noised.weights) < 0.1
    assert distance(noised.weights) <= noised.bound == power_above(noised.bound * 0.9)
    assert noised.notes["noise.commitment"] == commitment(KEY)
    assert noised.notes["noise.release"] == "1 of 4"


def test_what_is_said_beside_noisy_weights_does_not_depend_on_the_rows(noised: Release) -> None:
    other = replace(NOISY, before=0).release(replace(case_of("cyd"), data="cd" * 32), KEY)
    assert not equal(other.weights, noised.weights)
    assert other.notes == noised.notes


def test_run_saves_the_secret_and_goes_on_from_it_without_asking_anybody(
    noised: Release,
) -> None:
    kept, save = killed_after(1)
    with pytest.raises(KilledError):
        NOISY.run(case(), Hooks(save=save))
    given = case()
    asleep = replace(given, retained=Side(Silent(), given.retained.rows))
    ticks: list[Any] = []
    found = NOISY.run(asleep, Hooks(resume=kept[0], tell=ticks.append))
    assert NOISY.run(asleep, Hooks(resume=kept[0])).notes == found.notes
    assert [(tick.phase, tick.done, tick.total) for tick in ticks] == [("step", 1, 1)]
    assert str(found.claim) == "certified-approximate"
    # A fresh key each time: a second run gives no second noise of one key.
    assert found.notes["noise.commitment"] != noised.notes["noise.commitment"]
    assert KEY.hex() not in str(found.notes)
    with pytest.raises(CheckpointError, match="another unlearning"):
        replace(NOISY, before=1).run(asleep, Hooks(resume=kept[0]))
    for bad in (
        b"",
        kept[0][:-4],
        kept[0].replace(b"certified-release/1", b"certified-release/2"),
    ):
        with pytest.raises(CheckpointError, match="damaged"):
            NOISY.run(asleep, Hooks(resume=bad))


def test_a_release_is_its_bytes(plain: Release, noised: Release) -> None:
    for release in (plain, noised):
        again = Release.decode(release.encode("pin"), NETWORK, "pin")
        assert equal(again.weights, release.weights)
        assert equal(again.centre, release.centre)
        assert (again.key, again.bound, again.residual) == (
            release.key,
            release.bound,
            release.residual,
        )
        assert (again.work, again.notes) == (release.work, release.notes)
        assert again.encode("pin") == release.encode("pin")


def changed(**local: Any) -> UnlearningCase:
    return case(config=replace(CONFIG, local=replace(CONFIG.local, **local)))


def _lost() -> UnlearningCase:
    return spoil(case(), lambda task, found: None if task.client == "eve" else found)[0]


Refused = tuple[
    Callable[[], UnlearningCase], CertifiedNewton, bytes | None, type[Exception], str
]
# The case is made by the test: collecting it would fit each.
REFUSED: list[Refused] = [
    (lambda: changed(optimizer="adamw"), METHOD, None, NotConvexError, "optimizer sgd or adam"),
    (lambda: changed(weight_decay=0.0), METHOD, None, NotConvexError, "weight_decay"),
    (
        lambda: changed(loss="cross-entropy+dice"),
        METHOD,
        None,
        NotConvexError,
        "only a logistic",
    ),
    (_lost, METHOD, None, NobodyAnsweredError, "1 of 4 clients"),
    (case, replace(METHOD, steps=1, iterations=1), None, LooseBoundError, "more steps"),
    (case, replace(NOISY, sigma=1e-6, steps=1), KEY, LooseResidualError, "larger sigma"),
    (case, NOISY, None, RefusedError, "noise key"),
    (case, METHOD, KEY, RefusedError, "noise key"),
    (
        lambda: replace(case(), data=""),
        NOISY,
        KEY,
        RefusedError,
        "digest of the rows that stay",
    ),
]


@pytest.mark.parametrize("given", REFUSED, ids=lambda one: one[-1])
def test_refusals_name_the_remedy_and_nobody(given: Refused) -> None:
    make_case, method, key, kind, words = given
    of = make_case()
    with pytest.raises(kind, match=words) as caught:
        method.release(of, key)
    assert "eve" not in str(caught.value)


def test_nobody_is_asked_for_a_release_that_the_noise_cannot_hide() -> None:
    given = case()
    asleep = replace(given, retained=Side(Silent(), given.retained.rows))
    with pytest.raises(BudgetSpentError):
        replace(NOISY, before=4).release(asleep, KEY)


def test_another_network_has_no_certificate() -> None:
    net = network("simple-cnn", {})
    of = replace(case(), network=net, weights=initial_weights(net, 0))
    with pytest.raises(NotConvexError, match="use retrain"):
        METHOD.release(of, None)


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 0}, {"iterations": True}, {"tolerance": 0.0}, {"tolerance": 1.0},
        {"row_norm": 0.5}, {"sigma": -1.0}, {"sigma": float("nan")}, {"before": -1},
        {"before": 1.0}, {"sigma": 1.0, "epsilon": 0.0}, {"sigma": 1.0, "releases": 0},
    ],
)  # fmt: skip
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        make("certified-newton", settings)
    assert make("certified-newton") == CertifiedNewton()


def stepped(request: UnlearningRequest) -> tuple[UnlearningCase, Unlearned]:
    """A converged model after HF-KCU's step, whole and undamped."""
    at = from_vector(torch.from_numpy(refit(POISONED)), NETWORK)
    given = local_case(NETWORK, at, request, CONFIG, POISONED)
    return given, EXACT.run(given)


@pytest.fixture(scope="module")
def near() -> tuple[UnlearningCase, Unlearned]:
    return stepped(UnlearningRequest(rows={"ben": (50, 51, 52)}))


def test_hf_kcu_on_a_logistic_head_gets_the_bound(
    near: tuple[UnlearningCase, Unlearned],
) -> None:
    of, found = near
    bounded = with_bound(of, found, row_norm=12.0)
    assert found.claim == "empirical-approximate"
    assert str(bounded.claim) == "certified-approximate"
    assert equal(bounded.weights, found.weights)
    assert bounded.work.steps > found.work.steps
    left = torch.tensor([row for row in range(60) if row not in (50, 51, 52)])
    best = refit({**POISONED, "ben": POISONED["ben"].only(left)})
    moved = to_vector(found.weights).double().numpy()
    bound = float(bounded.notes["certified.bound"])
    assert np.linalg.norm(moved - best) <= bound < 2.0**-7 * norm(found.weights)


def test_hf_kcu_gets_noise_of_the_same_kind_and_says_nothing_of_its_step(
    near: tuple[UnlearningCase, Unlearned], noised: Release
) -> None:
    of, found = replace(near[0], data=DATA), near[1]
    wide = replace(NOISY, epsilon=8.0)
    release = with_noise(of, found, wide, KEY)
    assert equal(release.centre, found.weights)
    bound = float(with_bound(of, found, row_norm=12.0).notes["certified.bound"])
    assert release.residual == bound <= wide.budget.allowance
    drawn = to_vector(release.weights).double() - to_vector(release.centre).double()
    assert (
        float((drawn - 0.01 * torch.from_numpy(gaussian(KEY, f"{DATA}|0", 15))).norm()) < 1e-6
    )
    assert set(release.notes) <= set(noised.notes)
    assert release.work.steps > found.work.steps
    for method, kind in (
        (replace(wide, before=4), BudgetSpentError),
        (replace(NOISY, sigma=1e-6), LooseResidualError),
        (replace(wide, tolerance=1e-3), LooseBoundError),
    ):
        with pytest.raises(kind):
            with_noise(of, found, method, KEY)


def test_one_step_that_is_not_close_enough_stays_what_it_was() -> None:
    of, found = stepped(UnlearningRequest(frozenset({"ben"})))  # a quarter of all rows
    bounded = with_bound(of, found, row_norm=12.0)
    assert bounded.claim == "empirical-approximate"
    bound = float(bounded.notes["certified.bound"])
    assert 2.0**-7 * norm(found.weights) < distance(found.weights) <= bound


def test_where_nothing_is_proven_nothing_is_said() -> None:
    found = Unlearned(case().weights, Work(), "empirical-approximate", {})
    lost, _ = spoil(case(), lambda task, update: None)
    for of in (changed(weight_decay=0.0), lost):
        assert with_bound(of, found, row_norm=12.0) is found
