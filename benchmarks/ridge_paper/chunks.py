"""Figure 2, and ACU's figures 3 and 4: a quarter of the records leaves in 25 or 50 requests.

ACU's share (appendix E.1: 10,000 of 40,000), in random order. Every request is one message
of the rows it names. All contenders take their turn at each request; at POINTS of them the
retrainings do too, and accuracies are taken. A retraining would be due at every request, so
its time counts for all since the last one.
"""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from benchmarks.common import refit, seconds, timed
from benchmarks.ridge_paper import fedavg
from benchmarks.ridge_paper.contenders import FEDAVG, REFIT, Ours, Start
from benchmarks.ridge_paper.exact import files, retrained
from benchmarks.ridge_paper.linear_heads import FEDERATED, accuracy
from benchmarks.ridge_paper.task import share

SHARE = 0.25
POINTS = 5


@dataclass(slots=True)
class Chunks:
    """What one data set's chunked deletions gave.

    seconds: of each request by contender, of each retraining by its name. at: the requests
    after which the rest was taken: accuracy on test rows and on retained rows, and the
    bits between ridge-exact's files and the retrained ones.
    """

    data: str
    requests: int
    rows: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    at: list[int] = field(default_factory=list)
    test: dict[str, list[float]] = field(default_factory=dict)
    retained: dict[str, list[float]] = field(default_factory=dict)
    exact_bits: list[int] = field(default_factory=list)

    def ratio(self, slow: str, fast: str) -> float:
        """Return the median of what a retraining takes over what a request takes."""
        requests = np.array(self.seconds[fast]).reshape(len(self.seconds[slow]), -1)
        mine = np.median(requests, axis=1)
        return float(np.median(np.array(self.seconds[slow]) / mine))


def measure(begin: Start, requests: int, quick: bool) -> Chunks:
    """Return what `requests` deletions of equal size give."""
    task, contenders = begin.task, begin.contenders()
    schedule = fedavg.Schedule(rounds=20) if quick else fedavg.Schedule()
    parts = np.array_split(task.stream(int(SHARE * len(task.rows)), seed=2), requests)
    result = Chunks(task.name, requests, sum(map(len, parts)))
    names = (*contenders, REFIT, FEDAVG, *FEDERATED)
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
        heads[FEDAVG], taken = timed(partial(fedavg.train, task, begin.owners, schedule, keep))
        result.seconds[FEDAVG].append(taken)
        result.at.append(request)
        labels = task.rows.labels[keep]
        for name, head in heads.items():
            result.test[name].append(task.accuracy(head))
            result.retained[name].append(share(x, labels, head))
        linear = begin.federated.linear
        kept = linear.rows.only(torch.from_numpy(keep))
        for name in FEDERATED:
            weights, taken = timed(partial(begin.federated.forget, name, keep.copy()))
            result.seconds[name].append(taken)
            result.test[name].append(accuracy(weights, linear.test))
            result.retained[name].append(accuracy(weights, kept))
        exact = contenders["ridge-exact"]
        assert isinstance(exact, Ours)
        alone = files(retrained(task, keep), task.config)
        result.exact_bits.append(files(exact.state, task.config).bits_apart(alone))
    return result
