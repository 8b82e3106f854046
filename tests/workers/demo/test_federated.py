"""The federated demonstration: what it deals, measures and prints."""

from dataclasses import replace
from math import isnan

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from workers.cli.demo import NETWORK
from workers.cli.demo_federated import demo_federated
from workers.data.digits import load_digit_images
from workers.demo import federated as demonstration
from workers.demo.federated import Teller, table
from workers.demo.forgetting import CLIENTS, Measured, federate, learn, measure, unlearn
from workers.errors import RefusedError
from workers.methods.network.base import Tick
from workers.training.fedavg.base import Work
from workers.training.fedavg.config import LocalConfig, TrainingConfig

LOCAL = LocalConfig(epochs=1, learning_rate=0.05)
CONFIG = TrainingConfig(rounds=1, seed=0, local=LOCAL)


def test_rows_are_dealt_once_and_the_largest_client_goes() -> None:
    federated = federate(load_digit_images(), CONFIG)
    sizes = {name: len(data) for name, data in federated.clients.items()}
    assert len(sizes) == CLIENTS
    assert sum(sizes.values()) == 1437
    assert len(federated.test) + len(federated.validation) == 360
    assert sizes[federated.target] == max(sizes.values())
    assert len(federated.forget) + len(federated.retained) == 1437
    fewer = federate(load_digit_images(), CONFIG, rows=500)
    assert sum(len(data) for data in fewer.clients.values()) == 500


def test_data_without_a_test_set_are_refused() -> None:
    images = load_digit_images()
    with pytest.raises(RefusedError, match="test set"):
        federate(replace(images, is_test=np.zeros(len(images.labels), dtype=np.bool_)), CONFIG)


def test_models_are_measured_and_a_refusal_is_a_line() -> None:
    federated = federate(load_digit_images(), CONFIG, rows=300)
    ticks: list[Tick] = []
    case, work = learn(federated, ticks.append)
    assert case.request.clients == {federated.target}
    original = measure(federated, "original", case.weights, work)
    zero = {name: torch.zeros_like(part) for name, part in case.weights.items()}
    flat = measure(federated, "flat", zero, None)
    # All logits equal: argmax is class 0.
    assert flat.forget == float((federated.forget.targets == 0).double().mean())
    natural = unlearn(federated, case, "natural", {"recovery": {"rounds": 0}})
    assert (natural.test, natural.forget) == (original.test, original.forget)
    refused = unlearn(federated, replace(case, targets=None), "puf-special")
    assert isnan(refused.test)
    text = table([original, refused], work)
    assert "1/1.0" in text
    assert "refused: a target client is offline: use hf-kcu or retrain" in text


def test_the_table_counts_against_the_baseline() -> None:
    line = Measured("puf", 0.5, 0.25, 0.125, Work(flops=10, bytes_down=10**6, seconds=2.0))
    row = table([line], Work(flops=400)).splitlines()[1].split()
    assert row == ["puf", "50.0", "25.0", "12.5", "2.0", "0.0", "1.0", "1/40.0"]


def test_the_teller_ends_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    teller = Teller()
    tell = teller.begin("one")
    for done in (1, 2):
        tell(Tick("recovery", done, 2, 0.5))
    teller.begin("two")
    teller.end()
    teller.end()
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["one", "one", "two"]
    assert "recovery, 1 of 2 rounds" in lines[0]


def test_the_command_from_end_to_end() -> None:
    done = CliRunner().invoke(demo_federated, ["--rounds", "1"])
    assert done.exit_code == 0, done.output
    # Hard-coded, so that a method dropped from the demonstration is noticed.
    shown = ["original", "natural", "puf-special", "puf-regular", "hf-kcu", "retrained"]
    for word in shown:
        assert f"\n{word} " in done.stdout
    assert "No certificate is issued" in done.stdout
    assert "lethe demo --method puf-special" in done.stdout
    assert "puf-special" in NETWORK  # such a command exists
    assert "not run deep" not in done.stdout


def test_a_method_that_nobody_knows_is_no_gap_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demonstration, "METHODS", ("no-such-method",))
    with pytest.raises(RefusedError, match="unknown method"):
        demonstration.run(None, seed=0, rounds=1)
    assert capsys.readouterr() == ("", "")  # nothing was trained before the refusal
