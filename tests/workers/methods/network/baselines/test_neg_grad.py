from dataclasses import replace

import torch

from tests.workers.methods.network.baselines.central_case import (
    CLIENTS,
    WEIGHTS,
    Head,
    bits,
    close,
    make_case,
    one_batch,
    pooled,
)
from workers.methods.network.baselines.neg_grad import NegGrad
from workers.training.networks.weights import difference, norm


def test_one_step_goes_up_the_loss_of_the_rows_to_forget() -> None:
    found = NegGrad(epochs=1, learning_rate=0.1).run(make_case(config=one_batch()))
    start = Head.of()
    slope = start.gradient(*pooled("forget"))
    assert close(found.weights, start.plus(slope, 0.1))
    assert not close(found.weights, start.plus(slope, -0.1), 1e-3)


def test_the_rows_that_stay_change_nothing() -> None:
    anna = CLIENTS["anna"]
    other = {**CLIENTS, "anna": replace(anna, inputs=anna.inputs + torch.ones(4))}
    assert bits(NegGrad().run(make_case(other)).weights) == bits(
        NegGrad().run(make_case()).weights
    )


def test_gradients_are_clipped_as_in_training() -> None:
    config = one_batch()
    config = replace(config, local=replace(config.local, clip_norm=1e-3))
    found = NegGrad(epochs=1, learning_rate=0.1).run(make_case(config=config))
    assert abs(norm(difference(found.weights, WEIGHTS)) - 1e-4) < 1e-6
