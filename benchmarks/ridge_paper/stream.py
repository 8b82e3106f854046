"""Table 5 and figure 3: 200 single deletions, then the same records added back.

Contenders take turns of TURN requests each, so that a busy machine slows all of them. In
every turn scikit-learn refits once, in every tenth FedAvg retrains, and FATS and Exact-Fun
forget, without one row of the turn, the first. Each would be asked to at each request, and its
cumulative time counts as if it had. What FATS and Exact-Fun repeat depends on the row: `skips`
asks them about more rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, sleep

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import PAUSE, refit, seconds
from benchmarks.ridge_paper.contenders import (
    OURS,
    PAPER,
    REFIT,
    HeadContender,
    Ours,
    Positions,
    Start,
)
from benchmarks.ridge_paper.exact import files, head64, retrained
from benchmarks.ridge_paper.ledgers import deviation
from benchmarks.ridge_paper.linear_heads import FEDERATED
from benchmarks.ridge_paper.task import HeadTask

TURN = 10
FEDERATED_TURNS = 10


@dataclass(slots=True)
class StreamResult:
    """What one data set's stream gave.

    seconds: of each of the deletions, by contender; for the retrainings the seconds of
    each, which stand for the requests of one or several turns. checkpoints names four
    moments; deviation has one number for each: for the papers' ledgers relative to
    scikit-learn on the rows retained then, for ours relative to the exact solution of
    theirs. repeated and operations: what FedAvg, FATS and Exact-Fun trained anew, as often as
    they were timed. exact_bits: bits between ridge-exact's files and the retrained ones.
    """

    data: str
    length: int
    checkpoints: list[str] = field(default_factory=list)
    deviation: dict[str, list[float]] = field(default_factory=dict)
    bound: dict[str, list[float]] = field(default_factory=dict)
    exact_bits: list[int] = field(default_factory=list)
    resets: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    repeated: dict[str, list[int]] = field(default_factory=dict)
    operations: dict[str, list[int]] = field(default_factory=dict)

    def ratio(self, slow: str, fast: str) -> float:
        """Return the median over turns of what a retraining takes over what a request takes."""
        requests = np.array(self.seconds[fast])
        turns = len(self.seconds[slow])
        mine = np.median(requests.reshape(turns, -1), axis=1)
        return float(np.median(np.array(self.seconds[slow]) / mine))


def measure(begin: Start, quick: bool) -> StreamResult:
    """Return the stream of one data set: `length` deletions, `length` additions."""
    task = begin.task
    length = 20 if quick else 200
    turn = 5 if quick else TURN
    federated_turns = 2 if quick else FEDERATED_TURNS
    contenders = begin.contenders()
    result = StreamResult(task.name, length)
    result.deviation = {name: [] for name in contenders}
    result.bound = {name: [] for name in OURS}
    result.seconds = {name: [] for name in (*contenders, REFIT, *FEDERATED)}
    result.repeated = {name: [] for name in FEDERATED}
    result.operations = {name: [] for name in FEDERATED}
    order = task.stream(length)
    keep = np.ones(len(task.rows), dtype=np.bool_)
    for start in range(0, length, turn):
        part = order[start : start + turn]
        keep[part] = False
        for name, contender in contenders.items():
            result.seconds[name] += _each(contender, part, -1)
        x, y = task.features[keep], task.targets[keep]
        result.seconds[REFIT].append(seconds(partial(refit, x, y, task.config.penalty)))
        if start % (turn * federated_turns) == 0:
            alone = np.ones_like(keep)
            alone[part[0]] = False
            for name in FEDERATED:
                forgotten = begin.federated.forget(name, alone)
                result.seconds[name].append(forgotten.seconds)
                result.repeated[name].append(forgotten.repeated)
                result.operations[name].append(forgotten.operations)
        if start + turn in (length // 2, length):
            _compare(result, f"{start + turn} deletions", task, keep, contenders)
    for start in range(0, length, turn):
        part = order[start : start + turn]
        keep[part] = True
        for contender in contenders.values():
            _each(contender, part, +1)
        if start + turn in (length // 2, length):
            _compare(result, f"{start + turn} added back", task, keep, contenders)
    result.resets = {
        name: contender.resets
        for name, contender in contenders.items()
        if isinstance(contender, Ours)
    }
    return result


def _each(contender: HeadContender, part: Positions, sign: int) -> list[float]:
    sleep(PAUSE)
    times = []
    for position in part:
        started = perf_counter()
        contender.change(np.array([position]), sign)
        times.append(round(perf_counter() - started, 7))
    return times


def _compare(
    result: StreamResult,
    checkpoint: str,
    task: HeadTask,
    keep: NDArray[np.bool_],
    contenders: Mapping[str, HeadContender],
) -> None:
    result.checkpoints.append(checkpoint)
    central = refit(task.features[keep], task.targets[keep], task.config.penalty)
    alone = retrained(task, keep)
    solution = head64(alone, exact=True)
    for name in PAPER:
        result.deviation[name].append(deviation(contenders[name].head(), central))
    for name in OURS:
        contender = contenders[name]
        assert isinstance(contender, Ours)
        reference = head64(alone) if name == "ridge-exact" else solution
        result.deviation[name].append(deviation(contender.head(), reference))
        result.bound[name].append(contender.relative_bound)
        if name == "ridge-exact":
            own = files(contender.state, task.config)
            result.exact_bits.append(own.bits_apart(files(alone, task.config)))
