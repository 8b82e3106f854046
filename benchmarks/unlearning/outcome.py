"""What one model is like: accuracies, attacks, and how far it is from the retrained one."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from benchmarks.unlearning.own_training import answers
from benchmarks.unlearning.task import POISON, Task
from workers.judge.attacks.attack import Setting as Attacked
from workers.judge.attacks.outputs import Outputs
from workers.judge.attacks.song import song_confidence
from workers.judge.attacks.yeom import yeom
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.evaluate import evaluate, row_losses
from workers.training.networks.weights import Weights, difference, norm


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """A model's logits on the rows that it is judged by."""

    test: torch.Tensor
    forget: torch.Tensor
    retained: torch.Tensor
    members: tuple[Weights, ...]


def answer(task: Task, members: tuple[Weights, ...]) -> Answers:
    """Return the logits of a model, or of an ensemble of several."""
    parts = (task.test, task.forget, task.retained)
    test, forget, retained = (answers(task, members, part) for part in parts)
    return Answers(test, forget, retained, members)


def outcome(task: Task, model: Answers, retrained: Answers) -> dict[str, float]:
    """Return all measures of a model by name.

    test, forget, retained: accuracies, Dice for segmentation. forget_loss: mean
    cross-entropy. song, yeom: the share of the forget set that an attack calls members. kl
    (nats), agreement, logit_mse: retrained beside this model on test rows (HF-KCU, A.9 and
    C). distance: ‖θ - θ_r‖ / ‖θ_r‖. asr: how often the trigger works.
    """
    found = {
        "test": _score(task, model, model.test, task.test),
        "forget": _score(task, model, model.forget, task.forget),
        "retained": _score(task, model, model.retained, task.retained),
        "forget_loss": float(row_losses(model.forget, task.forget.targets).double().mean()),
        "kl": divergence(retrained.test, model.test),
        "agreement": agreement(retrained.test, model.test),
        "logit_mse": float(
            (model.test - retrained.test).double().square().sum(1).mean(),
        ),
    }
    if len(model.members) == 1 and len(retrained.members) == 1:
        apart = difference(model.members[0], retrained.members[0])
        found["distance"] = norm(apart) / norm(retrained.members[0])
    if model.test.ndim == 2:
        found |= attacked(
            _outputs(model.forget, task.forget.targets),
            _outputs(model.retained, task.retained.targets),
            _outputs(model.test, task.test.targets),
        )
    if task.triggered is not None:
        labels = torch.full((len(task.triggered),), POISON, dtype=torch.int64)
        rows = ClientData(task.triggered, labels)
        found["asr"] = accuracy(answers(task, model.members, rows), labels)
    return found


def accuracy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of rows whose largest logit is the target."""
    return float((logits.argmax(1) == targets).double().mean())


def divergence(truth: torch.Tensor, other: torch.Tensor) -> float:
    """Return the mean of KL(softmax(truth) ‖ softmax(other)) in nats, logits (n, c, ...)."""
    first = truth.double().log_softmax(1)
    second = other.double().log_softmax(1)
    each = functional.kl_div(second, first, reduction="none", log_target=True).sum(1)
    return float(each.mean())


def agreement(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the share of rows (or pixels) with the same largest logit, logits (n, c, ...)."""
    return float((one.argmax(1) == other.argmax(1)).double().mean())


def _score(task: Task, model: Answers, logits: torch.Tensor, rows: ClientData) -> float:
    if task.network.task == "classification":
        return accuracy(logits, rows.targets)
    found = evaluate(task.network, model.members[0], rows, task.device, threads=1).dice
    assert found is not None  # a segmentation has one
    return found


def attacked(forget: Outputs, members: Outputs, others: Outputs) -> dict[str, float]:
    """Return the share of forget rows that each attack calls members (PUF, section V-C).

    members are the rows that stay, others the test rows; thresholds are fixed on them.
    """
    setting = Attacked(forget=forget, unseen=others, members=members, others=others)
    found = {}
    for name, attack in (("song", song_confidence), ("yeom", yeom)):
        called, _ = attack(setting).correct()
        found[name] = float(called.mean())
    return found


def _outputs(logits: torch.Tensor, labels: torch.Tensor) -> Outputs:
    return Outputs(logits.double().numpy(), labels.numpy())
