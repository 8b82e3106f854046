"""What every federated baseline promises: determinism, declared needs, work, the old model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.methods.network.baselines.federated_case import with_history
from tests.workers.methods.network.small import (
    SOME_ROWS,
    TRAINED,
    KilledError,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network import registry
from workers.methods.network.base import (
    Case,
    Hooks,
    Side,
    TargetError,
    UnlearningMethod,
    UnmetNeedError,
)
from workers.methods.network.baselines.at_clients import check_targets
from workers.methods.network.baselines.central import RowsElsewhereError
from workers.methods.network.baselines.exact_fun import ExactFun
from workers.methods.network.baselines.fats import Fats
from workers.methods.network.baselines.federated import METHODS
from workers.methods.network.baselines.pga import Pga
from workers.methods.network.baselines.sisa import ShardedCase, Sisa
from workers.methods.network.recovery import Recovery
from workers.training.fedavg.in_process import InProcess

STEPS: dict[str, dict[str, Any]] = {
    "fed-au": {"epochs": 2},
    "fed-eraser": {},
    "mode": {"degradation_rounds": 2, "guidance_rounds": 2},
    "naive-ga": {"epochs": 2},
    "not": {},
    "pga": {"epochs": 2},
}
EXACT = {"exact-fun", "fats", "sisa"}


def exact_fun() -> Case:
    found = ExactFun(0.1).train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS))
    return with_history(weights=found.weights, history=found.history)


def fats() -> Case:
    found = Fats(2, 4).train(NETWORK, Side(InProcess(CLIENTS), ROWS), CONFIG)
    return with_history(weights=found.weights, history=found.history)


def sisa() -> Case:
    sharded = Sisa(2, 2).train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS))
    given = with_history(weights=sharded.weights, history=())
    return ShardedCase(
        **{name: getattr(given, name) for name in given.__dataclass_fields__}, sharded=sharded
    )


MADE: dict[str, Callable[[], tuple[UnlearningMethod, Case]]] = {
    **{
        name: (lambda name=name: (registry.make(name, STEPS[name]), with_history()))  # type: ignore[misc]
        for name in STEPS
    },
    "exact-fun": lambda: (ExactFun(0.1), exact_fun()),
    "fats": lambda: (Fats(2, 4), fats()),
    "sisa": lambda: (Sisa(2, 2), sisa()),
}


def test_all_of_them_can_be_asked_for_by_name() -> None:
    assert set(METHODS) == set(MADE) == set(STEPS) | EXACT
    assert set(METHODS) <= set(registry.known())
    for name in METHODS:
        assert registry.make(name).id == name
    made = registry.make("pga", {"recovery": {"rounds": 2}, "clip_norm": 1.0})
    assert isinstance(made, Pga)
    assert (made.recovery, made.clip_norm) == (Recovery(rounds=2), 1.0)
    with pytest.raises(RefusedError, match="unknown settings"):
        registry.make("fats", {"rounds": 3})


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
    one, two = (registry.make(name, settings).run(case) for case in (given, other))
    assert not equal(one.weights, two.weights)
    assert one.work.rounds == two.work.rounds == method_rounds(name) + 1


def method_rounds(name: str) -> int:
    return {"fed-eraser": 5, "mode": 4, "not": 0}.get(name, 1)


NEEDS = {
    "exact-fun": {"history"},
    "fats": {"history"},
    "fed-au": {"targets"},
    "fed-eraser": {"history"},
    "mode": {"targets"},
    "naive-ga": {"targets"},
    "not": set[str](),
    "pga": {"history", "targets"},
    "sisa": set[str](),
}
WITHOUT: dict[str, dict[str, Any]] = {
    "history": {"history": ()},
    "targets": {"targets": None},
    "validation": {"validation": None},
    "proxy": {"proxy": None},
}


@pytest.mark.parametrize("need", WITHOUT)
@pytest.mark.parametrize("name", sorted(MADE))
def test_what_is_declared_is_what_is_needed(name: str, need: str) -> None:
    method, given = MADE[name]()
    assert set(method.needs) == NEEDS[name]
    lacking = replace(given, **WITHOUT[need])
    if need in NEEDS[name]:
        with pytest.raises(UnmetNeedError, match="retrain"):
            method.run(lacking)
    else:
        assert equal(method.run(lacking).weights, method.run(given).weights)


class Elsewhere:
    """Clients that answer, whose rows are not in this process."""

    def __init__(self) -> None:
        self.run = InProcess(CLIENTS).run


@pytest.mark.parametrize("name", ["fed-au", "mode", "naive-ga", "pga"])
def test_rows_that_are_elsewhere_are_refused_by_name(name: str) -> None:
    method, given = MADE[name]()
    assert given.targets is not None
    elsewhere = replace(given, targets=Side(Elsewhere(), given.targets.rows))
    with pytest.raises(RowsElsewhereError, match="in-process engine"):
        method.run(elsewhere)


def test_a_target_that_is_gone_is_refused_by_name() -> None:
    for name in ("fed-au", "mode", "naive-ga", "pga"):
        method, given = MADE[name]()
        gone = replace(given, targets=Side(InProcess({}), {"bert": 12}))
        with pytest.raises(TargetError, match="use hf-kcu or retrain"):
            method.run(gone)
    check_targets(())


@pytest.mark.parametrize("name", ["fed-eraser", "pga"])
def test_methods_of_clients_refuse_rows_of_them(name: str) -> None:
    with pytest.raises(RefusedError, match="whole clients"):
        registry.make(name).run(with_history(SOME_ROWS))


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_run_that_was_killed_goes_on_without_a_second_step(name: str) -> None:
    settings = {**STEPS[name], "recovery": {"rounds": 3}}
    whole = registry.make(name, settings).run(with_history())
    kept, save = killed_after(2)
    with pytest.raises(KilledError):
        registry.make(name, settings).run(with_history(), Hooks(save=save))
    assert len(kept) == 2
    alone = with_history()
    found = registry.make(name, settings).run(alone, Hooks(resume=kept[-1]))
    assert equal(found.weights, whole.weights)
    assert found.work == whole.work
    assert equal(alone.weights, TRAINED)
