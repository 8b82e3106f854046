"""Stochastic gradient ascent at one client: the training's loop, up the loss."""

import time
from collections.abc import Callable

import torch
from torch import nn

from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask, check_data
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.client.local import Steps, in_precision, update_of
from workers.training.fedavg.evaluate import loss_of
from workers.training.networks.weights import with_weights

After = Callable[[nn.Module], bool]  # sees the weights after each step; True ends the ascent


def ascend(
    task: RoundTask,
    data: ClientData,
    device: torch.device | str = "cpu",
    *,
    after: After | None = None,
) -> ClientUpdate:
    """Return the update of minibatch SGD that maximises the loss of the client's rows.

    Of the configuration it uses epochs, batch_size, learning rate, momentum, clip_norm, loss
    and precision; there is neither weight decay nor augmentation. The gradient is clipped
    before momentum is added. Run it inside `deterministic()`. Unbounded ascent may produce
    NaN: the server drops such an answer as a fault. Raises RefusedError as `train_locally`.
    """
    started = time.perf_counter()
    config = task.config
    module = with_weights(task.network, task.weights, device).train()
    check_data(task.network, data)
    rate = config.rate(task.round)
    steps = Steps(module.parameters(), rate, momentum=config.momentum, maximize=True)
    inputs, targets = data.inputs.to(device), data.targets.to(device)

    def loss(at: torch.Tensor) -> torch.Tensor:
        return loss_of(config.loss, in_precision(config, module, inputs[at]), targets[at])

    flops = training_flops(task.network, config.loss)
    return update_of(task, module, steps, loss, len(data), flops, started, after)
