"""The benchmark's own promises: who is measured, by what, and that every result is kept."""

from collections.abc import Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks.baselines.registry import ALL
from benchmarks.unlearning import campaign
from benchmarks.unlearning.__main__ import main
from benchmarks.unlearning.campaign import SettingCampaign
from benchmarks.unlearning.contenders import (
    AGAIN,
    ORIGINAL,
    RETRAIN,
    Contender,
    contender,
    planned,
)
from benchmarks.unlearning.formulas import formula
from benchmarks.unlearning.outcome import agreement, answer, attacked, divergence, outcome
from benchmarks.unlearning.records import (
    Records,
    line_of,
    parse_results,
    pin_of,
    read,
)
from benchmarks.unlearning.settings import SETTINGS, Setting
from benchmarks.unlearning.sources import MissingDataError, load
from benchmarks.unlearning.task import GUARDING, POISON, Task, make_task, with_trigger
from workers.demo.federated import Teller
from workers.judge.attacks.outputs import Outputs
from workers.training.fedavg import rounds as fedavg
from workers.training.fedavg.client.flops import forward_flops
from workers.training.networks.weights import initial_weights

torch.set_num_threads(1)

TINY = Setting(
    name="tiny",
    data="digits",
    about="a look",
    plan="all",
    rows=60,
    clients=3,
    alpha=0.5,
    rounds=1,
    epochs=1.0,
    rate=0.05,
)
SHORT = {"recovery": {"rounds": 1, "epochs": 1.0}}
MEASURED = (
    contender("natural"),
    Contender(AGAIN, RETRAIN),
    Contender("fed-eraser", "fed-eraser"),
    Contender("sisa", "sisa", {"shards": 5}),
    Contender("fats", "fats", {"clients": 2, "batch": 4, "steps": 1}),
    Contender("no room", "puf-special", {"guard": {"rise": 0.0, "trials": 1}, **SHORT}),
)


def task(seed: int = 0, **changes: Any) -> Task:
    setting = replace(TINY, **changes)
    return make_task(setting, load(setting.data, ()), seed)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tiny seed, measured once."""
    folder = tmp_path_factory.mktemp("cache")
    SettingCampaign(folder, Teller(), {}).seed(task(), MEASURED)
    return folder


@pytest.fixture(scope="module")
def measured(cache: Path) -> Records:
    return read([cache / "tiny.jsonl"])


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "tiny", TINY)


def values(label: str, records: Records) -> Mapping[str, float]:
    return records["tiny", 0, label].values


def test_every_method_of_the_registry_is_measured_once() -> None:
    methods = [part.method for part in planned("all") if part.label == part.method]
    # For logistic heads with weight decay alone, which no setting has.
    assert sorted([*methods, RETRAIN]) == sorted(
        set(ALL) - {"certified-newton", "noisy-finetuning"}
    )
    labels = [part.label for part in planned("everything")]
    assert len(labels) == len(set(labels))


def test_the_largest_client_goes_and_nobody_guards_with_a_test_row() -> None:
    dealt = task()
    (gone,) = dealt.request.clients
    assert len(dealt.forget) == max(len(part) for part in dealt.clients.values())
    assert torch.equal(dealt.forget.inputs, dealt.clients[gone].inputs)
    assert len(dealt.forget) + len(dealt.retained) == dealt.rows == 60
    test = {row.numpy().tobytes() for row in dealt.test.inputs}
    guards = {row.numpy().tobytes() for row in dealt.validation.inputs}
    assert not test & guards
    learned = {row.numpy().tobytes() for part in dealt.clients.values() for row in part.inputs}
    assert not test & learned
    assert (len(guards), len(test), len(learned)) == (GUARDING, 240 + 1437 - 60, 60)


def test_a_seed_decides_rows_partition_and_request() -> None:
    one, again, other = task(0), task(0), task(1)
    assert torch.equal(one.forget.inputs, again.forget.inputs)
    assert not (
        len(one.forget) == len(other.forget)
        and torch.equal(one.forget.inputs, other.forget.inputs)
    )


def test_half_of_one_client_and_two_clients() -> None:
    half = task(request="half-of-one")
    [(name, drawn)] = half.request.rows.items()
    largest = max(len(part) for part in half.clients.values())
    assert len(half.clients[name]) == largest
    assert len(set(drawn)) == len(half.forget) == largest // 2
    assert len(half.retained) == half.rows - largest // 2
    two = task(request="two-clients")
    sizes = sorted((len(part) for part in two.clients.values()), reverse=True)
    assert len(two.forget) == sizes[0] + sizes[1]


def test_the_poisoner_goes_and_its_trigger_is_tried_on_other_classes() -> None:
    dealt = task(poisoned=True, alpha=None)
    half = len(dealt.forget) // 2
    assert set(dealt.forget.targets[:half].tolist()) == {POISON}
    marked = dealt.forget.inputs[:half]
    assert torch.equal(marked, with_trigger(marked))
    assert dealt.triggered is not None
    assert len(dealt.triggered) == int((dealt.test.targets != POISON).sum())


def test_masks_mark_ink_and_the_first_client_is_the_inverted_one() -> None:
    dealt = task(data="digit-masks", network="res-unet", shape=(("features", 2),), alpha=None)
    assert dealt.test.targets.shape[1:] == (16, 16)
    assert set(dealt.test.targets.flatten().tolist()) == {0, 1}
    assert dealt.network.classes == 2
    for name, part in dealt.clients.items():
        ink, rest = (part.inputs[:, 0][part.targets == found].mean() for found in (1, 0))
        assert (ink < rest) == (int(name[-3:]) % 6 == 0)


def test_halved_images_are_means_of_four_pixels() -> None:
    images = load("digits", ())
    small = load("digits-halved", ())
    assert small.images.shape == (len(images.images), 4, 4, 1)
    for row, column in ((0, 0), (3, 2)):
        four = images.images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2, 0]
        assert np.array_equal(small.images[:, row, column, 0], np.rint(four.mean((1, 2))))


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"--data mnist\.npz"):
        load("mnist", [tmp_path / "cifar10.npz"])


def test_lines_hold_everything_and_refusals_are_lines(measured: Records) -> None:
    assert {label for _, _, label in measured} == {
        ORIGINAL,
        RETRAIN,
        *(part.label for part in MEASURED),
    }
    assert "no step" in measured["tiny", 0, "no room"].refused
    truth = measured["tiny", 0, RETRAIN]
    assert (truth.values["kl"], truth.values["agreement"], truth.values["distance"]) == (
        0,
        1,
        0,
    )
    again = values(AGAIN, measured)
    assert again["distance"] > 0
    assert again["kl"] > 0
    assert truth.cost["flops"] < measured["tiny", 0, ORIGINAL].cost["flops"]
    assert {record.machine["device"] for record in measured.values()} == {"cpu"}
    assert "distance" not in values("sisa", measured)  # an ensemble has no weights
    eraser, model = measured["tiny", 0, "fed-eraser"].cost, truth.cost["storage"]
    assert eraser["storage"] == eraser["formula_storage"]
    assert eraser["storage"] == pytest.approx(3 * 1 * model, rel=1e-4)  # C R P B


def test_a_campaign_resumes_without_training(
    cache: Path, measured: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(campaign, "train", never)
    lines = (cache / "tiny.jsonl").read_text()
    SettingCampaign(cache, Teller(), dict(measured)).seed(task(), MEASURED)
    assert (cache / "tiny.jsonl").read_text() == lines
    more = Contender("more", "natural", {"recovery": {"rounds": 0}})
    SettingCampaign(cache, Teller(), dict(measured)).seed(task(), [more])
    found = read([cache / "tiny.jsonl"])["tiny", 0, "more"]
    assert found.values == measured["tiny", 0, ORIGINAL].values  # from the kept weights


@pytest.mark.parametrize("done", [2, 3, 5], ids=["original", "between", "retrain"])
def test_no_round_of_a_training_that_was_stopped_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    three = task(rounds=3)
    whole, again = (
        SettingCampaign(tmp_path / name, Teller(), {}) for name in ("whole", "again")
    )
    whole.seed(three, [])
    rounds: list[int] = []
    run_round = fedavg.run_round

    def counted(*arguments: Any) -> Any:
        if len(rounds) == done:
            raise KeyboardInterrupt
        rounds.append(arguments[-1])
        return run_round(*arguments)

    monkeypatch.setattr(fedavg, "run_round", counted)
    with pytest.raises(KeyboardInterrupt):
        SettingCampaign(tmp_path / "again", Teller(), {}).seed(three, [])
    done = 6
    again.seed(three, [])
    assert rounds == [1, 2, 3, 1, 2, 3]
    for old, new in zip(whole.known.values(), again.known.values(), strict=True):
        assert new.values == old.values
        assert new.cost["flops"] == old.cost["flops"]
    files = [
        {f.name: f.read_bytes() for f in (tmp_path / one / "weights").iterdir()}
        for one in ("whole", "again")
    ]
    assert files[0] == files[1]
    assert len(files[0]) == 2


def test_a_pin_tells_settings_and_training_apart_but_no_names() -> None:
    first = pin_of(TINY, contender("natural"))
    assert first == pin_of(replace(TINY, name="other", about="x"), contender("natural"))
    assert first != pin_of(replace(TINY, rate=0.1), contender("natural"))
    assert first != pin_of(TINY, contender("natural", recovery={"rounds": 7}))


def test_divergence_and_agreement_by_hand() -> None:
    truth = torch.tensor([[log(0.5), log(0.5)], [0.0, 9.0]])
    other = torch.tensor([[log(0.9), log(0.1)], [0.0, 9.0]])
    by_hand = 0.5 * log(0.5 / 0.9) + 0.5 * log(0.5 / 0.1)
    assert divergence(truth, other) == pytest.approx(by_hand / 2, abs=1e-6)
    assert divergence(other, truth) != pytest.approx(by_hand / 2, abs=1e-3)
    assert agreement(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), truth) == 1


def test_a_model_is_held_to_the_retrained_one() -> None:
    dealt = task()
    truth, other = (answer(dealt, (initial_weights(dealt.network, seed),)) for seed in (0, 1))
    found = outcome(dealt, other, truth)
    assert (
        found["kl"] == divergence(truth.test, other.test) != divergence(other.test, truth.test)
    )
    right = other.forget.argmax(1) == dealt.forget.targets
    assert found["forget"] == pytest.approx(float(right.float().mean()))
    assert found["retained"] != found["forget"]


def test_attacks_tell_the_share_of_forgotten_rows_called_members() -> None:
    def sure(*own: float) -> Outputs:
        logits = np.array([[value, 0.0] for value in own])
        return Outputs(logits, np.zeros(len(own), dtype=np.int64))

    found = attacked(sure(3.0, 3.0, -3.0, 0.5), members=sure(2.0, 4.0), others=sure(-2.0, 0.0))
    # Song: between 0 and 2 is best, so 3, 3 are members. Yeom: a loss below the mean of
    # log(1 + e^-2) = 0.127 and log(1 + e^-4) = 0.018, so the same two.
    assert found == {"song": 0.5, "yeom": 0.5}


def test_formulas_are_table_viii_by_hand() -> None:
    dealt = task(clients=4, rounds=5, epochs=2.0)
    size, rows = 188_810, 60 / 4
    special = formula(contender("puf-special", recovery={"rounds": 3, "epochs": 1.0}), dealt)
    assert special is not None
    each = forward_flops(dealt.network) * rows
    # Four cycles: one client, one epoch; then three clients, three rounds of one epoch.
    assert special.communication == 4 * 2 * size * 4 * (1 + 3 * 3)
    assert special.computation == pytest.approx(4 * each * (1 * 1 + 3 * 3 * 1))
    assert special.storage == 4 * size
    regular = formula(contender("puf-regular", recovery={"rounds": 3, "epochs": 1.0}), dealt)
    assert regular is not None
    assert regular.communication == 2 * size * 4 * (4 + 3 * 3)
    assert regular.computation == pytest.approx(each * (1 * 1 + 3 * 2 + 3 * 3 * 1))
    settings: dict[str, Any] = {"curvature_rows": 0.5, "iterations": 5, "cycles": 2}
    settings["recovery"] = {"rounds": 0}
    kcu = contender("hf-kcu", **settings)
    asking = contender("hf-kcu", **settings, drift="ask")
    for which, gradients in ((kcu, 1), (asking, 4)):
        found = formula(which, dealt)
        assert found is not None
        assert found.computation == pytest.approx(2 * each * (gradients + 3 * 5 * 2 * 0.5))
    whole = formula(Contender(RETRAIN, RETRAIN), dealt)
    assert whole is not None
    assert whole.computation == pytest.approx(each * 2 * 3 * 5)
    assert formula(contender("scrub"), dealt) is None
    assert formula(contender("natural"), task(request="half-of-one")) is None


def test_the_command_merges_caches_and_measures_nothing(
    tmp_path: Path, cache: Path, tiny: None
) -> None:
    out = tmp_path / "out"
    asked = [
        "--report",
        "--merge",
        str(cache),
        "--cache",
        str(tmp_path / "c"),
        "--out",
        str(out),
    ]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    found = parse_results((out / "unlearning.json").read_text())
    assert ("tiny", 0, "natural") in found
    assert ("tiny", 0, "sisa") not in found  # of other settings than the plan's
    # Trained again, without their weights: the lines beside them were measured with the first.
    again = {
        key: replace(record, machine={**record.machine, "device": "other"})
        for key, record in found.items()
    }
    lines = "".join(f"{line_of(record)}\n" for record in again.values())
    (tmp_path / "c" / "tiny.jsonl").write_text(lines)
    assert CliRunner().invoke(main, asked).exit_code == 0
    now = parse_results((out / "unlearning.json").read_text())
    for key, record in now.items():
        assert record == (found if key[2] in (ORIGINAL, RETRAIN) else again)[key]
    missing = CliRunner().invoke(main, ["--setting", "mnist", "--cache", str(tmp_path / "c")])
    assert "give the file, --data mnist.npz" in missing.output
