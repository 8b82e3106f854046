"""The cost of each method by the papers' formulas, beside what was counted.

PUF's appendix B and Table VIII; its F is a forward pass, so its operations are about a third
of those counted. HF-KCU has no such table: its section B.1 counts two gradients for each of k
products, and one for the right side. Each of several cycles is counted. Methods without a
formula have none here.
"""

from dataclasses import replace
from math import prod

from benchmarks.baselines.fed_eraser import FedEraser
from benchmarks.baselines.pga import Pga
from benchmarks.baselines.registry import make
from benchmarks.unlearning import accounting
from benchmarks.unlearning.accounting import CostSetting, MethodCost
from benchmarks.unlearning.contenders import ORIGINAL, RETRAIN, Contender
from benchmarks.unlearning.task import Task
from workers.errors import RefusedError
from workers.methods.network.base import UnlearningMethod
from workers.methods.network.baselines.fed_au import FedAU
from workers.methods.network.baselines.layers import classifier
from workers.methods.network.baselines.mode import MoDe
from workers.methods.network.baselines.no_t import NoT
from workers.methods.network.hf_kcu.method import HfKcu
from workers.methods.network.natural import Natural
from workers.methods.network.puf import Puf
from workers.training.fedavg.client.flops import forward_flops
from workers.training.networks.weights import count


def formula_setting(task: Task) -> CostSetting:
    """Return Table VII's numbers of a task; N is the mean over the clients."""
    shapes = task.network.tensors()
    try:
        head = sum(prod(shapes[name]) for name in classifier(task.network))
    except RefusedError:  # segmentation: only FedAU, which refuses it too, would need it
        head = 0
    return CostSetting(
        parameters=count(task.network),
        clients=len(task.clients),
        unlearning=len(task.request.clients),
        flops=float(forward_flops(task.network)),
        samples=task.rows / len(task.clients),
        epochs=task.config.local.epochs,
        classifier=head,
    )


def formula(contender: Contender, task: Task) -> MethodCost | None:
    """Return unlearning and recovery together; None where no paper has a formula for it."""
    if task.request.rows:
        return None  # Table VIII is of clients
    setting = formula_setting(task)
    if contender.method == RETRAIN:
        return accounting.recovery(setting, task.config.rounds)
    if contender.method == ORIGINAL:
        return setting.rounds(setting.clients * task.config.rounds)
    method = make(contender.method, contender.settings)
    step = _step(setting, method, task.config.rounds)
    if step is None:
        return None
    recovery = method.recovery  # type: ignore[attr-defined]
    cycles = getattr(method, "cycles", 1)
    rounds = setting.rounds(setting.remaining * recovery.rounds * cycles, recovery.epochs)
    return (
        MethodCost(cycles * step.communication, cycles * step.computation, step.storage)
        + rounds
    )


def _step(setting: CostSetting, method: UnlearningMethod, rounds: int) -> MethodCost | None:
    match method:
        case Natural() | NoT():
            return accounting.no_t(setting)
        case Puf():
            left = accounting.puf_special(replace(setting, epochs=method.epochs))
            if method.mode == "special":
                return left
            return left + setting.rounds(setting.remaining)
        case HfKcu():
            panel = method.curvature_clients or setting.remaining
            products = setting.rounds(panel * method.iterations, 2 * method.curvature_rows)
            asked = setting.unlearning + (setting.remaining if method.drift == "ask" else 0)
            return setting.rounds(asked, 1.0) + products
        case FedEraser():
            kept = len(range(0, rounds, method.interval))
            return accounting.fed_eraser(setting, kept, method.ratio * setting.epochs)
        case Pga():
            return accounting.pga(setting, method.epochs)
        case FedAU():
            return accounting.fed_au(setting)
        case MoDe():
            return accounting.mode(setting, method.degradation_rounds, method.guidance_rounds)
        case _:
            return None
