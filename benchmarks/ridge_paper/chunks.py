"""Figure 2, and ACU's figures 3 and 4: a quarter of the records leaves in 25 or 50 requests.

ACU's share (appendix E.1: 10,000 of 40,000), in random order. Every request is one message
of the rows it names. All contenders take their turn at each request; at POINTS of them the
retrainings do too, and accuracies are taken. A retraining would be due at every request, so
its time counts for all since the last one. FedAvg, FATS and Exact-Fun take their turn at all of
these points on few rows only, and on more after the last request alone.
"""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from benchmarks.common import refit, seconds, timed
from benchmarks.ridge_paper.contenders import REFIT, Ours, Start
from benchmarks.ridge_paper.exact import files, retrained
from benchmarks.ridge_paper.linear_heads import FEDERATED, accuracy
from benchmarks.ridge_paper.task import share

SHARE = 0.25
POINTS = 5
FEW = 20_000  # rows


@dataclass(slots=True)
class Chunks:
    """What one data set's chunked deletions gave.

    seconds: of each request by contender, of each retraining by its name. at: the requests
    after which the rest was taken: accuracy on test rows and on retained rows, and the bits
    between ridge-exact's files and the retrained ones. federated_at: the requests after which
    FedAvg, FATS and Exact-Fun were, the rounds that they trained anew, and their operations.
    """

    data: str
    requests: int
    rows: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    at: list[int] = field(default_factory=list)
    test: dict[str, list[float]] = field(default_factory=dict)
    retained: dict[str, list[float]] = field(default_factory=dict)
    federated_at: list[int] = field(default_factory=list)
    repeated: dict[str, list[int]] = field(default_factory=dict)
    operations: dict[str, list[int]] = field(default_factory=dict)
    exact_bits: list[int] = field(default_factory=list)

    def ratio(self, slow: str, fast: str) -> float:
        """Return the median of what a retraining takes over what a request takes."""
        requests = np.array(self.seconds[fast]).reshape(len(self.seconds[slow]), -1)
        mine = np.median(requests, axis=1)
        return float(np.median(np.array(self.seconds[slow]) / mine))


def measure(begin: Start, requests: int) -> Chunks:
    """Return what `requests` deletions of equal size give."""
    task, contenders = begin.task, begin.contenders()
    parts = np.array_split(task.stream(int(SHARE * len(task.rows)), seed=2), requests)
    result = Chunks(task.name, requests, sum(map(len, parts)))
    names = (*contenders, REFIT, *FEDERATED)
    result.repeated = {name: [] for name in FEDERATED}
    result.operations = {name: [] for name in FEDERATED}
    for record in (result.seconds, result.test, result.retained):
        record.update({name: [] for name in names})
    keep = np.ones(len(task.rows), dtype=np.bool_)
    for request, part in enumerate(parts, start=1):
        keep[part] = False
        for name, contender in contenders.items():
            result.seconds[name].append(seconds(partial(contender.change, part, -1)))
        if request % (requests // POINTS):
            continue
        heads = {name: contender.head() for name, contender in contenders.items()}
        x, y = task.features[keep], task.targets[keep]
        heads[REFIT], taken = timed(partial(refit, x, y, task.config.penalty))
        result.seconds[REFIT].append(taken)
        result.at.append(request)
        labels = task.rows.labels[keep]
        for name, head in heads.items():
            result.test[name].append(task.accuracy(head))
            result.retained[name].append(share(x, labels, head))
        exact = contenders["ridge-exact"]
        assert isinstance(exact, Ours)
        alone = files(retrained(task, keep), task.config)
        result.exact_bits.append(files(exact.state, task.config).bits_apart(alone))
        if len(keep) > FEW and request < requests:
            continue
        result.federated_at.append(request)
        linear = begin.federated.linear
        kept = linear.rows.only(torch.from_numpy(keep))
        for name in FEDERATED:
            forgotten = begin.federated.forget(name, keep)
            result.seconds[name].append(forgotten.seconds)
            result.repeated[name].append(forgotten.repeated)
            result.operations[name].append(forgotten.operations)
            result.test[name].append(accuracy(forgotten.weights, linear.test))
            result.retained[name].append(accuracy(forgotten.weights, kept))
    return result
