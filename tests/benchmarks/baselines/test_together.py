"""What each promises: determinism, declared needs, work, the old model; and their registry."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from benchmarks.baselines.exact_fun import ExactFun
from benchmarks.baselines.fats import Fats
from benchmarks.baselines.pga import Pga
from benchmarks.baselines.registry import ALL, BASELINES, make
from benchmarks.baselines.sisa import ShardedCase, Sisa
from tests.benchmarks.baselines.recorded_case import with_history
from tests.workers.methods.network.small import (
    SOME_ROWS,
    TRAINED,
    KilledError,
    case,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network import registry
from workers.methods.network.base import (
    Hooks,
    Side,
    TargetError,
    UnlearningCase,
    UnlearningMethod,
    UnmetNeedError,
)
from workers.methods.network.baselines.central import RowsElsewhereError
from workers.methods.network.recovery import Recovery
from workers.training.fedavg.in_process import InProcess

STEPS: dict[str, dict[str, Any]] = {"fed-eraser": {}, "pga": {"epochs": 2}}
EXACT = {"exact-fun", "fats", "sisa"}


def exact_fun() -> UnlearningCase:
    found = ExactFun(0.1).train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS))
    return with_history(weights=found.weights, history=found.history)


def fats() -> UnlearningCase:
    found = Fats(2, 4).train(NETWORK, Side(InProcess(CLIENTS), ROWS), CONFIG)
    return with_history(weights=found.weights, history=found.history)


def sisa() -> UnlearningCase:
    sharded = Sisa(2, 2).train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS))
    given = replace(case(), weights=sharded.weights)
    return ShardedCase(
        **{field.name: getattr(given, field.name) for field in fields(UnlearningCase)},
        sharded=sharded,
    )


MADE: dict[str, Callable[[], tuple[UnlearningMethod, UnlearningCase]]] = {
    **{
        name: (lambda name=name: (make(name, STEPS[name]), with_history()))  # type: ignore[misc]
        for name in STEPS
    },
    "exact-fun": lambda: (ExactFun(0.1), exact_fun()),
    "fats": lambda: (Fats(2, 4), fats()),
    "sisa": lambda: (Sisa(2, 2), sisa()),
}


def test_the_benchmark_knows_them_and_the_product_does_not() -> None:
    assert set(BASELINES) == set(MADE) == set(STEPS) | EXACT
    assert set(ALL) == set(BASELINES) | set(registry.METHODS)
    for name in BASELINES:
        assert make(name).id == name
        with pytest.raises(RefusedError, match="unknown method: choose one of"):
            registry.make(name)
    assert make("puf-special").id == "puf-special"
    made = make("pga", {"recovery": {"rounds": 2}, "clip_norm": 1.0})
    assert isinstance(made, Pga)
    assert (made.recovery, made.clip_norm) == (Recovery(rounds=2), 1.0)
    with pytest.raises(RefusedError, match="setting is unknown"):
        make("fats", {"rounds": 3})
    with pytest.raises(RefusedError, match=r"choose one of .*exact-fun, fats, fed-au"):
        make("magic")


@pytest.mark.parametrize("name", sorted(MADE))
def test_equal_cases_give_equal_bits_and_the_model_is_left_alone(name: str) -> None:
    method, given = MADE[name]()
    before = {part: values.clone() for part, values in given.weights.items()}
    found, again = method.run(given), MADE[name]()[0].run(MADE[name]()[1])
    assert equal(found.weights, again.weights)
    assert (found.work, found.notes) == (again.work, again.notes)
    assert equal(given.weights, before)
    assert found.claim == ("exact-retrained" if name in EXACT else "empirical-approximate")
    assert int(found.notes["state.bytes"]) >= 0
    assert not any(client in str(found.notes) for client in ROWS)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_another_seed_draws_anew(name: str) -> None:
    given = with_history()
    settings = {**STEPS[name], "recovery": {"rounds": 1}}
    other = replace(given, config=replace(CONFIG, seed=77))
    one, two = (make(name, settings).run(case) for case in (given, other))
    assert not equal(one.weights, two.weights)
    assert one.work.rounds == two.work.rounds == {"fed-eraser": 5, "pga": 1}[name] + 1


HISTORIES = {"exact-fun", "fats", "fed-eraser", "pga"}


@pytest.mark.parametrize("name", sorted(MADE))
def test_what_is_declared_is_what_is_needed(name: str) -> None:
    method, given = MADE[name]()
    assert method.needs == ({"targets"} if name == "pga" else set())
    if name == "pga":
        with pytest.raises(UnmetNeedError, match="retrain"):
            method.run(replace(given, targets=None))
    else:
        alone = method.run(replace(given, targets=None))
        assert equal(alone.weights, method.run(given).weights)
    unguarded = method.run(replace(given, validation=None))
    assert equal(unguarded.weights, method.run(given).weights)


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_a_training_that_nobody_recorded_is_refused(name: str) -> None:
    method = MADE[name]()[0]
    for given in (case(), with_history(history=())):
        with pytest.raises(UnmetNeedError, match=r"no updates of past rounds.*or retrain"):
            method.run(given)


class Elsewhere:
    """Clients that answer, whose rows are not in this process."""

    def __init__(self) -> None:
        self.run = InProcess(CLIENTS).run


def test_rows_that_are_elsewhere_are_refused_by_name() -> None:
    method, given = MADE["pga"]()
    assert given.targets is not None
    elsewhere = replace(given, targets=Side(Elsewhere(), given.targets.rows))
    with pytest.raises(RowsElsewhereError, match="in-process engine"):
        method.run(elsewhere)


def test_a_target_that_is_gone_is_refused_by_name() -> None:
    method, given = MADE["pga"]()
    gone = replace(given, targets=Side(InProcess({}), {"bert": 12}))
    with pytest.raises(TargetError, match="use hf-kcu or retrain"):
        method.run(gone)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_methods_of_clients_refuse_rows_of_them(name: str) -> None:
    with pytest.raises(RefusedError, match="whole clients"):
        make(name).run(with_history(SOME_ROWS))


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_run_that_was_killed_goes_on_without_a_second_step(name: str) -> None:
    settings = {**STEPS[name], "recovery": {"rounds": 3}}
    whole = make(name, settings).run(with_history())
    kept, save = killed_after(2)
    with pytest.raises(KilledError):
        make(name, settings).run(with_history(), Hooks(save=save))
    assert len(kept) == 2
    alone = with_history()
    found = make(name, settings).run(alone, Hooks(resume=kept[-1]))
    assert equal(found.weights, whole.weights)
    assert found.work == whole.work
    assert equal(alone.weights, TRAINED)
