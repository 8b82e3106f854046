"""After each step some ordinary rounds among those who stay, and the model after each of them.

Original and retrained model of the setting and seed are trained once; every configuration
starts from the original. A recovery round is one local epoch, as in PUF's figures, where the
training's rounds have one epoch, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.baselines.history import RecordedCase, Recorder, with_rounds
from benchmarks.baselines.registry import make
from benchmarks.unlearning.task import Task
from workers.errors import RefusedError
from workers.methods.network.base import UnlearningCase
from workers.methods.network.local_case import local_case
from workers.methods.network.recovery import Recovery, recovery_config
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.fedavg.server import ServerState
from workers.training.networks.weights import Weights

ROUNDS = 20  # of recovery; figure 5 of the paper ends there
ORIGINAL, RETRAIN = "original", "retrain"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A step by a label; family names its colour in the figures."""

    label: str
    family: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Curve:
    """Scores from round 0, the step alone, to the last; refused says why there are none.

    test and forget are accuracies, Dice of a segmentation. Original and retrained model have
    one score of each.
    """

    setting: str
    seed: int
    label: str
    test: tuple[float, ...] = ()
    forget: tuple[float, ...] = ()
    refused: str = ""


def puf(mode: str, rate: float, epochs: float = 1.0) -> Configuration:
    """Return PUF as published, without a guard: η_u, and E_u local epochs of the target."""
    settings = {"guard": None, "unlearning_rate": rate, "epochs": epochs}
    label = f"puf-{mode} η_u={rate:g}" + (f" E_u={epochs:g}" if epochs != 1 else "")
    return Configuration(label, f"puf-{mode}", f"puf-{mode}", settings)


def sweep() -> tuple[Configuration, ...]:
    """Return the steps of PUF's figures 5 and 6."""
    special = [puf("special", rate) for rate in (0.5, 1.0, 2.0, 4.0, 8.0)]
    regular = [puf("regular", rate) for rate in (5.0, 10.0, 20.0, 40.0)]
    return (*special, *regular)


def longer() -> tuple[Configuration, ...]:
    """Return steps made of several local epochs of the target, as in figure 5."""
    return puf("special", 1.0, 5.0), puf("special", 2.0, 5.0), puf("regular", 10.0, 5.0)


def baselines() -> tuple[Configuration, ...]:
    """Return what the figures have beside PUF."""
    return tuple(
        Configuration(name, name, name) for name in ("natural", "not", "pga", "fed-au", "mode")
    )


def configurations(segmentation: bool) -> tuple[Configuration, ...]:
    """Return all of figure 5, or of figure 6, where only η_u varies.

    FedAU needs a classifier, and MoDe's guidance is not for masks (PUF, section V-D).
    """
    if segmentation:
        shown = ("natural", "not", "pga")
        return (*(part for part in baselines() if part.label in shown), *sweep())
    return (*baselines(), *sweep(), *longer())


def measure(
    task: Task, wanted: Sequence[Configuration], rounds: int, tell: Callable[[str], None]
) -> list[Curve]:
    """Return the curves of one seed, those of the original and the retrained model first."""
    rows = sizes(task.clients)
    recorder = Recorder(InProcess(task.clients, task.device, threads=1), rows)
    tell(ORIGINAL)
    trained = train(task.network, rows, task.config, recorder)
    case = _case(task, trained.weights, recorder)
    tell(RETRAIN)
    retrained = make(RETRAIN).run(case).weights
    found = [
        _of(task, label, [weights])
        for label, weights in ((ORIGINAL, trained.weights), (RETRAIN, retrained))
    ]
    for part in wanted:
        tell(part.label)
        found.append(_curve(task, case, part, rounds))
    return found


def _case(task: Task, weights: Weights, recorder: Recorder) -> RecordedCase:
    case = local_case(
        task.network,
        weights,
        task.request,
        task.config,
        task.clients,
        device=task.device,
        threads=1,
    )
    return with_rounds(case, recorder.history)


def _curve(task: Task, case: UnlearningCase, part: Configuration, rounds: int) -> Curve:
    settings = {**part.settings, "recovery": {"rounds": 0}}
    config = recovery_config(case, Recovery(rounds=rounds, epochs=1.0))
    states: list[Weights] = []

    def after(state: ServerState, _: RoundRecord) -> bool:
        states.append(state.weights)
        return False

    try:
        stepped = make(part.method, settings).run(case).weights
        states.append(stepped)
        side = case.retained
        train(task.network, side.rows, config, side.engine, weights=stepped, after=after)
        return _of(task, part.label, states)
    except RefusedError as error:  # no step, or rounds that diverged: what a step destroyed
        known = _of(task, part.label, states)
        return replace(known, refused=str(error))


def _of(task: Task, label: str, states: Sequence[Weights]) -> Curve:
    test, forget = (
        tuple(_score(task, weights, data) for weights in states)
        for data in (task.test, task.forget)
    )
    return Curve(task.setting.name, task.seed, label, test, forget)


def _score(task: Task, weights: Weights, data: ClientData) -> float:
    found = evaluate(task.network, weights, data, task.device, threads=1)
    return round(found.accuracy if found.dice is None else found.dice, 5)
