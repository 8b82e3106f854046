"""Natural is ordinary continued training; recovery resumes, stops and is refused by name."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.methods.network.small import (
    ON_THE_CPU,
    REQUESTS,
    SOME_ROWS,
    TRAINED,
    WHOLE,
    Changed,
    KilledError,
    case,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Side, Tick, UnlearningCase, UnlearningRequest
from workers.methods.network.natural import Natural
from workers.methods.network.recovery import Recovery, recovery_config
from workers.methods.network.registry import METHODS, make
from workers.training.fedavg.base import Fault
from workers.training.fedavg.errors import CheckpointError, RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import train
from workers.training.fedavg.seeds import derive


@pytest.mark.parametrize("name", REQUESTS)
def test_natural_is_the_training_of_those_who_stay_going_on(name: str) -> None:
    given = case(REQUESTS[name])
    found = Natural(Recovery(rounds=2)).run(given)
    config = replace(CONFIG, rounds=2, seed=derive(CONFIG.seed, "recovery", CONFIG.rounds))
    alone = train(NETWORK, given.retained.rows, config, given.retained.engine, weights=TRAINED)
    assert equal(found.weights, alone.weights)
    assert found.work == alone.work
    assert found.claim == "empirical-approximate"
    assert found.notes == {**ON_THE_CPU, "recovery.rounds": "2"}


def test_no_round_of_recovery_is_the_original_model() -> None:
    found = Natural(Recovery(rounds=0)).run(case())
    assert equal(found.weights, TRAINED)
    assert found.work.flops == 0


def test_the_learning_rate_goes_on_where_training_ended() -> None:
    decaying = replace(CONFIG, local=replace(CONFIG.local, learning_rate=0.1, decay=0.998))
    given = replace(case(), config=decaying)
    local = recovery_config(given, Recovery(rounds=3, epochs=1)).local
    for later in (1, 2, 3):
        expected = 0.1 * 0.998 ** (CONFIG.rounds + later - 1)
        assert local.rate(later) == pytest.approx(expected, rel=1e-12)
    assert local.epochs == 1
    assert recovery_config(given, Recovery()).local.epochs == CONFIG.local.epochs
    settled = recovery_config(given, Recovery(settle=0.25)).local
    assert settled.rate(1) == pytest.approx(0.25 * 0.1 * 0.998**CONFIG.rounds, rel=1e-12)


@pytest.mark.parametrize("settle", [0, -0.5, 1.5, float("nan"), float("inf"), "0.5", True])
def test_a_recovery_settles_to_a_share_of_the_rate(settle: Any) -> None:
    with pytest.raises(RefusedError, match=r"settle|another type"):
        make("natural", {"recovery": {"settle": settle}})


def test_recovery_stops_by_validation_and_says_whether_it_got_there() -> None:
    given = case()
    assert given.validation is not None
    found = Natural(Recovery(rounds=6, within=10.0)).run(given)
    assert found.notes["recovery.rounds"] == "1"
    assert found.notes["recovery.reached"] == "yes"
    never = Natural(Recovery(rounds=3, within=-10.0)).run(given)
    assert never.notes["recovery.rounds"] == "3"
    assert never.notes["recovery.reached"] == "no"
    # The rows were asked for the goal and after each round.
    plain = Natural(Recovery(rounds=3)).run(given)
    each = given.validation(TRAINED).work.flops
    assert never.work.flops == plain.work.flops + 4 * each
    with pytest.raises(RefusedError, match="validation"):
        Natural(Recovery(within=1.0)).run(replace(given, validation=None))


@pytest.mark.parametrize("recovery", [Recovery(rounds=3), Recovery(rounds=5, within=0.0)])
def test_a_killed_run_goes_on_from_every_point(recovery: Recovery) -> None:
    whole: list[bytes] = []
    method = Natural(recovery)
    once = method.run(case(), Hooks(save=whole.append))
    assert len(whole) == 1 + int(once.notes["recovery.rounds"])
    for saves in range(1, len(whole) + 1):
        kept, save = killed_after(saves)
        with pytest.raises(KilledError):
            method.run(case(), Hooks(save=save))
        resumed = method.run(case(), Hooks(resume=kept[-1]))
        assert equal(resumed.weights, once.weights)
        assert resumed.notes == once.notes
        assert resumed.work == once.work


def test_progress_of_another_run_is_refused() -> None:
    kept: list[bytes] = []
    Natural(Recovery(rounds=2)).run(case(), Hooks(save=kept.append))
    others: dict[str, tuple[Natural, UnlearningCase]] = {
        "request": (Natural(Recovery(rounds=2)), case(SOME_ROWS)),
        "settings": (Natural(Recovery(rounds=3)), case()),
        "data": (Natural(Recovery(rounds=2)), replace(case(), data="other")),
        "model": (
            Natural(Recovery(rounds=2)),
            replace(case(), weights={name: -part for name, part in TRAINED.items()}),
        ),
    }
    for method, given in others.values():
        with pytest.raises(CheckpointError, match="another unlearning"):
            method.run(given, Hooks(resume=kept[-1]))
    for damage in (kept[-1][:-1], kept[-1] + b"x", b"", b"\xff" * 64):
        with pytest.raises(CheckpointError):
            Natural(Recovery(rounds=2)).run(case(), Hooks(resume=damage))


def test_progress_is_told() -> None:
    ticks: list[Tick] = []
    Natural(Recovery(rounds=2)).run(case(), Hooks(tell=ticks.append))
    assert [(t.phase, t.done, t.total) for t in ticks] == [
        ("step", 0, 1),
        ("step", 1, 1),
        ("recovery", 1, 2),
        ("recovery", 2, 2),
    ]
    assert ticks[2].loss is not None


def test_a_client_that_diverges_in_recovery_is_recorded() -> None:
    given = case()
    broken = Changed(
        given.retained.engine,
        lambda update: Fault("cleo", "not-finite") if update.client == "cleo" else update,
    )
    given = replace(given, retained=Side(broken, given.retained.rows))
    found = Natural(Recovery(rounds=2)).run(given)
    assert found.notes["recovery.dropped"] == "2 not-finite"
    nobody = Side(Changed(broken, lambda update: None), given.retained.rows)
    with pytest.raises(RoundFailedError, match="0 of 2"):
        Natural().run(replace(given, retained=nobody))
    assert equal(given.weights, TRAINED)


BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({}, "names no client"),
    "twice": ({"clients": frozenset({"a"}), "rows": {"a": (1,)}}, "once"),
    "no row": ({"rows": {"a": ()}}, "positions"),
    "unsorted": ({"rows": {"a": (2, 1)}}, "positions"),
    "repeated": ({"rows": {"a": (1, 1)}}, "positions"),
    "negative": ({"rows": {"a": (-1, 1)}}, "positions"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_are_refused(name: str) -> None:
    fields, message = BAD_REQUESTS[name]
    with pytest.raises(RefusedError, match=message):
        UnlearningRequest(**fields)


BAD_CASES = {
    "unknown client": (UnlearningRequest(frozenset({"zoe"})), "no rows in the federation"),
    "unknown row": (UnlearningRequest(rows={"bert": (12,)}), "does not have"),
    "everybody": (UnlearningRequest(frozenset(CLIENTS)), "no client would be retained"),
}


@pytest.mark.parametrize("name", BAD_CASES)
def test_bad_cases_are_refused(name: str) -> None:
    request, message = BAD_CASES[name]
    with pytest.raises(RefusedError, match=message) as caught:
        case(request)
    assert "zoe" not in str(caught.value)


def test_sides_must_fit_the_request() -> None:
    given = case()
    with pytest.raises(RefusedError, match="among the retained clients"):
        replace(given, retained=Side(InProcess(CLIENTS), ROWS))
    with pytest.raises(RefusedError, match="exactly the clients"):
        replace(given, targets=given.retained)


def test_all_rows_of_a_client_are_the_client() -> None:
    by_rows = case(UnlearningRequest(rows={"bert": tuple(range(12))}))
    assert by_rows.retained.rows == case(WHOLE).retained.rows


def test_methods_by_name() -> None:
    assert {"natural", "puf-regular", "puf-special", "retrain"} <= set(METHODS)
    assert all(make(name).id == name for name in METHODS)
    made = make("natural", {"recovery": {"rounds": 7}})
    assert made == Natural(Recovery(rounds=7))
    bad: list[tuple[Any, dict[str, Any]]] = [
        ("nope", {}),
        ([], {}),
        ("natural", {"colour": 1}),
        ("natural", {"recovery": {"rounds": "x"}}),
        ("natural", {"recovery": {"tea": 1}}),
        ("natural", {"recovery": 3}),
        ("natural", {"recovery": None}),
        ("puf-special", {"unlearning_rate": "2"}),
        ("puf-special", {"guard": {"rise": "2"}}),
    ]
    for name, settings in bad:
        with pytest.raises(RefusedError):
            make(name, settings)
