"""Pairs of an audit: the two worlds, and what an audit of known methods finds."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.workers.audit_pairs import small
from workers.audit_pairs.pair import Pair, run_pair
from workers.errors import RefusedError
from workers.judge.algorithm_audit import Finding, judge
from workers.methods.network.base import Hooks, Unlearned, UnlearningCase, UnlearningMethod
from workers.methods.network.guard import NoSafeStepError
from workers.methods.network.registry import WITHOUT_A_MODEL
from workers.methods.network.retrain import Retrain
from workers.training.networks.registry import network


def pair(number: int, method: UnlearningMethod) -> Pair:
    return run_pair(small.NETWORK, small.TRAINING, method, small.rows(), small.PLAN, number)


def audit(method: UnlearningMethod, pairs: int = 16) -> Finding:
    found = [pair(number, method) for number in range(pairs)]
    return judge(
        [one.before for one in found],
        [one.after for one in found],
        [one.retrained for one in found],
        confidence=0.95,
        delta=0.0,
    )


def test_a_method_that_does_nothing_is_caught() -> None:
    found = audit(small.DoNothing())
    assert found.result == "LEAK"
    assert 0 < found.after.epsilon <= found.resolution
    assert found.after == found.before


def test_a_retraining_leaves_nothing_that_an_attack_with_power_could_find() -> None:
    found = audit(Retrain())
    assert found.result == "NOTHING-FOUND"
    assert found.after.epsilon == 0
    assert found.before.epsilon > 0


def test_a_retraining_is_the_other_world_bit_for_bit() -> None:
    one = pair(3, Retrain())
    assert one.after == one.retrained != one.before


def test_equal_numbers_give_equal_bits_and_others_other_models() -> None:
    assert pair(1, small.DoNothing()) == pair(1, small.DoNothing())
    assert pair(1, small.DoNothing()) != pair(2, small.DoNothing())


@dataclass(frozen=True, slots=True)
class _Raising(small.DoNothing):
    error: type[Exception] = NoSafeStepError

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        raise self.error("planted")


@pytest.mark.parametrize("error", WITHOUT_A_MODEL)
def test_a_method_without_a_model_gives_way_to_a_retraining_as_in_the_service(
    error: type[Exception],
) -> None:
    one = pair(0, _Raising(error=error))
    assert one.gave_way
    assert one.after == one.retrained


@dataclass(frozen=True, slots=True)
class _Noting(small.DoNothing):
    note: Callable[[UnlearningCase], None] = lambda _: None

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        self.note(case)
        return small.DoNothing().run(case)


def test_the_method_is_asked_to_forget_the_targets_and_nothing_else() -> None:
    seen: list[UnlearningCase] = []
    plan = small.PLAN
    run_pair(small.NETWORK, small.TRAINING, _Noting(note=seen.append), small.rows(), plan, 0)
    (case,) = seen
    assert sum(case.retained.rows.values()) == plan.rows
    assert case.targets is not None
    assert sum(case.targets.rows.values()) == plan.targets
    assert case.validation is not None


def test_masks_are_refused() -> None:
    shape = {"channels": 1, "height": 16, "width": 16, "classes": 2, "features": 8}
    masks = network("res-unet", shape)
    with pytest.raises(RefusedError, match="only networks that classify"):
        run_pair(masks, small.TRAINING, Retrain(), small.rows(), small.PLAN, 0)


def test_a_method_that_proves_its_promise_is_refused() -> None:
    class Proven(small.DoNothing):
        def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
            done = small.DoNothing().run(case)
            return replace(done, claim="certified-approximate")

    with pytest.raises(RefusedError, match="each of its models is proven"):
        pair(0, Proven())
