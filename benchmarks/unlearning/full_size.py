"""What the papers' own sizes would take: operations counted, times from a rate.

Operations of one gradient are counted from the operators of the very networks, not measured on
the papers' data. A rate of this machine is the median of the recorded retrainings of that
network on a processor: operations over seconds. Steps on a GPU are those that
`python -m benchmarks.gpu_steps` has timed there, in gpu_steps.json.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.unlearning.contenders import (
    AGAIN,
    CORRECTED,
    ORIGINAL,
    PRINTED,
    RETRAIN,
)
from benchmarks.unlearning.markdown import NONE, table
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import SETTINGS, SHADOWS
from benchmarks.unlearning.summary import Seeds, of
from workers.training.fedavg.client.flops import training_flops
from workers.training.networks.registry import network
from workers.training.networks.weights import count

TRAININGS = 9  # three seeds of the original, of a retraining and of a second one
STEPS = Path(__file__).parents[1] / "gpu_steps.json"
CLASSES = {"channels": 3, "height": 32, "width": 32, "classes": 10}
GREY = {"channels": 1, "height": 28, "width": 28, "classes": 10}
HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Size:
    """A training as a paper has it: passes are rounds times local epochs."""

    paper: str
    data: str
    network: str
    shape: Mapping[str, int]
    rows: int
    passes: int
    batch: int

    @property
    def steps(self) -> float:
        """The steps of one training; the clients' last, smaller batches are not counted."""
        return self.passes * self.rows / self.batch


SIZES = (
    Size("HF-KCU 2", "MNIST, FMNIST", "simple-cnn", GREY, 60_000, 100, 64),
    Size("HF-KCU 1, 3 to 7 and 9", "CIFAR-10", "simple-cnn", CLASSES, 50_000, 100, 64),
    Size("HF-KCU 2 and 8", "CIFAR-10", "resnet18", CLASSES, 50_000, 100, 64),
    Size("HF-KCU 2 and 8", "CIFAR-10", "vit-lite", CLASSES, 50_000, 100, 64),
    Size("PUF III", "CIFAR-10", "resnet18", CLASSES, 50_000, 200, 32),
    Size("PUF III, E = 10", "CIFAR-10", "resnet18", CLASSES, 50_000, 2000, 32),
    Size("PUF III to V", "CIFAR-100", "resnet18", {**CLASSES, "classes": 100}, 50_000, 200, 32),
)  # fmt: skip
ABOUT = """\
Operations of one training at the papers' sizes: those of one gradient, counted from the
network's operators, times rows times passes. The last columns are for {card}
(`python -m benchmarks.gpu_steps`, float32, deterministic kernels, one process): a step of the
paper's batch, one training, and nine of them, an original, a retraining and a second
retraining for three seeds. The methods come on top: HF-KCU corrected takes about a third of a
retraining or more, PUF a twelfth or less. PUF's table III averages ten runs, each with another
leaving client: one original and ten retrainings. {shared}The 12,000 rows of the shipped
CIFAR-10 file take {part:g} of what 50,000 take.
"""
PUBLISHED = "cifar-12000-published"
PART = 12_000 / 50_000  # of CIFAR-10's training rows
HF_KCU = (ORIGINAL, RETRAIN, AGAIN, CORRECTED, PRINTED, "hf-kcu")  # tables 3, 6 and 7
SWEPT = 5  # settings: the backdoor, α 0.1 and 1, 100 and 200 clients
EFFORT = """\
**What HF-KCU's tables 3, 6 and 7 would take with its own training.** On the 12,000 rows of
`{name}` they are {swept} settings more (the backdoor, α 0.1 and 1, 100 and 200 clients). A
retraining there is {flops:.1e} operations: {here} of one thread at the rate of the table,
{there} as recorded on {device}. A training, two retrainings and HF-KCU corrected, as printed
and guarded are {rows:.1f} retrainings a seed: {long} of one thread for {seeds} seeds, or
{short} of the GPU by the seconds recorded there; on all 50,000 rows {long_all} and
{short_all}. What is missing of tables 1, 2, 4 and 5 is
[above](#rows-that-were-not-run).
"""
ATTACK = """\
**What the attack with shadow models would take at HF-KCU's size.** It trains {shadows} models
more for each seed, for three seeds {number} trainings of SimpleCNN on all 50,000 images of
CIFAR-10: {here}{there} of the GPU. The paper trains on all rows, so that none
are left over for them.
"""
SHARED = (
    "SimpleCNN is bound by kernel launches: {processes} processes at once take "
    "{milliseconds:.2f} ms for a step each, {gain:.1f} times the steps of one. "
)


def render(records: Records) -> str:
    """Return what each size would take on one thread here and on the GPU that was timed."""
    timed = gpu()
    head = (
        "table", "data", "network", "parameters", "rows", "passes", "operations",
        "one training, one thread here", "a step on the GPU", "one training there",
        "nine trainings there",
    )  # fmt: skip
    body = []
    for size in SIZES:
        made = network(size.network, size.shape)
        operations = float(training_flops(made)) * size.rows * size.passes
        here = rate(records, size.network)
        step = step_of(timed, size)
        body.append(
            (
                size.paper,
                size.data,
                size.network,
                f"{count(made):,}",
                f"{size.rows:,}",
                str(size.passes),
                f"{operations:.1e}",
                NONE if here is None else duration(operations / here),
                f"{step:.2f} ms",
                duration(size.steps * step / 1000),
                duration(TRAININGS * size.steps * step / 1000),
            )
        )
    return f"{_about(timed)}\n{table(head, body)}\n{_attack(records, timed)}{_effort(records)}"


@cache
def gpu() -> dict[str, Any]:
    """Return the record of steps on a GPU: machine and steps."""
    found: dict[str, Any] = json.loads(STEPS.read_text())
    return found


def step_of(timed: Mapping[str, Any], size: Size) -> float:
    """Return the milliseconds of a step in one process. Raises KeyError if none was timed."""
    wanted = size.network, size.shape["channels"], size.batch, 1
    return _steps(timed)[wanted]


def _steps(timed: Mapping[str, Any]) -> dict[tuple[str, int, int, int], float]:
    return {
        (step["network"], step["channels"], step["batch"], step["processes"]): step[
            "milliseconds"
        ]
        for step in timed["steps"]
    }


def _about(timed: Mapping[str, Any]) -> str:
    machine, shared = timed["machine"], ""
    steps = _steps(timed)
    several = [key for key in steps if key[-1] > 1]
    if several:
        most = max(several, key=lambda key: key[-1] / steps[key])
        gain = most[-1] * steps[(*most[:-1], 1)] / steps[most]
        shared = SHARED.format(processes=most[-1], milliseconds=steps[most], gain=gain)
    card = f"one {machine['device']} with torch {machine['torch']}"
    return ABOUT.format(card=card, shared=shared, part=PART)


def _attack(records: Records, timed: Mapping[str, Any]) -> str:
    """Return what the shadow models of three seeds take at the size of HF-KCU's table 1."""
    [size] = [one for one in SIZES if one.paper.startswith("HF-KCU 1")]
    number, speed = 3 * SHADOWS, rate(records, size.network)
    operations = (
        float(training_flops(network(size.network, size.shape))) * size.rows * size.passes
    )
    here = "" if speed is None else f"{duration(number * operations / speed)} of one thread, "
    return ATTACK.format(
        shadows=SHADOWS,
        number=number,
        here=here,
        there=duration(number * size.steps * step_of(timed, size) / 1000),
    )


def _effort(records: Records) -> str:
    """Return what HF-KCU's tables would take with its own training; nothing without records."""
    seeds, speed = of(records, PUBLISHED), rate(records, SETTINGS[PUBLISHED].network)
    if speed is None or not set(HF_KCU) <= set(seeds.labels):
        return ""
    retraining, count = seeds.cost(RETRAIN, "flops").mean, SETTINGS[PUBLISHED].seeds
    rows = sum(seeds.cost(label, "flops").mean for label in HF_KCU) / retraining
    took = sum(seeds.cost(label, "seconds").mean for label in HF_KCU)
    said = EFFORT.format(
        name=PUBLISHED,
        flops=retraining,
        here=duration(retraining / speed),
        there=duration(seeds.cost(RETRAIN, "seconds").mean),
        device=_device(seeds),
        swept=SWEPT,
        rows=rows,
        long=duration(SWEPT * count * rows * retraining / speed),
        short=duration(SWEPT * count * took),
        long_all=duration(SWEPT * count * rows * retraining / speed / PART),
        short_all=duration(SWEPT * count * took / PART),
        seeds=count,
    )
    return f"\n{said}"


def _device(seeds: Seeds) -> str:
    """Return where the retraining was measured."""
    found = seeds.at(seeds.seeds[0], RETRAIN)
    return "a machine not recorded" if found is None else found.machine.get("device", "cpu")


def rate(records: Records, name: str) -> float | None:
    """Return a network's operations a second in recorded retrainings, None without any."""
    found = [
        record.cost["flops"] / record.cost["seconds"]
        for (setting, _, label), record in records.items()
        if label == RETRAIN
        and setting in SETTINGS
        and SETTINGS[setting].network == name
        and record.cost
        and record.machine.get("device", "cpu") == "cpu"
    ]
    return median(found) if found else None


def duration(seconds: float) -> str:
    """Return minutes, hours or days, by two digits."""
    for name, length in (("days", DAY), ("h", HOUR)):
        if seconds >= 2 * length:
            return f"{float(f'{seconds / length:.2g}'):g} {name}"
    return f"{float(f'{seconds / 60:.2g}'):g} min"
