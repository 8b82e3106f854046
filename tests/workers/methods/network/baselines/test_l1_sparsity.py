import numpy as np
import pytest

from tests.workers.methods.network.baselines.central_case import (
    Head,
    bits,
    close,
    make_case,
    one_batch,
    pooled,
)
from workers.errors import RefusedError
from workers.methods.network.baselines.finetune import Finetune
from workers.methods.network.baselines.l1_sparsity import L1Sparsity, decayed


def sign(head: Head) -> Head:
    return Head(np.sign(head.w), np.sign(head.b))


@pytest.mark.parametrize("steps", [2, 3, 7, 100])
def test_the_penalty_falls_on_a_line_to_exactly_zero(steps: int) -> None:
    found = [decayed(0.3, step, steps) for step in range(steps)]
    assert found[0] == 0.3
    assert found[-1] == 0
    assert np.allclose(np.diff(found), -0.3 / (steps - 1))


def test_three_steps_are_those_by_hand_and_the_last_has_no_penalty() -> None:
    found = L1Sparsity(penalty=0.2, epochs=3).run(make_case(config=one_batch()))
    rows, head = pooled("retained"), Head.of()
    for penalty in (0.2, 0.1, 0.0):
        head = head.plus(head.gradient(*rows), -0.1).plus(sign(head), -0.1 * penalty)
    assert close(found.weights, head)
    # A schedule by epochs, (1 - epoch / epochs), gives another result.
    other = Head.of()
    for penalty in (0.2, 0.2 * 2 / 3, 0.2 / 3):
        other = other.plus(other.gradient(*rows), -0.1).plus(sign(other), -0.1 * penalty)
    assert not close(found.weights, other, 1e-4)


def test_without_a_penalty_it_is_another_run_of_finetune() -> None:
    config = one_batch()
    mine = L1Sparsity(penalty=0, epochs=2).run(make_case(config=config)).weights
    plain = Finetune(epochs=2).run(make_case(config=config)).weights
    assert close(mine, Head.of(plain))
    assert bits(mine) != bits(L1Sparsity(epochs=2).run(make_case(config=config)).weights)


def test_one_step_cannot_decay() -> None:
    with pytest.raises(RefusedError, match="more epochs"):
        L1Sparsity(epochs=1).run(make_case(config=one_batch()))
