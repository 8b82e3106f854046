"""Shokri's attack with shadow models, which HF-KCU names for its column MIA.

Shokri, Stronati, Song and Shmatikov (S&P 2017): models trained as the attacked one, on rows
that it never had, show what outputs on members look like; an attacker for each class learns
that and is applied to the attacked model. HF-KCU says neither how many shadow models it trains,
nor what its attacker is, nor on which rows success is counted. Here:

- A shadow model is a federated training with the setting's clients, partition and schedule. Its
  members are one half of the pool, its non-members the other, each as many as the attacked
  model has rows; which half, the clients and the initial weights come from a seed of its own.
- The attacker is Lethe's logistic regression (`workers.judge.attacks.shokri`), one for each
  class with ENOUGH rows on both sides, one of all rows for the others.
- Success is counted on the forget rows and on test rows of no pool, weighted so that both sides
  have the same classes: forgetting a class is not the same as never having had these rows of
  it. 1/2 is chance, and what a retrained model should have.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.unlearning.own_training import answers
from benchmarks.unlearning.settings import SHADOWS
from benchmarks.unlearning.task import Task, owners_of
from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs
from workers.judge.attacks.shokri import attacker
from workers.judge.attacks.song import ENOUGH
from workers.judge.inference.intervals import Vector
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import split
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.fedavg.seeds import derive, stream
from workers.training.networks.weights import Weights

# Settings of HF-KCU's tables 1 and 9 whose data has rows left for shadow models.
ATTACKED = ("cifar", "mnist", "digits")

Score = Callable[[Outputs], Vector]
Values = Callable[[tuple[Weights, ...]], dict[str, float]]  # of a model, or of an ensemble


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """A model's outputs on its own rows and on as many that it never had."""

    members: Outputs
    others: Outputs


def pool_of(task: Task) -> ClientData:
    """Return the rows of both sides of a shadow model.

    Raises RefusedError if the data has too few rows that the attacked model was not given.
    """
    left = 0 if task.pool is None else len(task.pool)
    if task.pool is None or left < 2 * task.rows:
        raise RefusedError(
            f"{task.setting.name} leaves {left} training rows over, and shadow models need "
            f"{2 * task.rows}: attack a setting with fewer rows"
        )
    return task.pool


def shadow(task: Task, number: int) -> Shadow:
    """Train the shadow model of a number as the task's model is trained.

    Raises what `pool_of` raises.
    """
    pool, seed = pool_of(task), derive(task.seed, "shadow", number)
    order = torch.from_numpy(stream(seed, "sides").permutation(len(pool)))
    inside, outside = pool.only(order[: task.rows]), pool.only(order[task.rows :])
    owners = owners_of(task.setting, inside.targets.numpy(), seed)
    clients = split(inside, np.array([f"client-{owner:03d}" for owner in owners]))
    engine = InProcess(clients, task.device, threads=1)
    config = replace(task.config, seed=seed)
    weights = train(task.network, sizes(clients), config, engine).weights
    return Shadow(_outputs(task, (weights,), inside), _outputs(task, (weights,), outside))


def fitted(shadows: list[Shadow]) -> Score:
    """Return the attacker of each class, learned from all shadow models together."""
    members = _together([part.members for part in shadows])
    others = _together([part.others for part in shadows])
    whole = attacker(members, others)
    by_class: dict[int, Score] = {}
    for label in range(members.logits.shape[1]):
        inside, outside = (np.flatnonzero(of.labels == label) for of in (members, others))
        if min(len(inside), len(outside)) >= ENOUGH:
            by_class[label] = attacker(members.only(inside), others.only(outside))

    def score(of: Outputs) -> Vector:
        found = np.zeros(len(of))
        for label in np.unique(of.labels):
            rows = np.flatnonzero(of.labels == label)
            found[rows] = by_class.get(int(label), whole)(of.only(rows))
        return found

    return score


def success(score: Score, forget: Outputs, outside: Outputs) -> dict[str, float]:
    """Return how well an attacker tells forget rows from rows that no model has seen.

    shadow: half of the share of forget rows called members plus half of the share of the others
    called none. shadow_auc: the area under its curve. shadow_forget: the first share. Others
    weigh as the forget rows of their class; classes that one side lacks count for neither.
    Raises RefusedError if the sides share no class.
    """
    count = forget.logits.shape[1]
    mine, theirs = (np.bincount(of.labels, minlength=count) for of in (forget, outside))
    shared = (mine > 0) & (theirs > 0)
    if not shared.any():
        raise RefusedError("no test row is of a class of the forget rows")
    forget, outside = (of.only(np.flatnonzero(shared[of.labels])) for of in (forget, outside))
    weights = (mine / np.maximum(theirs, 1))[outside.labels]
    inside, other = score(forget), score(outside)
    called, not_called = float((inside > 0).mean()), np.average(other <= 0, weights=weights)
    truth = np.arange(len(inside) + len(other)) < len(inside)
    area = roc_auc_score(
        truth,
        np.concatenate([inside, other]),
        sample_weight=np.concatenate([np.ones(len(inside)), weights]),
    )
    return {
        "shadow": (called + float(not_called)) / 2,
        "shadow_auc": float(area),
        "shadow_forget": called,
    }


def attack(task: Task, tell: Callable[[str], object]) -> Values:
    """Train the shadow models and return what attacks a model.

    tell hears of each before it is trained. Raises what `shadow` raises.
    """
    shadows = []
    for number in range(SHADOWS):
        tell(f"shadow model {number + 1} of {SHADOWS}")
        shadows.append(shadow(task, number))
    score = fitted(shadows)

    def values(members: tuple[Weights, ...]) -> dict[str, float]:
        forget, outside = (
            _outputs(task, members, rows) for rows in (task.forget, task.outside)
        )
        return success(score, forget, outside)

    return values


def _outputs(task: Task, members: tuple[Weights, ...], rows: ClientData) -> Outputs:
    logits = answers(task, members, rows)
    return Outputs(logits.double().numpy(), rows.targets.numpy())


def _together(parts: list[Outputs]) -> Outputs:
    return Outputs(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
