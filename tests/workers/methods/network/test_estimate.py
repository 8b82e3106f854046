"""The estimate before a run is at least what the run counts, and not much larger."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.methods.network.small import REQUESTS, VALIDATION, case
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK
from workers.methods.network.base import UnlearningCase
from workers.methods.network.estimate import Sizes, most_flops, retraining_flops
from workers.methods.network.registry import make
from workers.training.fedavg.config import LocalConfig, TrainingConfig
from workers.training.networks.registry import network

FORGET = {"rise": 9.0, "shrink": 0.3, "trials": 12, "forget": 4.0}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "special": ("puf-special", {}),
    "regular": ("puf-regular", {"epochs": 2, "recovery": {"rounds": 1}}),
    "fixed step": ("puf-special", {"guard": None, "unlearning_rate": 0.1}),
    "stop by loss": ("puf-special", {"recovery": {"rounds": 2, "within": 0.5}}),
    "gauss-newton": ("hf-kcu", {}),
    "hessian": ("hf-kcu", {"product": "hessian", "iterations": 3, "damping": 1.0}),
    "some rows": ("hf-kcu", {"curvature_rows": 0.5, "recovery": {"rounds": 1}}),
    "diagonal": ("hf-kcu", {"preconditioner": "diagonal", "probes": 2}),
    "natural": ("natural", {}),
    "cycles of puf": ("puf-special", {"cycles": 3, "guard": FORGET, "recovery": {"rounds": 1}}),
    "cycles of hf-kcu": (
        "hf-kcu",
        {"cycles": 2, "guard": FORGET, "form": "influence", "drift": "skip"},
    ),
}


def sizes_of(asked: UnlearningCase) -> Sizes:
    assert asked.targets is not None
    retained, forget = sum(asked.retained.rows.values()), sum(asked.targets.rows.values())
    return Sizes(retained, forget, len(VALIDATION))


@pytest.mark.parametrize("named", METHODS)
@pytest.mark.parametrize("kind", ["client", "rows"])
def test_no_run_takes_more_than_was_reckoned(named: str, kind: str) -> None:
    method = make(*METHODS[named])
    asked = case(REQUESTS[kind])
    most = most_flops(method, NETWORK, CONFIG, sizes_of(asked))
    assert most is not None
    took = method.run(asked).work.flops
    assert took <= most <= 4 * took


def test_a_retraining_is_reckoned_exactly() -> None:
    asked = case()
    pinned = replace(asked, data="x")
    took = make("retrain").run(pinned).work.flops
    assert retraining_flops(NETWORK, CONFIG, sizes_of(asked).retained) == took
    half = replace(CONFIG, participation=0.5)
    assert retraining_flops(NETWORK, half, 100) == retraining_flops(NETWORK, CONFIG, 50)


def test_what_nobody_reckoned_is_not_guessed() -> None:
    rows = sum(map(len, CLIENTS.values()))
    assert most_flops(make("scrub"), NETWORK, CONFIG, Sizes(rows, 5, 30)) is None


def test_the_numbers_in_the_documentation() -> None:
    """docs/policies.md: 8,000 rows retained, 800 to forget, 2,000 held out; ten rounds."""
    shape = {"channels": 1, "height": 28, "width": 28, "classes": 10}
    cnn, sizes = network("simple-cnn", shape), Sizes(8000, 800, 2000)
    config = TrainingConfig(rounds=10, seed=0, local=LocalConfig(epochs=1.0))
    whole = retraining_flops(cnn, config, sizes.retained)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("puf-special", {}),
        ("hf-kcu", {"curvature_rows": 0.1}),
        ("hf-kcu", {}),
    ]
    found = [most_flops(make(*one), cnn, config, sizes) for one in asked]
    assert [round((most or 0) / whole, 2) for most in found] == [0.49, 0.61, 3.52]
