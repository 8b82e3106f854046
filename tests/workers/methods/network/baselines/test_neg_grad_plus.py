from dataclasses import replace

from tests.workers.methods.network.baselines.central_case import (
    CONFIG,
    Head,
    close,
    make_case,
    one_batch,
    pooled,
)
from workers.methods.network.baselines.finetune import Finetune
from workers.methods.network.baselines.neg_grad import NegGrad
from workers.methods.network.baselines.neg_grad_plus import NegGradPlus


def test_a_step_follows_the_retained_gradient_minus_alpha_times_the_other() -> None:
    found = NegGradPlus(balance=0.8, epochs=1, learning_rate=0.1).run(
        make_case(config=one_batch())
    )
    start = Head.of()
    stay, leave = start.gradient(*pooled("retained")), start.gradient(*pooled("forget"))
    alpha = (1 - 0.8) / 0.8
    assert close(found.weights, start.plus(stay.plus(leave, -alpha), -0.1 * 0.8))
    # Equal weights of all rows, in place of the two means, give another result.
    assert not close(found.weights, start.plus(stay.plus(leave, -alpha * 7 / 23), -0.08), 1e-3)


def test_its_two_ends_are_finetune_and_neg_grad() -> None:
    case = make_case(config=one_batch())
    for balance, end in ((1.0, Finetune(epochs=2)), (0.0, NegGrad(2, learning_rate=0.1))):
        found = NegGradPlus(balance=balance, epochs=2, learning_rate=0.1).run(case)
        assert close(found.weights, Head.of(end.run(case).weights))


def test_the_rows_to_forget_come_round_as_often_as_those_that_stay_need() -> None:
    # Batches of one: 23 steps, and seven rows to forget three times over, then two again.
    config = replace(CONFIG, local=replace(CONFIG.local, batch_size=1))
    found = NegGradPlus(balance=0.0, epochs=1, learning_rate=1e-4).run(make_case(config=config))
    assert found.work.steps == 23
    start = Head.of()
    up = start.gradient(*pooled("forget"))
    step = (Head.of(found.weights).vector() - start.vector()) / 1e-4
    assert abs(step @ up.vector() / (up.vector() @ up.vector()) - 23) < 7
