"""A guard that asks the rows to forget: the step ends where they are like rows never seen.

A budget of nats on rows that stay says nothing of how much was forgotten, and the right one
differed tenfold between seeds. A model that never saw the forget set has about the loss on it
that the original model has on held-out rows. So the longest step is taken after which the
forget set's loss is at most so many times that; recovery brings it down again, which is why
it is more than once. Who leaves must be asked in every trial, as PUF asks them once more.
"""

import time

from benchmarks.unlearning.task import GUARDING, Task
from workers.fedavg.base import Work
from workers.fedavg.evaluate import evaluate
from workers.fedavg.flops import forward_flops
from workers.fedavg.seeds import stream
from workers.networks.weights import Weights
from workers.unlearning.judges import Judge, Judged


def forget_judge(task: Task, original: Weights, factor: float) -> Judge:
    """Return a judge for `StepGuard(rise=0)`: the forget loss, where it is above the goal.

    The goal is `factor` times the original model's loss on the validation rows; below it all
    models are equally good. At most GUARDING rows of the forget set are asked, by seed.
    """
    rows = task.forget
    if len(rows) > GUARDING:
        drawn = stream(task.seed, "stopping").permutation(len(rows))[:GUARDING]
        rows = rows.only(task.forget.targets.new_tensor(sorted(drawn.tolist())))
    held = evaluate(task.network, original, task.validation, task.device, threads=1)
    goal = factor * held.loss

    def judge(weights: Weights) -> Judged:
        started = time.perf_counter()
        loss = evaluate(task.network, weights, rows, task.device, threads=1).loss
        flops = len(rows) * forward_flops(task.network)
        work = Work(flops=flops, seconds=time.perf_counter() - started)
        return Judged(max(loss, goal), work)

    return judge
