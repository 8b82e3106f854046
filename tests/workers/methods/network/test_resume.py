"""Every method, killed after each of its saves, resumes from the bytes to the same bits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.methods.network.small import (
    ON_THE_CPU,
    SEVERAL,
    KilledError,
    Silent,
    case,
    equal,
    killed_after,
)
from tests.workers.training.fedavg.small import CONFIG
from workers.methods.network.base import Hooks, Side, Unlearned, UnlearningCase
from workers.methods.network.registry import make
from workers.methods.network.validation import ValidationLoss
from workers.training.fedavg.base import Answers, Engine, RoundTask
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.in_process import InProcess

AFTER: dict[str, Any] = {"rounds": 2, "epochs": 1.0}
RUNS: dict[str, tuple[str, dict[str, Any], int]] = {  # method, settings, saves
    "puf-special": ("puf-special", {"recovery": AFTER}, 3),
    "puf-regular": ("puf-regular", {"recovery": AFTER}, 3),
    "hf-kcu": ("hf-kcu", {"recovery": AFTER, "curvature_rows": 0.5}, 3),
    "natural": ("natural", {"recovery": {**AFTER, "within": -10.0}}, 3),
    "a step alone": ("hf-kcu", {"recovery": {"rounds": 0}}, 1),
    "within reach at once": ("puf-special", {"recovery": {**AFTER, "within": 99.0}}, 2),
    "retrain": ("retrain", {}, 6),
}


def given() -> UnlearningCase:
    """Several targets, and a server whose moments must survive too."""
    return replace(case(SEVERAL), config=replace(CONFIG, server=ServerConfig(momentum=0.5)))


def stepped(case: UnlearningCase) -> UnlearningCase:
    """The case of a run after its step: the targets must not be asked again."""
    assert case.targets is not None
    return replace(case, targets=Side(Silent(), case.targets.rows))


def same(one: Unlearned, other: Unlearned) -> bool:
    alike = (one.work, one.notes, one.claim) == (other.work, other.notes, other.claim)
    return alike and equal(one.weights, other.weights)


@pytest.mark.parametrize("name", RUNS)
def test_killed_after_any_save_it_goes_on_to_the_same_bits(name: str) -> None:
    method_id, settings, saves = RUNS[name]
    method = make(method_id, settings)
    whole: list[bytes] = []
    once = method.run(given(), Hooks(save=whole.append))
    assert len(whole) == saves
    for killed in range(1, saves + 1):
        kept, save = killed_after(killed)
        with pytest.raises(KilledError):
            method.run(given(), Hooks(save=save))
        assert same(method.run(stepped(given()), Hooks(resume=kept[-1])), once)
        if saves - killed > 1:  # and killed a second time
            again, save = killed_after(1)
            with pytest.raises(KilledError):
                method.run(stepped(given()), Hooks(resume=kept[-1], save=save))
            assert same(method.run(stepped(given()), Hooks(resume=again[-1])), once)


def test_killed_between_the_step_and_the_first_rounds_answer() -> None:
    """Nothing of the round was saved: it is asked again, and counted once."""
    method = make("puf-special", {"recovery": AFTER})
    once = method.run(given())
    kept: list[bytes] = []

    class Dies(InProcess):
        def run(self, tasks: Sequence[RoundTask], *, timeout: float = 0.0) -> Answers:
            raise KilledError

    broken = replace(given(), retained=Side(Dies({}), given().retained.rows))
    with pytest.raises(KilledError):
        method.run(broken, Hooks(save=kept.append))
    assert len(kept) == 1
    assert same(method.run(stepped(given()), Hooks(resume=kept[0])), once)


def test_killed_while_a_round_was_judged() -> None:
    method = make("natural", {"recovery": {**AFTER, "within": -10.0}})
    once = method.run(given())
    kept: list[bytes] = []
    whole = given()
    judge, asked = whole.validation, iter(range(9))
    assert judge is not None

    def dies(weights: Any) -> ValidationLoss:
        if next(asked) == 2:  # the goal and the first round were judged before
            raise KilledError
        return judge(weights)

    with pytest.raises(KilledError):
        method.run(replace(whole, validation=dies), Hooks(save=kept.append))
    assert len(kept) == 2
    assert same(method.run(given(), Hooks(resume=kept[-1])), once)


class Elsewhere:
    """The same clients on a device of another name, or of an unknown one."""

    def __init__(self, inner: Engine, device: str) -> None:
        self.inner, self.device = inner, device

    @property
    def environment(self) -> Mapping[str, str]:
        return {"device": self.device, "deterministic": "false"}

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        return self.inner.run(tasks, timeout=timeout)


def on(device: str) -> UnlearningCase:
    start = given()
    return replace(start, retained=replace(start.retained, engine=Elsewhere(start.retained.engine, device)))  # fmt: skip


@pytest.mark.parametrize("method_id", ["puf-special", "hf-kcu", "natural", "retrain"])
def test_the_notes_say_where_and_in_which_precision(method_id: str) -> None:
    found = make(method_id).run(given()).notes
    assert {name: found[name] for name in ON_THE_CPU} == ON_THE_CPU
    local = replace(CONFIG.local, precision="bfloat16")
    far = replace(on("Example GPU"), config=replace(CONFIG, local=local))
    found = make(method_id).run(far).notes
    assert (found["device"], found["deterministic"], found["precision"]) == (
        "Example GPU", "false", "bfloat16"
    )  # fmt: skip
    lost = replace(given(), retained=Side(Nowhere(given().retained.engine), given().retained.rows))  # fmt: skip
    assert make(method_id).run(lost).notes["device"] == "unknown"


class Nowhere:
    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        return self.inner.run(tasks, timeout=timeout)


def test_a_run_that_went_on_elsewhere_says_so() -> None:
    method = make("natural", {"recovery": AFTER})
    kept: list[bytes] = []
    method.run(given(), Hooks(save=kept.append))
    moved: list[bytes] = []
    found = method.run(on("Example GPU"), Hooks(resume=kept[0], save=moved.append))
    assert found.notes["device"] == "cpu, then Example GPU"
    assert method.run(on("Example GPU"), Hooks(resume=moved[0])).notes == found.notes
