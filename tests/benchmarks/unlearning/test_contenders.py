"""Who is asked for, and that a variant is one in its name alone but for one setting."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.baselines.registry import make
from benchmarks.unlearning import full_size, unrun
from benchmarks.unlearning.__main__ import main, wanted
from benchmarks.unlearning.contenders import (
    AGAIN,
    CORRECTED,
    FIRST,
    ORIGINAL,
    PRINTED,
    PRINTED_PUF,
    REGULAR,
    RETRAIN,
    SPECIAL,
    UNSCALED,
    ablated,
    damped,
    planned,
)
from benchmarks.unlearning.effort import Effort, effort, recorded, relative, retraining
from benchmarks.unlearning.records import Record, Records
from benchmarks.unlearning.settings import SEEDS, SETTINGS
from workers.methods.network.hf_kcu.method import HfKcu
from workers.methods.network.puf import Puf
from workers.training.fedavg.client.flops import training_flops
from workers.training.networks.registry import network


def test_methods_are_asked_for_by_patterns_of_their_labels(tmp_path: Path) -> None:
    asked = ["--setting", "digits", "--cache", str(tmp_path), "--methods", "hf-kcu two steps*"]
    refused = CliRunner().invoke(main, asked)
    assert "hf-kcu two steps* is not in the plan of digits" in refused.output
    found = wanted(planned("components"), ["hf-kcu one step*", "natural"], "cifar")
    steps = [f"hf-kcu one step damping={value}" for value in ("0.1", "0.01", "0.001")]
    labels = [part.label for part in found]
    assert labels[:2] == ["natural", "hf-kcu one step"]
    assert labels[-3:] == steps
    assert len(labels) == 2 + 6 + 3
    assert wanted(planned("puf"), ["original", "retrain"], "samples") == ()  # always measured


def test_variants_of_one_step_differ_from_it_in_one_setting() -> None:
    parts = {part.label: part for part in planned("everything")}
    base = parts["hf-kcu one step"].settings
    for label, part in parts.items():
        if label.startswith("hf-kcu one step "):
            changed = {name for name in part.settings if part.settings[name] != base.get(name)}
            same = label == "hf-kcu one step damping=0.01"  # the benchmark's own
            assert len(changed) == (0 if same else 1), label
            assert ablated(label)
    assert not ablated("hf-kcu one step")
    assert not ablated("hf-kcu as printed")


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_has_the_papers_algorithms_with_the_papers_constants(name: str) -> None:
    parts = {part.label: part for part in planned(SETTINGS[name].plan)}
    for label, rate in ((SPECIAL, 2.0), (REGULAR, 20.0)):
        made = make(parts[label].method, parts[label].settings)
        assert isinstance(made, Puf)
        assert (made.guard, made.asked, made.cycles) == (None, rate, 1)
        assert made.recovery.rounds > 0
    if name == "masks":  # HF-KCU is for classification
        return
    for label, variant, scaling in (
        (CORRECTED, "corrected", None),
        (PRINTED, "as-printed", 0.01),
    ):
        kcu = make(parts[label].method, parts[label].settings)
        assert isinstance(kcu, HfKcu)
        assert (kcu.variant, kcu.scaling, kcu.guard) == (variant, scaling, None)
        assert (kcu.iterations, kcu.damping, kcu.recovery.rounds) == (10, 0.01, 0)
        assert (kcu.curvature_rows, kcu.cycles) == (1.0, 1)
        assert not ablated(label)


def test_puf_as_printed_differs_from_puf_in_its_weights_alone() -> None:
    parts = {part.label: part for part in planned("everything")}
    for printed, label in zip(PRINTED_PUF, (SPECIAL, REGULAR), strict=True):
        made, own = (make(parts[one].method, parts[one].settings) for one in (printed, label))
        assert isinstance(made, Puf)
        assert isinstance(own, Puf)
        assert (made.weighting, own.weighting) == ("as-printed", "rows")
        assert replace(made, weighting="rows") == own


def test_what_is_not_run_is_listed_with_its_command() -> None:
    setting = SETTINGS["masks"]
    labels = [part.label for part in (*FIRST, *planned(setting.plan))]
    records = {
        ("masks", seed, label): Record("masks", seed, label, "p")
        for seed in range(SEEDS)
        for label in labels
        if (label, seed) not in {(SPECIAL, 4), ("pga", 0)}
    }
    lacking = unrun.by_seed(records, "masks")
    assert unrun.missing(lacking, "masks") == [SPECIAL, "pga"]
    assert unrun.command(setting, [SPECIAL, "pga"]) == (
        "python -m benchmarks.unlearning --setting masks "
        f"--methods '{SPECIAL},pga' --out docs/benchmarks"
    )
    assert "--methods" not in unrun.command(setting, labels)
    assert "--data DATA" in unrun.command(SETTINGS["mnist"], [SPECIAL])
    assert "--first-seed 2 --seeds 2 --out" in unrun.command(setting, labels, [3, 2])
    assert "--seeds 3 --out" in unrun.command(SETTINGS["cifar-alpha-1"], labels, [0, 2])
    text = unrun.render(records)
    [row] = [line for line in text.splitlines() if line.startswith("| `masks` |")]
    assert f"| seed 4: `{SPECIAL}`; seed 0: `pga` |" in row
    [row] = [line for line in text.splitlines() if line.startswith("| `samples` |")]
    assert "| all |" in row
    assert "`python -m benchmarks.unlearning --setting samples --out" in row


def test_seeds_are_named_together() -> None:
    records = {
        ("samples", seed, part.label): Record("samples", seed, part.label, "p")
        for part in (*FIRST, *planned("puf"))
        for seed in range(SEEDS)
        if not (part.label == SPECIAL and seed) and (part.label != REGULAR or seed in (0, 2, 3))
    }
    text = unrun.render(records)
    assert f"| seeds 1 to 4: `{SPECIAL}`; seeds 1 and 4: `{REGULAR}` |" in text


def test_rows_are_run_in_the_order_in_which_they_are_listed_and_none_is_forgotten() -> None:
    text = unrun.render({})
    listed = re.findall(r"^\| `(\S+)` \| .*--out docs/benchmarks` \|$", text, re.MULTILINE)
    assert listed[: len(unrun.ORDER)] == [name for name, *_ in unrun.ORDER]
    assert set(listed) >= set(SETTINGS) - {"quick"}


def test_the_papers_algorithms_come_first_and_are_not_listed_again() -> None:
    text = unrun.render({})
    first, rest = (
        line for line in text.splitlines() if line.startswith("| `cifar-6000` | PUF")
    )
    for label in unrun.PAPERS:
        assert f"`{label}`" in first
        assert f"`{label}`" not in rest
    for label in ("original", "retrain"):
        assert f"`{label}`" in first
        assert f"`{label}`" not in rest
    assert "`sisa`" in rest
    done = {
        ("cifar-6000", seed, label): Record("cifar-6000", seed, label, "p")
        for seed in range(SEEDS)
        for label in (*(part.label for part in FIRST), *unrun.PAPERS)
    }
    [left] = [
        line
        for line in unrun.render(done).splitlines()
        if line.startswith("| `cifar-6000` | PUF")
    ]
    assert f"`{CORRECTED}`" not in left


def test_which_rows_are_inside_the_budget_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def taking(**hours: float) -> str:
        def found(_: Records, name: str, *__: object, **___: object) -> Effort:
            known = hours.get(name.replace("-", "_"))
            return Effort(None if known is None else 3600 * known, None)

        monkeypatch.setattr(unrun, "effort", found)
        return " ".join(unrun.render({}).split())

    text = taking(cifar_alpha_1=10, cifar=30, resnet=1, mnist=0.5)
    assert (
        "The rows of `cifar-alpha-1` and `cifar`, whose total is below 40 h, are still to be "
        "run. Those of `resnet` and `mnist` exceed the budget." in text
    )
    assert "| 10 h | 10 h |" in text
    assert "| 30 h | 40 h |" in text
    assert "| 60 min | 41 h |" in text
    # The attack's rows follow what is inside the budget: 30.5 h are `cifar`'s and `mnist`'s.
    attacks = text.partition("rows left over")[2]
    assert "| 30 h | 70 h |" in attacks
    assert "| 30 min | 70 h |" in attacks
    assert "The rows of `cifar`, whose" in taking(cifar=39)
    assert "No row that is missing has a total below 40 h." in taking(cifar=41)
    assert "total is below" not in taking()


def test_tables_4_and_5_with_hf_kcus_own_training_are_asked_for_until_they_are_run() -> None:
    name = full_size.PUBLISHED
    setting, constants = SETTINGS[name], [damped(0.1), damped(0.001), UNSCALED]
    assert constants == [part.label for part in planned(setting.plan)][-3:]
    records = {
        (name, seed, part.label): Record(name, seed, part.label, "p")
        for part in (*FIRST, *planned("tables"))
        for seed in range(setting.seeds)
    }
    text = unrun.render(records)
    [row] = [line for line in text.splitlines() if f"--setting {name} --data" in line]
    labels = ", ".join(f"`{label}`" for label in constants)
    assert row.startswith(f"| `{name}` | HF-KCU 4 and 5 | {labels} |")


def test_what_is_missing_takes_the_operations_of_the_same_rows_elsewhere() -> None:
    # A retraining here has 4e12 operations at 1e10 a second; PGA took a tenth of one elsewhere.
    def line(name: str, seed: int, label: str, flops: float) -> Record:
        return Record(name, seed, label, "p", cost={"flops": flops, "seconds": flops / 1e10})

    lines = [line("digits", 0, RETRAIN, 1e11), line("digits", 0, "pga", 1e10)]
    lines += [line("cifar", 0, label, 4e12) for label in (ORIGINAL, RETRAIN)]
    records = {record.key: record for record in lines}
    assert recorded(records) == pytest.approx(811)
    found = effort(records, "cifar", {0: ["pga"], 1: [RETRAIN, "pga"]})
    assert found.here == pytest.approx(2 * (1 + 1 + 0.1) * 400)
    made = network("simple-cnn", full_size.CLASSES)
    [step] = [
        one["milliseconds"]
        for one in full_size.gpu()["steps"]
        if (one["network"], one["channels"], one["processes"]) == ("simple-cnn", 3, 1)
    ]
    steps = 2 * 2.1 * 4e12 / training_flops(made) / SETTINGS["cifar"].batch
    assert found.there == pytest.approx(steps * step / 1000)
    shadowed = effort(records, "cifar", {0: ["pga"]}, shadows=4)
    assert shadowed.here == pytest.approx((5 + 1 + 0.1) * 400)
    # A method with a training of its own trains first; one that was never run is a retraining.
    assert relative(records, "cifar", "sisa") == 2
    assert effort({}, "cifar", {0: ["pga"]}).here is None  # no rate of a thread
    assert effort(records, "masks", {0: ["pga"]}).there is None  # no step was timed


def test_a_retraining_that_was_not_recorded_is_counted_for_all_rows() -> None:
    made = network("simple-cnn", full_size.CLASSES)
    wanted = training_flops(made) * 12_000 * 100
    assert retraining({}, SETTINGS["cifar-12000"]) == wanted
    assert retraining({}, SETTINGS["cifar-12000-published"]) == wanted


def test_a_full_size_is_operations_over_the_rate_of_recorded_retrainings() -> None:
    cost = {"flops": 4e9, "seconds": 2.0}
    records = {
        ("digits", seed, RETRAIN): Record("digits", seed, RETRAIN, "p", cost=cost)
        for seed in (0, 1)
    }
    assert full_size.rate(records, "simple-cnn") == 2e9
    assert full_size.rate(records, "vit-lite") is None
    named = [full_size.duration(part) for part in (60.0, 7200.0, 86_400.0 * 15)]
    assert named == ["1 min", "2 h", "15 days"]
    made = network("simple-cnn", full_size.GREY)
    days = training_flops(made) * 60_000 * 100 / 2e9
    [row] = [
        line for line in full_size.render(records).splitlines() if "| MNIST, FMNIST |" in line
    ]
    assert f"| {full_size.duration(days)} |" in row
    there = {
        ("digits", 0, RETRAIN): Record(
            "digits", 0, RETRAIN, "p", cost=cost, machine={"device": "a GPU"}
        )
    }
    assert full_size.rate(there, "simple-cnn") is None  # no rate of a thread


def test_what_is_missing_of_hf_kcus_own_training_follows_from_recorded_operations() -> None:
    # A retraining is 100; the trainings are 120, 100 and 100, each method of the rest 10.
    published = full_size.PUBLISHED
    own = {ORIGINAL: 120.0, RETRAIN: 100.0, AGAIN: 100.0}
    records = {
        (published, 0, label): Record(
            published,
            0,
            label,
            "p",
            {"test": 0.5},
            {"flops": 1e12 * own.get(label, 10.0), "seconds": own.get(label, 10.0)},
            machine={"device": "Card 9"},
        )
        for label in (*own, CORRECTED, PRINTED, "hf-kcu")
    }
    assert "its own training" not in full_size.render(records)  # no rate of a thread
    records["digits", 0, RETRAIN] = Record(
        "digits", 0, RETRAIN, "p", cost={"flops": 1e10, "seconds": 1.0}
    )
    text = " ".join(full_size.render(records).split())
    # 1e14 operations at 1e10 a second: 10,000 s. Five settings, three seeds: 3.5 of them each.
    assert "2.8 h of one thread at the rate of the table, 1.7 min as recorded on Card 9" in text
    assert "3.5 retrainings a seed: 6.1 days of one thread" in text
    assert "or 88 min of the GPU" in text
    # 50,000 images a hundred times, twelve models.
    size = 12 * training_flops(network("simple-cnn", full_size.CLASSES)) * 5e6
    assert f"12 trainings of SimpleCNN on all 50,000 images of CIFAR-10: {_days(size)}" in text


def _days(operations: float) -> str:
    return full_size.duration(operations / 1e10)


def test_a_full_size_on_a_gpu_is_the_paper_steps_times_the_measured_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [
        {"network": network, "channels": channels, "batch": batch, "processes": processes,
         "milliseconds": milliseconds}
        for network, channels, batch, processes, milliseconds in (
            ("simple-cnn", 1, 64, 1, 2.0), ("simple-cnn", 3, 64, 1, 2.0),
            ("simple-cnn", 3, 64, 8, 4.0), ("resnet18", 3, 64, 1, 20.0),
            ("resnet18", 3, 32, 1, 10.0), ("vit-lite", 3, 64, 1, 36.0),
        )
    ]  # fmt: skip
    record = {"machine": {"device": "Card 9", "torch": "2"}, "steps": steps}
    monkeypatch.setattr(full_size, "gpu", lambda: record)
    text = full_size.render({})
    assert "Card 9 with torch 2" in text
    assert (
        "8 processes at once take 4.00 ms for a step each, 4.0 times the steps of one" in text
    )
    # 60,000 rows in batches of 64, 100 times, 2 ms each: 187.5 s, and 9 of them.
    [mnist] = [line for line in text.splitlines() if "| MNIST, FMNIST |" in line]
    assert mnist.endswith("| 2.00 ms | 3.1 min | 28 min |")
    # 50,000 rows in batches of 32, 200 times, 10 ms each: 52 minutes.
    [puf] = [line for line in text.splitlines() if "| PUF III |" in line]
    assert puf.endswith("| 10.00 ms | 52 min | 7.8 h |")
