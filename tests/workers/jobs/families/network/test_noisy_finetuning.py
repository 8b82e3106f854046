"""Noisy fine-tuning of a small head, from a signed request to its certificate."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from app.schemas.families.networks import NewNetwork
from app.vault.master import noise_key
from tests import small_network
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.families.network import networks
from workers.families.network import case as network_case
from workers.families.network.case import Common, SealedRun
from workers.families.network.certified import GIVES_WAY
from workers.families.network.data.rows import ClientRows
from workers.families.network.noisy import SilosError, load_keyed
from workers.methods.certified import noisy_finetuning
from workers.methods.certified.noisy_finetuning import NoisyFinetuning, sigma_for
from workers.methods.network.base import Side
from workers.training.fedavg import noisy
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.in_process import InProcess
from workers.training.networks.registry import network
from workers.training.networks.weights import encode_weights, initial_weights

NOISY = "noisy-finetuning"
SHAPE = {**small_network.SHAPE, "hidden": 5}
MLP = {"network": {"id": "mlp", "parameters": SHAPE}}
TERMS = {
    **{"epsilon": 2.0, "delta": 1e-5, "releases": 2, "steps": 3, "recovery_rounds": 1},
    **{"learning_rate": 0.5, "pull": 0.2, "start_norm": 0.4, "gradient_norm": 0.05},
}
Patch = pytest.MonkeyPatch
Left = tuple[Common, SealedRun]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: certification does not depend on it."""
    return sqlite_url


def register(installation: Installation, **more: Any) -> None:
    networks.register(
        installation, **{**MLP, "settings": {NOISY: TERMS}, "method": NOISY, **more}
    )


def erase(installation: Installation, record: str) -> Any:
    request_id = networks.erase(installation, networks.some(record))
    return networks.statement(installation, request_id).predicate


def test_requests_are_certified_until_the_budget_is_spent_and_cheats_are_refuted(
    installation: Installation, monkeypatch: Patch
) -> None:
    left: list[Left] = []
    honest = network_case.judge_noisy

    def judge(*given: Any, **more: Any) -> Any:
        left.append(given)
        return honest(*given, **more)

    monkeypatch.setattr(network_case, "judge_noisy", judge)
    register(installation, held_out=0.0)
    key = noise_key(installation.services.root_secret, networks.model(installation))
    for number in (1, 2):
        found = erase(installation, f"r{number}")
        assert found.guarantee.class_ == "certified-approximate"
        assert dict(found.guarantee.bounds) == {"epsilon": "2.0", "delta": "1e-05"}
        assert "repeated them bit for bit" in found.guarantee.statement
        assert found.method.parameters["noise.release"] == f"{number} of 2"
        committed = hashlib.sha256(b"lethe certified noise key 1\x00" + key).hexdigest()
        assert found.method.parameters["noise.commitment"] == committed
    # The budget is spent: a retraining begins a new one.
    third = erase(installation, "r3")
    assert third.guarantee.class_ == "exact-retrained"
    assert escalation_line(third.method.parameters) == f"{NOISY}: BudgetSpent"
    # The judge notices every change to the results of an honest execution.
    common, sealed = left[0]
    for name, (cheat, wanted) in CHEATS.items():
        report = honest(*cheat((common, sealed)), alike=True, device=torch.device("cpu")).report
        assert {c.name for c in report.checks if not c.passed} == wanted, name
    installation.check()
    # A provider that skips a part of the method is refuted, and a retraining follows.
    for name, skip in SKIPS.items():
        with monkeypatch.context() as patch:
            skip(patch)
            found = erase(installation, f"r{4 + list(SKIPS).index(name)}")
        assert found.guarantee.class_ == "exact-retrained", name
        said = escalation_line(found.method.parameters) or ""
        assert said.startswith(f"{NOISY}: FAIL ({SEEN[name]}"), said


def planned(left: Left, **parameters: str) -> Left:
    plan = left[0].case.plan
    plan = replace(plan, parameters={**plan.parameters, **parameters})
    return replace(left[0], case=replace(left[0].case, plan=plan)), left[1]


def one_row_more(left: Left) -> Left:
    """Return the results with a row of the first client twice, as if it had been left in."""
    client, own = next(iter(left[0].rows.items()))
    data = own.data.only(torch.tensor([0, *range(len(own.data))]))
    rows = ClientRows([own.records[0], *own.records], data, np.insert(own.held, 0, False))
    return replace(left[0], rows={**left[0].rows, client: rows}), left[1]


def other_model(left: Left) -> Left:
    file = encode_weights("mlp", SHAPE, initial_weights(network("mlp", SHAPE), 3))
    return left[0], replace(left[1], model=file)


ENDS_ELSEWHERE = {"re-execution", "noise"}
CHEATS: dict[str, tuple[Callable[[Left], Left], set[str]]] = {
    "honest": (lambda left: left, set()),
    "another key": (lambda left: (left[0], replace(left[1], key=bytes(32))), ENDS_ELSEWHERE),
    "a smaller sigma": (
        lambda left: planned(left, **{"noise.sigma": "0.1"}),
        {*ENDS_ELSEWHERE, "budget"},
    ),
    "one row more": (one_row_more, ENDS_ELSEWHERE),
    "another model before": (other_model, {*ENDS_ELSEWHERE, "model-before"}),
    "another ordinal": (
        lambda left: (left[0], replace(left[1], ordinal=left[1].ordinal + 1)),
        ENDS_ELSEWHERE,
    ),
    "an overspent budget": (lambda left: (left[0], replace(left[1], before=2)), {"budget"}),
}


def _with_terms(patch: Patch, **changes: Any) -> None:
    """Run the method with other steps than the judge."""
    honest = noisy.finetune

    def finetune(*given: Any) -> Any:
        arguments = list(given)
        arguments[5] = replace(arguments[5], **changes)
        return honest(*arguments)

    patch.setattr(noisy_finetuning, "finetune", finetune)


def less_noise(patch: Patch) -> None:
    """Use and publish half of the required noise."""
    patch.setattr(noisy_finetuning, "sigma_for", lambda *given: sigma_for(*given) / 2)


def left_in(patch: Patch) -> None:
    """Keep the erased row among those that the steps and the recovery use."""
    honest = NoisyFinetuning.keyed

    def keyed(self: Any, case: Any, *given: Any) -> Any:
        kept, [(client, gone)] = case.retained.engine, case.targets.engine.clients.items()
        own = kept.clients[client]
        both = ClientData(
            torch.cat([own.inputs, gone.inputs]), torch.cat([own.targets, gone.targets])
        )
        engine = InProcess({**kept.clients, client: both}, kept.device, kept.threads)
        rows = {**case.retained.rows, client: len(both)}
        return honest(self, replace(case, retained=Side(engine, rows)), *given)

    patch.setattr(NoisyFinetuning, "keyed", keyed)


def another_key(patch: Patch) -> None:
    """Draw the noise from a key that was never committed to."""
    honest = NoisyFinetuning.keyed

    def keyed(self: Any, case: Any, key: bytes, *given: Any) -> Any:
        return honest(self, case, bytes(byte ^ 1 for byte in key), *given)

    patch.setattr(NoisyFinetuning, "keyed", keyed)


SKIPS: dict[str, Callable[[Patch], None]] = {
    "another key": another_key,
    "one step too few": lambda patch: _with_terms(patch, steps=2),
    "start not clipped": lambda patch: _with_terms(patch, start_norm=1e6),
    "gradient not clipped": lambda patch: _with_terms(patch, gradient_norm=1e6),
    "less noise": less_noise,
    "the erased row left in": left_in,
}
SEEN = dict.fromkeys(SKIPS, "re-execution: 3 of 3") | {"less noise": "budget: the noise is too"}


def test_without_a_registered_key_and_for_a_network_too_large_it_retrains(
    installation: Installation,
) -> None:
    register(installation, settings={}, method="retrain")
    request_id = networks.erase(installation, networks.some("r1"), method=NOISY)
    found = networks.statement(installation, request_id).predicate
    assert escalation_line(found.method.parameters) == f"{NOISY}: NotRegistered"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {}}, "needs its epsilon, delta and releases"),
        ({"settings": {NOISY: {"epsilon": 1.0}}}, "delta: Field required"),
        ({"settings": {NOISY: {**TERMS, "sigma": 0.1}}}, "sigma: Extra inputs"),
        ({"settings": {NOISY: {**TERMS, "delta": 1e-11}}}, "keeps no delta below"),
        ({"settings": {NOISY: {**TERMS, "steps": 0}}}, "steps: Input should be greater"),
        ({"settings": {NOISY: {**TERMS, "pull": 2.1}}}, "learning_rate \\* pull"),
        (
            {"network": {"id": "mlp", "parameters": {**SHAPE, "hidden": 1000}}},
            "at most 10000 parameters and this head has 10003",
        ),
        (
            {"network": {"id": "simple-cnn", "parameters": {}}, "input_shape": [1, 28, 28]},
            "for heads on given features",
        ),
        (
            {
                "network": {"id": "logistic", "parameters": small_network.SHAPE},
                "training": {"rounds": 1, "local": {"weight_decay": 0.1}},
                "settings": {
                    NOISY: TERMS,
                    "certified-newton": {
                        **{"row_norm": 8.0, "sigma": 0.1, "epsilon": 1.0},
                        **{"delta": 1e-5, "releases": 1},
                    },
                },
            },
            "two budgets",
        ),
    ],
)
def test_a_registration_that_could_not_be_certified_is_refused_at_once(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        NewNetwork.model_validate(
            small_network.manifest(
                **{**MLP, "settings": {NOISY: TERMS}, "method": NOISY, **changes}
            )
        )


def test_silos_are_not_sent_the_iterates(installation: Installation) -> None:
    services = installation.services
    divided = replace(services, settings=services.settings.model_copy(update={"silos": 1}))
    nothing: Any = None  # refused before either is read
    with pytest.raises(SilosError, match="unset LETHE_SILOS, or use retrain"):
        load_keyed(divided, nothing, nothing)
    assert SilosError in GIVES_WAY
