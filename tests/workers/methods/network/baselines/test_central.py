from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.methods.network.baselines.central_case import (
    CLIENTS,
    CONFIG,
    METHODS,
    NETWORK,
    REQUEST,
    WEIGHTS,
    bits,
    make_case,
    moved_from,
    pooled,
)
from workers.errors import RefusedError
from workers.methods.network.base import (
    Hooks,
    Side,
    Tick,
    Unlearned,
    UnlearningCase,
    UnmetNeedError,
)
from workers.methods.network.baselines import central
from workers.methods.network.baselines.central import RowsElsewhereError, gather
from workers.methods.network.baselines.finetune import Finetune
from workers.methods.network.baselines.neg_grad import NegGrad
from workers.methods.network.local_case import local_case
from workers.methods.network.recovery import OutOfMemoryError, Recovery
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.curvature import operation_flops
from workers.training.fedavg.client.flops import forward_flops, training_flops
from workers.training.fedavg.config import TrainingConfig
from workers.training.fedavg.errors import CheckpointError, DivergedError
from workers.training.fedavg.in_process import InProcess
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights

ALL = sorted(METHODS)
ASCENT = [name for name in ALL if "forget" in METHODS[name].pools]
STAY, LEAVE = 23, 7  # rows of the case
ROW = 4 * 4 + 8  # bytes: four float32 and one int64


class Remote:
    """An engine that reaches clients elsewhere: it can run tasks and has no rows."""

    def __init__(self, inner: InProcess) -> None:
        self.run = inner.run


class Listing(Remote):
    clients, device, threads = ("anna", "bert"), "cpu", None


def run(method: str, case: UnlearningCase, **hooks: Any) -> Unlearned:
    return central.unlearn(METHODS[method], case, Hooks(**hooks))


def with_engine(case: UnlearningCase, engine: Any) -> UnlearningCase:
    return replace(
        case,
        retained=Side(engine, case.retained.rows),
        targets=Side(engine, case.targets.rows) if case.targets else None,
    )


def test_the_pools_are_the_rows_of_the_request_in_the_order_of_names() -> None:
    case = make_case()
    backwards = {name: case.retained.rows[name] for name in sorted(case.retained.rows)[::-1]}
    case = replace(case, retained=Side(case.retained.engine, backwards))
    rows = gather(case, frozenset({"forget", "retained"}), "x")
    for name, found in (("forget", rows.forget_rows), ("retained", rows.retained_rows)):
        inputs, targets = pooled(name)
        assert np.array_equal(found.inputs.double().numpy(), inputs)
        assert np.array_equal(found.targets.numpy(), targets)
    assert (len(rows.retained_rows), len(rows.forget_rows)) == (STAY, LEAVE)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("engine", [Remote, Listing])
def test_rows_that_are_elsewhere_are_refused_with_a_remedy(
    method: str, engine: type[Remote]
) -> None:
    with pytest.raises(RowsElsewhereError, match=r"in-process engine.*puf-special") as caught:
        run(method, with_engine(make_case(), engine(InProcess(CLIENTS))))
    assert not any(name in str(caught.value) for name in CLIENTS)


@pytest.mark.parametrize("method", ALL)
def test_offline_targets_stop_only_the_methods_that_ask_them(method: str) -> None:
    case = make_case(targets=None)
    if method in ASCENT:
        with pytest.raises(UnmetNeedError, match="offline: use hf-kcu or retrain"):
            run(method, case)
    else:
        assert bits(run(method, case).weights) == bits(run(method, make_case()).weights)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"anna": None}, "not in this process"),
        ({"anna": CLIENTS["bert"]}, "another number of rows"),
        ({"anna": ClientData(torch.zeros(7, 5), CLIENTS["anna"].targets)}, "different shapes"),
    ],
)
def test_a_holder_that_contradicts_the_registration_is_refused(
    change: dict[str, Any], words: str
) -> None:
    case = make_case()
    held = {**case.retained.engine.clients, **change}  # type: ignore[attr-defined]
    held = {name: rows for name, rows in held.items() if rows is not None}
    with pytest.raises(RefusedError, match=words):
        run("finetune", replace(case, retained=Side(InProcess(held), case.retained.rows)))


def test_rows_of_another_network_are_refused() -> None:
    narrow = {
        name: ClientData(rows.inputs[:, :3], rows.targets) for name, rows in CLIENTS.items()
    }
    with pytest.raises(RefusedError, match="shape"):
        run("finetune", make_case(narrow))


@pytest.mark.parametrize("method", ALL)
def test_equal_seeds_give_equal_bits_and_the_old_weights_stay(method: str) -> None:
    before = bits(WEIGHTS)
    first, again = run(method, make_case()), run(method, make_case())
    assert bits(first.weights) == bits(again.weights)
    assert first.work == again.work
    assert bits(WEIGHTS) == before
    assert moved_from(first.weights) > 0
    other = run(method, make_case(config=replace(CONFIG, seed=4)))
    assert bits(first.weights) != bits(other.weights)
    assert first.claim == "empirical-approximate"


@pytest.mark.parametrize("method", ALL)
def test_a_divergence_is_named_and_nothing_changes(method: str) -> None:
    before = bits(WEIGHTS)
    # Weight decay times rate is 1e12: the weights leave float32 within four steps.
    wild = replace(CONFIG.local, learning_rate=1e6, weight_decay=1e6)
    made: Any = METHODS[method]
    made = (
        replace(made, scale=1e39)
        if method == "wood-fisher"
        else replace(made, learning_rate=None)
    )
    with pytest.raises(DivergedError):
        central.unlearn(made, make_case(config=replace(CONFIG, local=wild)))
    assert bits(WEIGHTS) == before


@pytest.mark.parametrize("method", ALL)
def test_a_run_that_goes_on_asks_for_no_rows_and_gives_the_same_bits(method: str) -> None:
    saved: list[bytes] = []
    case = make_case()
    whole = run(method, case, save=saved.append)
    resumed = run(method, with_engine(case, Remote(InProcess({}))), resume=saved[-1])
    assert bits(resumed.weights) == bits(whole.weights)
    assert resumed.work == whole.work
    with pytest.raises(CheckpointError, match="another unlearning"):
        run(method, make_case(config=replace(CONFIG, seed=4)), resume=saved[-1])


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        (name, (LEAVE if name in ASCENT else 0) + (0 if name == "neg-grad" else STAY))
        for name in ALL
    ],
)
def test_only_the_declared_rows_are_paid_for(method: str, rows: int) -> None:
    found = run(method, make_case())
    assert (found.work.bytes_up, found.work.bytes_down) == (rows * ROW, 0)
    assert found.work.rounds == 0
    assert found.work.seconds > 0
    assert found.notes.get("central.forget-rows") == (str(LEAVE) if method in ASCENT else None)


def test_steps_and_operations_are_those_of_the_passes() -> None:
    gradient, forward = training_flops(NETWORK, "cross-entropy"), forward_flops(NETWORK)
    stay, leave = 6, 2  # batches of four
    fisher = (
        2 * 10**2 * 15
        + 10**3 // 3
        + 8 * 10 * 15
        + (STAY + LEAVE + 10) * operation_flops(NETWORK, "cross-entropy", "gradient")
    )
    # Twelve batches of the rows to forget beside twelve that stay: 4, 3, 4, 3, …
    expected = {
        "finetune": (2 * stay, 2 * STAY * gradient),
        "l1-sparsity": (2 * stay, 2 * STAY * gradient),
        "neg-grad": (2 * leave, 2 * LEAVE * gradient),
        "neg-grad-plus": (2 * stay, (2 * STAY + 6 * LEAVE) * gradient),
        "random-label": (2 * 8, 2 * (STAY + LEAVE) * gradient),
        "scrub": (leave + 2 * stay, (LEAVE + 2 * STAY) * (gradient + forward)),
        "wood-fisher": (stay + leave + 10, fisher),
    }
    for method in ALL:
        work = run(method, make_case()).work
        assert (method, work.steps, work.flops) == (method, *expected[method])


@pytest.mark.parametrize("method", ALL)
def test_progress_is_told_and_notes_name_no_client(method: str) -> None:
    ticks: list[Tick] = []
    notes = run(method, make_case(), tell=ticks.append).notes
    assert [(tick.done, tick.total) for tick in ticks] == [(0, 1), (1, 2), (2, 2), (1, 1)]
    assert not any(name in f"{notes}" for name in CLIENTS)


def test_recovery_rounds_can_follow() -> None:
    step = NegGrad(epochs=1, learning_rate=0.01)
    after = replace(step, recovery=Recovery(rounds=2)).run(make_case())
    assert after.work.rounds == 2
    assert bits(after.weights) != bits(step.run(make_case()).weights)


class _Exhausted:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.device, self.threads = "cpu", None

    @property
    def clients(self) -> dict[str, ClientData]:
        return _Failing(self.error)

    def run(self, tasks: Any, *, timeout: float) -> Any:
        raise AssertionError("a central method sends no message")


class _Failing(dict[str, ClientData]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def get(self, *_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (MemoryError(), OutOfMemoryError),
        (torch.OutOfMemoryError("CUDA out of memory"), OutOfMemoryError),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"),
            OutOfMemoryError,
        ),
        (RuntimeError("a bug of another kind"), RuntimeError),
    ],
)
def test_only_a_lack_of_memory_is_named_so(error: Exception, named: type[Exception]) -> None:
    case = make_case()
    with pytest.raises(named) as caught:
        Finetune().run(replace(case, retained=Side(_Exhausted(error), case.retained.rows)))
    assert type(caught.value) is named


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("finetune", {"epochs": 0}),
        ("finetune", {"epochs": 1.5}),
        ("finetune", {"learning_rate": -1.0}),
        ("finetune", {"batch_size": 0}),
        ("l1-sparsity", {"penalty": float("nan")}),
        ("neg-grad-plus", {"balance": 1.1}),
        ("scrub", {"max_steps": 9}),
        ("scrub", {"alpha": -0.5}),
        ("scrub", {"temperature": 0.0}),
        ("wood-fisher", {"damping": 0.0}),
        ("wood-fisher", {"samples": 0}),
        ("wood-fisher", {"scale": float("inf")}),
        ("wood-fisher", {"memory": 0}),
    ],
)
def test_settings_out_of_range_are_refused(method: str, settings: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        replace(METHODS[method], **settings)  # type: ignore[type-var]


def test_images_in_augmented_batches_run_through_every_method() -> None:
    named = network("simple-cnn", {"height": 8, "width": 8, "classes": 3})
    drawn = torch.Generator().manual_seed(1)
    clients = {
        name: ClientData(torch.randn(len(rows), 1, 8, 8, generator=drawn), rows.targets)
        for name, rows in CLIENTS.items()
    }
    local = replace(CONFIG.local, augment="crop-flip", momentum=0.9, learning_rate=0.01)
    config = TrainingConfig(1, 3, local)
    case = local_case(named, initial_weights(named, 1), REQUEST, config, clients)
    plain = replace(case, config=replace(config, local=replace(local, augment="none")))
    for method in ALL:
        found = bits(run(method, case).weights)
        # Rows to forget are never augmented, nor rows used only for a gradient.
        changed = method in ("finetune", "l1-sparsity", "neg-grad-plus", "scrub")
        assert (found != bits(run(method, plain).weights)) == changed, method
