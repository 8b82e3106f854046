"""ACU's main table, figures 3 and 4: ACU and its seven baselines over streams of requests.

ACU's section 4.1, table 4.1 and appendix E: a quarter of the rows leaves in 25 or 50 requests.
The baselines unlearn a linear head with cross-entropy, one request after another, all from the
same trained head. Their settings are the defaults in `workers.methods.network.baselines`: ACU's
appendix E.3 where its text has the numbers. All but NegGrad read all retained rows each time.
Each is compared with a training of its own kind on the retained rows alone: the baselines with
SGD from the same initial weights, ACU with a ridge solve. "retrain, another seed" is how far
two trainings are apart.

The attack is that of appendix E.2: a classifier trained to tell retained rows from test rows by
the confidence in the true class; it is asked about all rows forgotten so far. A gap is the
absolute difference to the retrained model, as in the paper's table, which is lost in the text
at hand.

Seconds are of the processor, not of the clock: on a busy machine a baseline that computes for a
minute waits for others, and an update of ACU's that takes milliseconds does not. ACU's stream
is short enough for one moment to double it. It is therefore run before, between and after the
baselines, and the run of median length counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import process_time, sleep
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.common import PAUSE, refit
from benchmarks.ridge_paper.chunks import SHARE
from benchmarks.ridge_paper.contenders import Start
from benchmarks.ridge_paper.linear_heads import LinearTask, accuracy, config_of, logits
from benchmarks.ridge_paper.task import share
from workers.arrays import Matrix
from workers.errors import RefusedError
from workers.methods.network.base import Side, UnlearningCase, UnlearningRequest
from workers.methods.network.registry import make
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.weights import Weights, to_vector

T = TypeVar("T")
BASELINES = {
    "Finetune": "finetune",
    "L1-Sparsity": "l1-sparsity",
    "SCRUB": "scrub",
    "WoodFisher": "wood-fisher",
    "RandomLabel": "random-label",
    "NegGrad+": "neg-grad-plus",
    "NegGrad": "neg-grad",
}
ANALYTIC = ("ACU", "acu", "ridge-exact")  # ACU: the paper's equations in plain float64
NO_METHOD, ANOTHER_SEED = "none: the original head", "retrain, another seed"
PARTS = ("weights", "retained", "forget", "test", "attack")
COURSE = ("retained", "test", "seconds")
ROUNDS, QUICK_ROUNDS = 100, 3
REQUESTS, QUICK_REQUESTS = (25, 50), (5,)
MOST_ROWS = 20_000  # each request trains ten epochs on all of them: ACU's streams, in minutes
HOLDER = "all"  # one place has all rows, as in the paper


@dataclass(slots=True)
class Continual:
    """One data set and number of requests.

    gaps: by method, absolute differences of PARTS to the retrained head: the weights relative
    to its norm, the others as shares. reference: the retrained heads' own. seconds: of the
    processor, for all requests. runs: the same, each time that an analytic method ran.
    refused: why a method did not get to the end, and after how many requests.
    courses: by method and COURSE, what it had after each request: accuracies on the rows
    retained so far and on test rows, and the seconds of all requests until then.
    """

    data: str
    requests: int
    rows: int
    gaps: dict[str, dict[str, float]] = field(default_factory=dict)
    reference: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    courses: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def note(self, name: str, retained: float, test: float, spent: float) -> None:
        """Add what a method has after one more request; spent: the seconds of this one."""
        course = self.courses.setdefault(name, {part: [] for part in COURSE})
        before = course["seconds"][-1] if course["seconds"] else 0.0
        for part, value in zip(COURSE, (retained, test, before + spent), strict=True):
            course[part].append(value)


@dataclass(frozen=True, slots=True, eq=False)
class _Sets:
    """Which rows are judged: all training rows with those that are kept, and test rows."""

    linear: LinearTask
    keep: NDArray[np.bool_]

    def measures(self, head: Matrix, scores: tuple[Matrix, Matrix]) -> dict[str, float]:
        """Return accuracies and the attack's success; scores: (n, c) of training, of test."""
        task = self.linear.task
        learned, tested = scores
        hits = np.argmax(learned, axis=1) == task.rows.labels
        return {
            "weights": float(np.linalg.norm(head)),
            "retained": float(hits[self.keep].mean()),
            "forget": float(hits[~self.keep].mean()),
            "test": float((np.argmax(tested, axis=1) == task.test_labels).mean()),
            "attack": _attack(
                _confidence(learned, task.rows.labels),
                _confidence(tested, task.test_labels),
                self.keep,
            ),
        }


def measure(start: Start, requests: int, quick: bool) -> Continual:
    """Return what `requests` deletions of equal size leave of each method.

    A method that diverges or refuses is reported with its reason and has no gaps.
    """
    linear = LinearTask(start.task)
    parts = np.array_split(start.task.stream(int(SHARE * len(linear.rows)), seed=2), requests)
    keep = np.ones(len(linear.rows), dtype=np.bool_)
    keep[np.concatenate(parts)] = False
    found = Continual(start.task.name, requests, int((~keep).sum()))
    sets = _Sets(linear, keep)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    clocks = [_clocked(start, parts)]
    _gradient_heads(
        linear, parts, sets, rounds, found, lambda: clocks.append(_clocked(start, parts))
    )
    clocks.append(_clocked(start, parts))
    _analytic_heads(start, parts, sets, found, clocks)
    return found


def _gradient_heads(
    linear: LinearTask,
    parts: list[NDArray[np.int64]],
    sets: _Sets,
    rounds: int,
    found: Continual,
    after_each: Callable[[], None],
) -> None:
    kept = linear.rows.only(torch.from_numpy(sets.keep))
    original = trained(linear, linear.rows, rounds, seed=0)
    retrained = trained(linear, kept, rounds, seed=0)
    reference = _of_weights(sets, retrained)
    found.reference["SGD"] = reference
    another, took = _processor_seconds(partial(trained, linear, kept, rounds, seed=1))
    found.seconds[ANOTHER_SEED] = len(parts) * took  # earlier ones would read more rows
    for name, weights in {NO_METHOD: original, ANOTHER_SEED: another}.items():
        found.gaps[name] = _gaps(sets, weights, retrained, reference)
    for name, method in BASELINES.items():
        weights, spent = original, 0.0
        left = np.ones(len(linear.rows), dtype=np.bool_)
        try:
            for part in parts:
                case = _case(linear, weights, left, part, rounds)
                unlearn = partial(make(method).run, case)
                done, took = _processor_seconds(unlearn)
                weights, spent = done.weights, spent + took
                left[part] = False
                still = linear.rows.only(torch.from_numpy(left))
                scores = accuracy(weights, still), accuracy(weights, linear.test)
                found.note(name, *scores, took)
        except RefusedError as error:
            found.refused[name] = f"after {int((~left).sum()):,} rows: {error}"
            continue
        finally:
            after_each()
        found.seconds[name] = spent
        found.gaps[name] = _gaps(sets, weights, retrained, reference)


def _clocked(start: Start, parts: list[NDArray[np.int64]]) -> dict[str, list[float]]:
    """Return the seconds of each request by analytic method; they take turns at each."""
    contenders = start.contenders(ANALYTIC)
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for part in parts:
        for name, contender in contenders.items():
            spent[name].append(_processor_seconds(partial(contender.change, part, -1))[1])
    return spent


def _processor_seconds(work: Callable[[], T]) -> tuple[T, float]:
    """Return what one call gives, and the seconds that all threads computed meanwhile."""
    sleep(PAUSE)
    started = process_time()
    result = work()
    return result, round(process_time() - started, 7)


def _analytic_heads(
    start: Start,
    parts: list[NDArray[np.int64]],
    sets: _Sets,
    found: Continual,
    clocks: list[dict[str, list[float]]],
) -> None:
    task, keep = start.task, sets.keep
    retrained = refit(task.features[keep], task.targets[keep], task.config.penalty)
    # Of the quantised rows: what Lethe's methods learn.
    own = refit(task.quantised[keep], task.targets[keep], task.config.penalty)
    reference = {
        name: _of_head(sets, name, head)
        for name, head in (("ridge", retrained), ("ridge, 16 bits", own))
    }
    found.reference |= reference
    for name, contender in start.contenders(ANALYTIC).items():
        plain, left = name == "ACU", np.ones(len(task.rows), dtype=np.bool_)
        features = task.features if plain else task.quantised
        runs = [clock[name] for clock in clocks]
        found.runs[name] = [sum(run) for run in runs]
        middle = sorted(runs, key=sum)[len(runs) // 2]
        for part, spent in zip(parts, middle, strict=True):
            contender.change(part, -1)
            left[part] = False
            head = contender.head()
            retained = share(features[left], task.rows.labels[left], head)
            found.note(name, retained, task.accuracy(head), spent)
        found.seconds[name] = found.courses[name]["seconds"][-1]
        mine = _of_head(sets, "ridge" if plain else "ridge, 16 bits", contender.head())
        known = reference["ridge" if plain else "ridge, 16 bits"]
        found.gaps[name] = _differences(
            mine, known, contender.head() - (retrained if plain else own)
        )


def _of_head(sets: _Sets, kind: str, head: Matrix) -> dict[str, float]:
    """Return the measures of a ridge head (d, c), whose scores stand for logits."""
    task = sets.linear.task
    features = task.features if kind == "ridge" else task.quantised
    return sets.measures(head, (features @ head, task.test @ head))


def _of_weights(sets: _Sets, weights: Weights) -> dict[str, float]:
    rows = (sets.linear.rows, sets.linear.test)
    learned, tested = (logits(weights, part).double().numpy() for part in rows)
    return sets.measures(to_vector(weights).double().numpy(), (learned, tested))


def _gaps(
    sets: _Sets, weights: Weights, retrained: Weights, reference: Mapping[str, float]
) -> dict[str, float]:
    apart = (to_vector(weights) - to_vector(retrained)).double().numpy()
    return _differences(_of_weights(sets, weights), reference, apart)


def _differences(
    mine: Mapping[str, float], reference: Mapping[str, float], apart: Matrix
) -> dict[str, float]:
    gaps = {part: abs(mine[part] - reference[part]) for part in PARTS}
    return gaps | {"weights": float(np.linalg.norm(apart)) / reference["weights"]}


def trained(linear: LinearTask, rows: ClientData, rounds: int, seed: int) -> Weights:
    """Return the head that this many rounds on rows end with."""
    held = {HOLDER: rows}
    engine = InProcess(held, "cpu", threads=1)
    return train(linear.network, sizes(held), config_of(rounds, seed), engine).state.weights


def _case(
    linear: LinearTask,
    weights: Weights,
    left: NDArray[np.bool_],
    part: NDArray[np.int64],
    rounds: int,
) -> UnlearningCase:
    """Return one request: the rows of `part` leave those that are `left`."""
    goes = np.zeros_like(left)
    goes[part] = True
    numbers = tuple(np.flatnonzero(goes[left]).tolist())
    pools = [
        {HOLDER: linear.rows.only(torch.from_numpy(mask))} for mask in (left & ~goes, goes)
    ]
    stay, leave = (Side(InProcess(pool, "cpu", threads=1), sizes(pool)) for pool in pools)
    return UnlearningCase(
        linear.network,
        weights,
        UnlearningRequest(rows={HOLDER: numbers}),
        config_of(rounds),
        stay,
        targets=leave,
    )


def _confidence(scores: Matrix, labels: NDArray[np.int64]) -> Matrix:
    """Return log-odds (n, 1) of the softmax probability of each row's class."""
    mine = scores[np.arange(len(labels)), labels]
    others = scores.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    top = others.max(axis=1)
    rest = top + np.log(np.exp(others - top[:, None]).sum(axis=1))
    odds: Matrix = (mine - rest)[:, None]
    return odds


def _attack(learned: Matrix, tested: Matrix, keep: NDArray[np.bool_]) -> float:
    """Return the share of forgotten rows that the attack takes for members."""
    members, others = learned[keep], tested
    told = np.concatenate([np.ones(len(members)), np.zeros(len(others))])
    attack = LogisticRegression(class_weight="balanced")
    attack.fit(np.concatenate([members, others]), told)
    return float(attack.predict(learned[~keep]).mean())
