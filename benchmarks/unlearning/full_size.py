"""What the papers' own sizes would take: operations counted, times from a rate.

Operations of one gradient are counted from the operators of the very networks, not measured on
the papers' data. A rate of this machine is the median of the recorded retrainings of that
network: operations over seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.unlearning.contenders import RETRAIN
from benchmarks.unlearning.markdown import NONE, table
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import SETTINGS
from workers.training.fedavg.client.flops import training_flops
from workers.training.networks.registry import network
from workers.training.networks.weights import count

TRAININGS = 9  # three seeds of the original, of a retraining and of a second one
RATES = (1e12, 1e13)  # float32 operations a second that a GPU may sustain on such networks
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


SIZES = (
    Size("HF-KCU 2", "MNIST", "simple-cnn", GREY, 60_000, 100),
    Size("HF-KCU 1, 3 to 7", "CIFAR-10", "simple-cnn", CLASSES, 50_000, 100),
    Size("HF-KCU 2 and 8", "CIFAR-10", "resnet18", CLASSES, 50_000, 100),
    Size("HF-KCU 2 and 8", "CIFAR-10", "vit-lite", CLASSES, 50_000, 100),
    Size("PUF III", "CIFAR-10", "resnet18", CLASSES, 50_000, 200),
    Size("PUF III to V", "CIFAR-100", "resnet18", {**CLASSES, "classes": 100}, 50_000, 200),
)  # fmt: skip
ABOUT = f"""\
Operations of one training at the papers' sizes: those of one gradient, counted from the
network's operators, times rows times passes. The last column is for three seeds of the
original, a retraining and a second retraining, {TRAININGS} trainings, at {RATES[0]:.0e} to
{RATES[1]:.0e} operations a second. No GPU was measured: that range is an assumption, not
a result, and small networks in batches of 32 or 64 may stay below it. The methods come on
top, each a part of a retraining. The 12,000 rows of the shipped CIFAR-10 file take 0.24 of
the operations of 50,000.
"""


def render(records: Records) -> str:
    """Return what each size would take on one thread here and on a GPU."""
    head = (
        "table", "data", "network", "parameters", "rows", "passes", "operations",
        "one training, one thread here", "nine trainings on a GPU",
    )  # fmt: skip
    body = []
    for size in SIZES:
        made = network(size.network, size.shape)
        operations = float(training_flops(made)) * size.rows * size.passes
        here = rate(records, size.network)
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
                " to ".join(
                    duration(TRAININGS * operations / each) for each in reversed(RATES)
                ),
            )
        )
    return f"{ABOUT}\n{table(head, body)}"


def rate(records: Records, name: str) -> float | None:
    """Return a network's operations a second in recorded retrainings, None without any."""
    found = [
        record.cost["flops"] / record.cost["seconds"]
        for (setting, _, label), record in records.items()
        if label == RETRAIN and SETTINGS[setting].network == name and record.cost
    ]
    return median(found) if found else None


def duration(seconds: float) -> str:
    """Return minutes, hours or days, by two digits."""
    for name, length in (("days", DAY), ("h", HOUR)):
        if seconds >= 2 * length:
            return f"{float(f'{seconds / length:.2g}'):g} {name}"
    return f"{float(f'{seconds / 60:.2g}'):g} min"
