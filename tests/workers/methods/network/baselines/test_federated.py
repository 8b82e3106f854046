"""Every federated baseline: determinism, declared needs, work, the unchanged old model."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.methods.network.small import (
    TRAINED,
    KilledError,
    case,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, ROWS
from workers.methods.network import registry
from workers.methods.network.base import (
    Hooks,
    Side,
    TargetError,
    UnlearningMethod,
    UnmetNeedError,
)
from workers.methods.network.baselines import mode
from workers.methods.network.baselines.at_clients import check_targets
from workers.methods.network.baselines.central import RowsElsewhereError
from workers.methods.network.recovery import Recovery
from workers.training.fedavg.in_process import InProcess

STEPS: dict[str, dict[str, Any]] = {
    "fed-au": {"epochs": 2},
    "mode": {"degradation_rounds": 2, "guidance_rounds": 2},
    "naive-ga": {"epochs": 2},
    "not": {},
}
AT_TARGETS = ["fed-au", "mode", "naive-ga"]


def made(name: str) -> UnlearningMethod:
    return registry.make(name, STEPS[name])


@pytest.mark.parametrize("name", sorted(STEPS))
def test_each_can_be_asked_for_by_name(name: str) -> None:
    assert registry.make(name).id == name
    found = registry.make("mode", {"recovery": {"rounds": 2}, "momentum": 0.5})
    assert isinstance(found, mode.MoDe)
    assert (found.recovery, found.momentum) == (Recovery(rounds=2), 0.5)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_equal_cases_give_equal_bits_and_the_model_is_left_alone(name: str) -> None:
    given = case()
    before = {part: values.clone() for part, values in given.weights.items()}
    found, again = made(name).run(given), made(name).run(case())
    assert equal(found.weights, again.weights)
    assert (found.work, found.notes) == (again.work, again.notes)
    assert equal(given.weights, before)
    assert found.claim == "empirical-approximate"
    assert int(found.notes["state.bytes"]) >= 0
    assert not any(client in str(found.notes) for client in ROWS)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_another_seed_draws_anew(name: str) -> None:
    given = case()
    settings = {**STEPS[name], "recovery": {"rounds": 1}}
    other = replace(given, config=replace(CONFIG, seed=77))
    one, two = (registry.make(name, settings).run(of) for of in (given, other))
    assert not equal(one.weights, two.weights)
    assert one.work.rounds == two.work.rounds == {"mode": 4, "not": 0}.get(name, 1) + 1


@pytest.mark.parametrize("need", ["targets", "validation"])
@pytest.mark.parametrize("name", sorted(STEPS))
def test_what_is_declared_is_what_is_needed(name: str, need: str) -> None:
    method, given = made(name), case()
    assert method.needs == ({"targets"} if name in AT_TARGETS else set())
    without: dict[str, Any] = {need: None}
    lacking = replace(given, **without)
    if need in method.needs:
        with pytest.raises(UnmetNeedError, match="retrain"):
            method.run(lacking)
    else:
        assert equal(method.run(lacking).weights, method.run(given).weights)


class Elsewhere:
    """Clients that answer but keep their rows outside this process."""

    def __init__(self) -> None:
        self.run = InProcess(CLIENTS).run


@pytest.mark.parametrize("name", AT_TARGETS)
def test_rows_that_are_elsewhere_are_refused_by_name(name: str) -> None:
    given = case()
    assert given.targets is not None
    elsewhere = replace(given, targets=Side(Elsewhere(), given.targets.rows))
    with pytest.raises(RowsElsewhereError, match="in-process engine"):
        made(name).run(elsewhere)


def test_a_target_that_is_gone_is_refused_by_name() -> None:
    for name in AT_TARGETS:
        gone = replace(case(), targets=Side(InProcess({}), {"bert": 12}))
        with pytest.raises(TargetError, match="use hf-kcu or retrain"):
            made(name).run(gone)
    check_targets(())


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_run_that_was_killed_goes_on_without_a_second_step(name: str) -> None:
    settings = {**STEPS[name], "recovery": {"rounds": 3}}
    whole = registry.make(name, settings).run(case())
    kept, save = killed_after(2)
    with pytest.raises(KilledError):
        registry.make(name, settings).run(case(), Hooks(save=save))
    assert len(kept) == 2
    alone = case()
    found = registry.make(name, settings).run(alone, Hooks(resume=kept[-1]))
    assert equal(found.weights, whole.weights)
    assert found.work == whole.work
    assert equal(alone.weights, TRAINED)
