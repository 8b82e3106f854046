"""Several steps with their recoveries: equal to consecutive runs, resumable, guarded."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.methods.network.small import (
    TRAINED,
    VALIDATION,
    Changed,
    KilledError,
    case,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CLIENTS, NETWORK
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Side, TargetError, Tick, UnlearningCase
from workers.methods.network.recovery import LastingDamageError
from workers.methods.network.registry import make
from workers.methods.network.validation import ValidationLoss
from workers.training.fedavg.base import ClientUpdate, Work
from workers.training.fedavg.client.flops import forward_flops
from workers.training.fedavg.evaluate import evaluate

GUARD: dict[str, Any] = {"rise": 50.0, "shrink": 0.5, "trials": 30, "forget": 4.0}
SETTINGS: dict[str, Any] = {"recovery": {"rounds": 2, "epochs": 1.0}, "guard": GUARD}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "puf-special": SETTINGS,
    "puf-regular": SETTINGS,
    "hf-kcu": {**SETTINGS, "form": "influence", "drift": "skip", "curvature_rows": 0.5},
}


def later(given: UnlearningCase, cycle: int) -> UnlearningCase:
    """The case of a later cycle without its weights: the schedule has advanced."""
    return replace(given, config=replace(given.config, rounds=given.config.rounds + 2 * cycle))


@pytest.mark.parametrize("method_id", METHODS)
def test_cycles_are_the_method_again_on_what_it_gave(method_id: str) -> None:
    settings = {**METHODS[method_id], "guard": {"rise": 0.5}}
    found = make(method_id, {**settings, "cycles": 3}).run(case())
    once = make(method_id, settings)
    weights, flops = TRAINED, 0
    for cycle in range(3):
        part = once.run(replace(later(case(), cycle), weights=weights))
        weights, flops = part.weights, flops + part.work.flops
    assert equal(found.weights, weights)
    assert not equal(found.weights, TRAINED)
    assert (found.work.flops, found.notes["cycles"]) == (flops, "3")
    assert len(found.notes["step.used"].split(" | ")) == 3


def test_only_the_last_cycle_settles() -> None:
    settings = {**SETTINGS, "guard": {"rise": 0.5}}
    quiet = {**settings, "recovery": {**SETTINGS["recovery"], "settle": 0.25}}
    found = make("puf-special", {**quiet, "cycles": 2}).run(case())
    first = make("puf-special", settings).run(case())
    for last, same in ((quiet, True), (settings, False)):
        given = replace(later(case(), 1), weights=first.weights)
        assert equal(found.weights, make("puf-special", last).run(given).weights) is same


@pytest.mark.parametrize("method_id", METHODS)
def test_killed_after_any_save_cycles_go_on_to_the_same_bits(method_id: str) -> None:
    method = make(method_id, {**METHODS[method_id], "cycles": 2})
    whole: list[bytes] = []
    once = method.run(case(), Hooks(save=whole.append))
    assert len(whole) == 6  # two steps, two rounds each
    for killed in range(1, 7):
        kept, save = killed_after(killed)
        with pytest.raises(KilledError):
            method.run(case(), Hooks(save=save))
        again = method.run(case(), Hooks(resume=kept[-1]))
        assert equal(again.weights, once.weights)
        assert (again.work.flops, again.notes) == (once.work.flops, once.notes)


@pytest.mark.parametrize("method_id", METHODS)
def test_no_step_takes_the_rows_that_go_above_the_ceiling(method_id: str) -> None:
    """The ceiling is that of the model before the first cycle, whatever recovery does."""
    found = make(method_id, {**METHODS[method_id], "cycles": 3}).run(case())
    ceiling = 4.0 * evaluate(NETWORK, TRAINED, VALIDATION).loss
    reached = [float(part) for part in found.notes["step.forget-after"].split(" | ")]
    before = [float(part) for part in found.notes["step.forget-before"].split(" | ")]
    if method_id != "puf-regular":  # where the round of the others comes first
        known = evaluate(NETWORK, TRAINED, CLIENTS["bert"]).loss
        assert before[0] == pytest.approx(known, rel=1e-5)
    for start, end in zip(before, reached, strict=False):
        assert end <= ceiling + 1e-4 or end == start
    assert before[0] < reached[0]


def test_some_of_the_rows_that_go_are_asked_at_a_share_of_the_price() -> None:
    asked: list[ClientUpdate] = []

    def note(update: ClientUpdate) -> ClientUpdate:
        if not update.delta:
            asked.append(update)
        return update

    given = case()
    assert given.targets is not None
    engine = Changed(given.targets.engine, note)
    given = replace(given, targets=Side(engine, given.targets.rows))
    make("puf-special", {**SETTINGS, "guard": {**GUARD, "forget_rows": 5}}).run(given)
    whole = len(CLIENTS["bert"])
    assert {update.samples for update in asked} == {whole}
    assert {update.flops for update in asked} == {5 * forward_flops(NETWORK)}
    assert asked[0].loss != pytest.approx(evaluate(NETWORK, TRAINED, CLIENTS["bert"]).loss)


def test_targets_that_do_not_tell_their_loss_are_named() -> None:
    given = case()
    assert given.targets is not None
    deaf = Changed(given.targets.engine, lambda u: u if u.delta else None)
    given = replace(given, targets=Side(deaf, given.targets.rows))
    with pytest.raises(TargetError, match="leave `forget` out"):
        make("puf-special", SETTINGS).run(given)


def test_progress_counts_all_cycles() -> None:
    ticks: list[Tick] = []
    method = make("puf-special", {**SETTINGS, "cycles": 2})
    method.run(case(), Hooks(tell=ticks.append))
    assert [(t.phase, t.done, t.total) for t in ticks] == [
        ("step", 0, 2), ("step", 1, 2), ("recovery", 1, 4), ("recovery", 2, 4),
        ("step", 1, 2), ("step", 2, 2), ("recovery", 3, 4), ("recovery", 4, 4),
    ]  # fmt: skip


def test_damage_that_lasts_is_refused_and_what_is_brought_back_is_not() -> None:
    settings = {**SETTINGS, "cycles": 2}
    free = make("puf-special", settings).run(case())
    asked = {**settings, "recovery": {**SETTINGS["recovery"], "lasting": 100.0}}
    found = make("puf-special", asked).run(case())
    assert equal(found.weights, free.weights)
    # The loss before the first step is known already: the ceiling is computed from it.
    judged = 2 * len(VALIDATION) * forward_flops(NETWORK)
    assert found.work.flops == free.work.flops + judged
    none = {"guard": None, "unlearning_rate": 20.0, "recovery": {"rounds": 0, "lasting": 0.25}}
    with pytest.raises(LastingDamageError, match="use retrain"):
        make("puf-special", none).run(case())


@pytest.mark.parametrize(
    ("after", "refused"), [((1.4, 1.5), False), ((1.3, 1.6), True), ((1.6, 1.0), True), ((float("nan"), 1.0), True)]
)  # fmt: skip
def test_damage_is_measured_from_the_model_before_the_first_step(
    after: tuple[float, ...], refused: bool
) -> None:
    losses = iter((1.0, *after))
    given = replace(case(), validation=lambda _: ValidationLoss(next(losses), Work()))
    recovery = {"rounds": 1, "epochs": 1.0, "lasting": 0.5}
    method = make("puf-special", {"guard": None, "cycles": 2, "recovery": recovery})
    if not refused:
        assert method.run(given).notes["recovery.damage"] == "0.4 | 0.5"
        return
    with pytest.raises(LastingDamageError):
        method.run(given)


def test_what_may_last_needs_rows_to_judge_by() -> None:
    bare = replace(case(), validation=None)
    settings = {"guard": None, "recovery": {"rounds": 1, "lasting": 0.5}}
    for method_id in ("puf-special", "natural"):
        wanted = settings if method_id != "natural" else {"recovery": settings["recovery"]}
        with pytest.raises(RefusedError, match="leave `lasting` out"):
            make(method_id, wanted).run(bare)


@pytest.mark.parametrize("lasting", [-0.1, float("nan"), float("inf"), "1", True])
def test_odd_damages_are_refused(lasting: Any) -> None:
    with pytest.raises(RefusedError, match=r"lasting|another type"):
        make("natural", {"recovery": {"lasting": lasting}})


def test_other_recoveries_are_judged_as_well() -> None:
    losses = iter((1.0, 1.1))
    given = replace(case(), validation=lambda _: ValidationLoss(next(losses), Work()))
    with pytest.raises(LastingDamageError, match=r"is 1\.1, before"):
        make("natural", {"recovery": {"rounds": 1, "lasting": 0.05}}).run(given)
    free = make("natural", {"recovery": {"rounds": 1}}).run(case())
    found = make("natural", {"recovery": {"rounds": 1, "lasting": 100.0}}).run(case())
    assert equal(found.weights, free.weights)
    judged = 2 * len(VALIDATION) * forward_flops(NETWORK)
    assert found.work.flops == free.work.flops + judged


@pytest.mark.parametrize("cycles", [0, -1, 65, 1.5, True])
def test_odd_numbers_are_refused(cycles: Any) -> None:
    for method_id in METHODS:
        with pytest.raises(RefusedError, match="cycles"):
            make(method_id, {"cycles": cycles})


def test_who_cannot_ask_the_rows_that_go_refuses_the_ceiling() -> None:
    with pytest.raises(RefusedError, match="leave `forget` out"):
        make("wood-fisher", {"guard": GUARD}).run(case())
