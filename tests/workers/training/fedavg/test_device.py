"""A device is chosen, distrusted, named; one that fails costs a client its answer only."""

import threading
from dataclasses import replace

import pytest
import torch

from tests.doubles.gpu import Change, longer, scaled, simulated
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.training.fedavg import in_process
from workers.training.fedavg.base import ClientData, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.device import check, choose, facts, facts_of
from workers.training.fedavg.errors import DeviceError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks, run_round
from workers.training.fedavg.server import initial_state
from workers.training.networks.weights import initial_weights

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_without_cuda_auto_is_the_cpu_and_cuda_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose("auto") == choose("cpu") == InProcess(CLIENTS, "auto").device == CPU
    with pytest.raises(DeviceError, match="driver, or choose cpu"):
        choose("cuda")
    with pytest.raises(RefusedError, match="auto, cpu, cuda"):
        choose("tpu")


def test_a_device_that_computes_rightly_is_taken_and_tested_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = simulated(monkeypatch, scaled(1 + 1e-5))  # another order of sums
    assert choose("auto") == choose("cuda") == InProcess(CLIENTS, "auto").device == CUDA
    assert len(given) == 4  # training and a product, each twice
    assert choose("cpu") == CPU


def lost(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
    raise torch.OutOfMemoryError("no memory is left for somebody's rows")


def absent(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
    raise AssertionError("Torch not compiled with CUDA enabled")


def varying() -> Change:
    calls = iter(range(9))
    return lambda _, update: longer(update, 1 + 1e-6 * next(calls))


def doubled(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
    return update if task.operation == "train" else longer(update, 2.0)


BROKEN: dict[str, tuple[Change, str]] = {
    "off by two thousandths": (scaled(1.002), "train is wrong"),
    "zeros": (scaled(0.0), "train is wrong"),
    "NaN": (scaled(float("nan")), "train is wrong"),
    "out of memory": (lost, "OutOfMemoryError"),
    "no CUDA in torch": (absent, "AssertionError"),
    "other bits each time": (varying(), "train varies"),
    "products alone": (doubled, "gauss-newton is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_device_that_does_not_is_a_warning_or_an_error(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    change, message = BROKEN[what]
    simulated(monkeypatch, change)
    with pytest.raises(DeviceError, match=message):
        choose("cuda")
    assert choose("auto") == CPU
    assert "computing on the CPU" in caplog.text
    assert "somebody" not in caplog.text


def test_the_cpu_passes_its_own_test() -> None:
    check(CPU)


def test_the_facts_of_a_certificate() -> None:
    assert facts("cpu", "bfloat16")["precision"] == "bfloat16"
    assert facts(CPU, "float32")["deterministic"] == "false"
    with deterministic():
        assert facts(CPU, "float32")["deterministic"] == "true"
    mixed = replace(CONFIG.local, precision="bfloat16")
    known = {"device": "cpu", "deterministic": "true", "precision": "bfloat16"}
    assert facts_of(InProcess(CLIENTS), mixed) == known
    elsewhere = {"device": "unknown", "deterministic": "unknown", "precision": "float32"}
    assert facts_of(object(), CONFIG.local) == elsewhere


def test_a_gpu_goes_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Example GPU 40GB")
    assert facts(CUDA, "float32")["device"] == "Example GPU 40GB"


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (torch.AcceleratorError("CUDA error: out of memory\nCompile with"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `f`"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: an illegal instruction"), False),
    ],
)
def test_a_device_that_fails_is_a_fault_of_one_client_and_the_model_stands(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, memory: bool
) -> None:
    def answer(task: RoundTask, data: ClientData, device: torch.device) -> ClientUpdate:
        if task.client == "bert":
            raise error
        return respond(task, data, device)

    start = initial_weights(NETWORK, CONFIG.seed)
    kept = {name: part.clone() for name, part in start.items()}
    others = {name: rows for name, rows in ROWS.items() if name != "bert"}
    state = initial_state(start, CONFIG.server)
    alone, _ = run_round(NETWORK, state, others, CONFIG, InProcess(CLIENTS), 1)
    monkeypatch.setattr(in_process, "respond", answer)
    engine = InProcess(CLIENTS)
    after, record = run_round(NETWORK, state, ROWS, CONFIG, engine, 1)
    assert record.faults == (Fault("bert", "client-error", type(error).__name__),)
    assert engine.out_of_memory == memory
    assert all(torch.equal(start[name], kept[name]) for name in kept)
    assert all(torch.equal(after.weights[name], alone.weights[name]) for name in kept)


def test_two_clients_that_fail_at_once_do_not_hide_that_one_had_too_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other's error is looked at while the first one's is noted."""
    looked, noted = threading.Event(), threading.Event()
    lost, other = sorted(CLIENTS)[:2]

    def answer(task: RoundTask, data: ClientData, device: torch.device) -> ClientUpdate:
        if task.client == lost:
            assert looked.wait(10)
            raise MemoryError
        raise RuntimeError("shapes cannot be multiplied")

    def ran_out(error: BaseException) -> bool:
        if isinstance(error, MemoryError):
            return True
        looked.set()
        assert noted.wait(10)
        return False

    class Engine(InProcess):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if (name, value) == ("out_of_memory", True):
                noted.set()

    monkeypatch.setattr(in_process, "respond", answer)
    monkeypatch.setattr(in_process, "ran_out_of_memory", ran_out)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    engine = Engine(CLIENTS, threads=1)
    weights = initial_weights(NETWORK, CONFIG.seed)
    engine.run(make_tasks(NETWORK, weights, [lost, other], CONFIG.local, round=1, seed=1))
    assert engine.out_of_memory
