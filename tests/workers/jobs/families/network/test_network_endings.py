"""A method that ends without a model: the request is served by retraining, and reports it."""

import pytest
import torch

from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.attempts.ladders import HF_KCU, policy
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import networks
from workers.families.network import (
    attempt as network_attempt,
)
from workers.families.network import (
    update as network_update,
)
from workers.methods.network.hf_kcu.conjugate_gradients import BreakdownError
from workers.methods.network.hf_kcu.direction import CurvatureError
from workers.methods.network.recovery import LastingDamageError


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "OutOfMemory"),
        (BreakdownError("planted"), "Breakdown"),
        (CurvatureError("planted"), "Curvature"),
        (LastingDamageError("planted"), "LastingDamage"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_method_without_a_result_gives_way_to_the_retraining(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, error: Exception, named: str
) -> None:
    def ends(*_: object) -> None:
        raise error

    networks.register(installation)
    monkeypatch.setattr(network_update, "carry_out", ends)
    request_id = networks.erase(installation, networks.whole("c1"), method="hf-kcu")
    method = networks.statement(installation, request_id).predicate.method
    assert (method.id, escalation_line(method.parameters)) == ("retrain", f"hf-kcu: {named}")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_later_attempt_that_runs_out_of_memory_gives_way_too(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    networks.register(installation, policy=policy(HF_KCU))
    plant(monkeypatch, "yeom:auc")
    monkeypatch.setattr(network_attempt, "resumed", ends)
    request_id = networks.erase(installation, networks.whole("c1"))
    method = networks.statement(installation, request_id).predicate.method
    assert method.id == "retrain"
    assert escalation_line(method.parameters).endswith("| hf-kcu: OutOfMemory")
