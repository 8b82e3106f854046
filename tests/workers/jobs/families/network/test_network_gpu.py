"""A worker of a GPU serves erasures: one that computes rightly, is too small, or errs later.

The GPU is a double of the processor with arithmetic of its own, so that what was computed on
the processor instead has other bits.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from sqlmodel import Session, select

from app import steps
from models import Certificate
from tests import small_network
from tests.doubles.gpu import (
    NAME,
    SELF_TEST,
    Change,
    longer,
    scaled,
    simulated,
    worker_of_a_gpu,
)
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.attempts.ladders import GONE, HF_KCU, policy
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import logistic, networks, test_noisy_finetuning
from workers import devices
from workers.training.fedavg.base import Answers, ClientUpdate, RoundTask
from workers.training.fedavg.in_process import InProcess

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

OWN = 1 + 1e-5  # another order of float32 sums, which the self-test allows
ROUNDS = small_network.manifest()["training"]["rounds"]
STAY = ["c0", "c2", "c3"]


@pytest.fixture(autouse=True)
def worker() -> Iterator[None]:
    with worker_of_a_gpu():
        yield


def too_small(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
    """Have memory for trainings without c1 alone: for no derivative, and not for c1."""
    if task.client != SELF_TEST and (task.operation != "train" or task.client == "c1"):
        raise torch.OutOfMemoryError("CUDA out of memory")
    return longer(update, OWN)


def test_an_erasure_on_a_gpu_is_certified_and_the_certificate_names_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = simulated(monkeypatch, scaled(OWN))
    networks.register(installation)
    learned = len(given)
    request_id = networks.erase(installation, networks.whole("c1"), method="retrain")
    assert "escalated" not in networks.events(installation, request_id)
    found = networks.statement(installation, request_id).predicate
    assert (found.result, found.guarantee.class_) == ("PASS", "exact-retrained")
    assert found.method.parameters["device"] == NAME
    assert found.method.parameters["deterministic"] == "true"
    # The worker trained on it, and so did the verifier: each round of each client twice.
    asked = Counter((task.round, task.client) for task in given[learned:])
    assert asked == {(number, one): 2 for number in range(1, ROUNDS + 1) for one in STAY}
    on_the_processor = networks.retrained(small_network.rows(), GONE)
    assert networks.published(installation) != on_the_processor


@pytest.mark.parametrize("method", ["hf-kcu", "puf-special"])
def test_a_method_that_a_gpu_is_too_small_for_gives_way_to_the_retraining(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    simulated(monkeypatch, scaled(OWN))
    networks.register(installation)
    simulated(monkeypatch, too_small)
    request_id = networks.erase(installation, networks.whole("c1"), method=method)
    found = networks.statement(installation, request_id).predicate.method
    assert (found.id, found.parameters["device"]) == ("retrain", NAME)
    assert escalation_line(found.parameters) == f"{method}: OutOfMemory"
    assert found.parameters["retrain.missing"] == "0"


def test_a_later_attempt_that_a_gpu_is_too_small_for_gives_way_too(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(monkeypatch, scaled(OWN))
    networks.register(installation, policy=policy(HF_KCU))
    plant(monkeypatch, "yeom:auc")

    def no_derivative(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
        return too_small(task, update) if task.operation != "train" else longer(update, OWN)

    simulated(monkeypatch, no_derivative)
    request_id = networks.erase(installation, networks.whole("c1"))
    found = networks.statement(installation, request_id).predicate.method
    assert found.id == "retrain"
    assert escalation_line(found.parameters).endswith("| hf-kcu: OutOfMemory")


def too_small_for(*small: str) -> Change:
    """Have no memory for these clients."""

    def change(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
        if task.client in small:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return longer(update, OWN)

    return change


@pytest.mark.parametrize("small", [["c3"], STAY])
def test_a_retraining_without_a_client_that_needs_more_memory_is_not_published(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, small: list[str]
) -> None:
    simulated(monkeypatch, scaled(OWN))
    networks.register(installation)
    simulated(monkeypatch, too_small_for(*small))
    request_id = networks.erase(installation, networks.whole("c1"), method="retrain")
    request = networks.request(installation, request_id)
    assert request.state == "refused"
    assert "run a worker with more memory" in str(request.reason)


def test_a_worker_that_goes_on_with_a_retraining_knows_of_what_it_lacks(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a death behind the last round no client is asked again, and all seem to be there."""
    simulated(monkeypatch, scaled(OWN))
    networks.register(installation)
    simulated(monkeypatch, too_small_for("c3"))
    request_id = networks.submit(installation, networks.whole("c1"), method="retrain")
    steps.plant(f"execute.checkpoint@{ROUNDS}=raise")
    with suppress(steps.PlantedFaultError):
        installation.drain()
    steps.install(None)
    installation.recover()
    request = networks.request(installation, request_id)
    assert request.state == "refused"
    assert "run a worker with more memory" in str(request.reason)


@pytest.mark.parametrize("small", [["c3"], STAY])
@pytest.mark.parametrize("noise", [False, True])
def test_a_verifier_whose_memory_does_not_suffice_refutes_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, small: list[str], noise: bool
) -> None:
    """Its repetition lacks what the client would have answered: another worker may have it."""
    simulated(monkeypatch, scaled(OWN))
    if noise:
        test_noisy_finetuning.register(installation)
    else:
        networks.register(installation, method="retrain")
    request_id = networks.submit(installation, networks.whole("c1"))
    steps.plant("verify.leased=raise")
    with suppress(steps.PlantedFaultError):
        installation.drain()
    steps.install(None)
    simulated(monkeypatch, too_small_for(*small))
    installation.recover()
    assert networks.request(installation, request_id).state == "verifying"
    assert networks.jobs(installation)[-1].error == "MemoryError at verify"
    simulated(monkeypatch, scaled(OWN))
    installation.recover()
    assert networks.request(installation, request_id).state == "certified"
    assert "escalated" not in networks.events(installation, request_id)


def dies_and_goes_on_at_the_processor(made: Installation) -> None:
    """Let the worker of a GPU die once a checkpoint is kept, and one without a GPU go on."""
    steps.plant("execute.checkpoint=raise")
    with suppress(steps.PlantedFaultError):
        made.drain()
    steps.install(None)
    devices.choose("cpu")
    made.recover()


def test_a_retraining_begun_on_a_gpu_is_begun_anew_on_the_processor(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No machine could repeat rounds of both: its verifier would refute an honest training."""
    simulated(monkeypatch, scaled(OWN))
    networks.register(installation)
    request_id = networks.submit(installation, networks.whole("c1"), method="retrain")
    dies_and_goes_on_at_the_processor(installation)
    assert "escalated" not in networks.events(installation, request_id)
    found = networks.statement(installation, request_id).predicate
    assert (found.result, found.method.parameters["device"]) == ("PASS", "cpu")
    expected = networks.retrained(small_network.rows(), GONE)
    assert networks.published(installation) == expected


def test_the_device_on_a_certificate_computed_all_of_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(monkeypatch, scaled(OWN))
    logistic.register(installation, logistic.NOISE, method="certified-newton")
    request_id = networks.submit(installation, networks.some("r1"))
    asked: list[str] = []
    honest = InProcess.run

    def run(self: InProcess, tasks: list[RoundTask], *, timeout: float = 0.0) -> Answers:
        asked.append(self.device.type)
        return honest(self, tasks, timeout=timeout)

    monkeypatch.setattr(InProcess, "run", run)
    dies_and_goes_on_at_the_processor(installation)
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "certified-approximate"
    assert found.method.parameters["device"] == "cpu"
    assert {"cuda", "cpu"} == set(asked)


@pytest.mark.parametrize(("wrong", "state"), [(1, "certified"), (1000, "needs-decision")])
def test_a_gpu_that_errs_after_its_self_test_is_not_believed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, wrong: int, state: str
) -> None:
    """Its first answers, as many as are wrong, each have bits of their own."""
    simulated(monkeypatch, scaled(OWN))
    networks.register(installation)
    left = iter(range(1, wrong + 1))

    def errs(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
        return longer(update, OWN + 1e-5 * (task.client != SELF_TEST and next(left, 0)))

    simulated(monkeypatch, errs)
    request_id = networks.erase(installation, networks.whole("c1"), method="retrain")
    events = networks.events(installation, request_id)
    # The repetition ended with other bits than were published: both are done once more.
    assert events[2:] == ["executed", "verified", "escalated", "executed", "verified", state]
    request = networks.request(installation, request_id)
    assert request.state == state
    if state == "certified":
        parameters = networks.statement(installation, request_id).predicate.method.parameters
        assert escalation_line(parameters).startswith("retrain: FAIL (")
        return
    assert "6 re-execution" in str(request.reason)
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Certificate)).all()
