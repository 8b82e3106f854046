from dataclasses import replace

import torch

from tests.workers.methods.network.baselines.central_case import (
    CLIENTS,
    Head,
    bits,
    close,
    make_case,
    one_batch,
    pooled,
)
from workers.methods.network.base import Side
from workers.methods.network.baselines.finetune import Finetune
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.in_process import InProcess


class Watched(InProcess):
    """An engine that records whether its rows were read."""

    looked = False

    def __getattribute__(self, name: str) -> object:
        if name == "clients":
            type(self).looked = True
        return super().__getattribute__(name)


def test_one_step_goes_down_the_loss_of_the_rows_that_stay() -> None:
    found = Finetune(epochs=1).run(make_case(config=one_batch()))
    start = Head.of()
    assert close(found.weights, start.plus(start.gradient(*pooled("retained")), -0.1))


def test_the_rows_to_forget_change_nothing() -> None:
    poison = ClientData(torch.full((5, 4), 1e6), CLIENTS["cleo"].targets)
    found = Finetune().run(make_case({**CLIENTS, "cleo": poison}))
    assert bits(found.weights) == bits(Finetune().run(make_case()).weights)
    # Change one retained row, to see that a change would show.
    inputs = CLIENTS["anna"].inputs.clone()
    inputs[0, 0] += 1
    planted = make_case({**CLIENTS, "anna": replace(CLIENTS["anna"], inputs=inputs)})
    assert bits(Finetune().run(planted).weights) != bits(found.weights)


def test_nobody_looks_at_the_rows_to_forget() -> None:
    case = make_case()
    assert case.targets is not None
    engine = Watched(CLIENTS)
    Watched.looked = False
    Finetune(epochs=1).run(replace(case, targets=Side(engine, case.targets.rows)))
    assert not Watched.looked
    # The watch itself works.
    assert engine.clients == CLIENTS
    assert Watched.looked


def test_the_rate_is_the_one_training_ended_with_unless_given() -> None:
    config = one_batch()
    config = replace(config, rounds=3, local=replace(config.local, decay=0.5))
    start = Head.of()
    slope = start.gradient(*pooled("retained"))
    decayed = Finetune(epochs=1).run(make_case(config=config))
    assert close(decayed.weights, start.plus(slope, -0.1 / 8))
    given = Finetune(epochs=1, learning_rate=0.3).run(make_case(config=config))
    assert close(given.weights, start.plus(slope, -0.3))
    assert given.notes["central.learning-rate"] == "0.3"
