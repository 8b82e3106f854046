"""What rows that were not run would take, from the operations of those that were: estimates.

A row's operations are those of its method where it was run, relative to a retraining: in the
same setting, or else the median over the others. The original and the retrained model of a seed
are trained again, as where their weights are not in the cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.unlearning.contenders import FIRST, ORIGINAL, OWN_TRAINING, RETRAIN
from benchmarks.unlearning.full_size import CLASSES, GREY, gpu, rate
from benchmarks.unlearning.records import Records
from benchmarks.unlearning.settings import SETTINGS, Setting
from workers.training.fedavg.client.flops import training_flops
from workers.training.networks.registry import Network, network

HALVED = {**CLASSES, "height": 16, "width": 16}
SMALL = {**GREY, "height": 8, "width": 8}
# Shape and training rows of each data set's images; settings of other data have records.
DATA: Mapping[str, tuple[Mapping[str, int], int]] = {
    "cifar10": (CLASSES, 12_000),
    "cifar10-halved": (HALVED, 12_000),
    "mnist": (GREY, 60_000),
    "digits": (SMALL, 1437),
}


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds of one thread here, and on the GPU that was timed; None where unknown."""

    here: float | None
    there: float | None


def recorded(records: Records) -> float:
    """Return the seconds of all lines together."""
    return sum(record.cost.get("seconds", 0.0) for record in records.values())


def effort(
    records: Records, name: str, missing: Mapping[int, Sequence[str]], *, shadows: int = 0
) -> Effort:
    """Return what a setting's missing rows would take.

    missing: labels by seed. shadows: models for each seed that are trained as the original is.
    """
    setting = SETTINGS[name]
    trainings = [*(part.label for part in FIRST), *[ORIGINAL] * shadows]
    share = sum(
        relative(records, name, label)
        for labels in missing.values()
        for label in (*trainings, *(one for one in labels if one not in trainings))
    )
    flops = share * retraining(records, setting)
    made, speed = _network(setting), rate(records, setting.network)
    step = None if made is None else _step(setting)
    return Effort(
        flops / speed if flops and speed else None,
        flops / (training_flops(made) * setting.batch) * step / 1000
        if made is not None and step is not None and flops
        else None,
    )


def relative(records: Records, name: str, label: str) -> float:
    """Return a method's operations over a retraining's, with a training of its own."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for (other, seed, one), record in records.items():
        truth = records.get((other, seed, RETRAIN))
        if one == label and record.cost and truth is not None and truth.cost:
            found[other == name].append(record.cost["flops"] / truth.cost["flops"])
    part = median(found[True] or found[False] or [1.0])
    if label in OWN_TRAINING:
        part += max(part, relative(records, name, ORIGINAL))
    return part


def retraining(records: Records, setting: Setting) -> float:
    """Return the operations of a retraining: as recorded, or counted for all rows; 0 if not."""
    found = [
        record.cost["flops"]
        for (name, _, label), record in records.items()
        if (name, label) == (setting.name, RETRAIN) and record.cost
    ]
    if found:
        return median(found)
    made = _network(setting)
    if made is None:
        return 0.0
    rows = setting.rows or DATA[setting.data][1]
    return float(training_flops(made)) * rows * setting.rounds * setting.epochs


def _network(setting: Setting) -> Network | None:
    if setting.data not in DATA:
        return None
    return network(setting.network, {**DATA[setting.data][0], **dict(setting.shape)})


def _step(setting: Setting) -> float | None:
    """Return the milliseconds of a timed step, of the same batch and channels if there is one.

    A smaller batch or image hardly takes less: such steps wait for launches.
    """
    channels = DATA[setting.data][0]["channels"]
    steps = [
        step
        for step in gpu()["steps"]
        if (step["network"], step["processes"]) == (setting.network, 1)
    ]
    if not steps:
        return None
    best = min(
        steps, key=lambda one: (one["batch"] != setting.batch, one["channels"] != channels)
    )
    return float(best["milliseconds"])
