from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.workers.methods.network.baselines.central_case import (
    WEIGHTS,
    Array,
    Head,
    close,
    make_case,
    moved_from,
    one_batch,
    pooled,
    softmax,
)
from workers.methods.network.baselines.scrub import Scrub, distance

T, ALPHA, GAMMA, RATE = 3.0, 0.7, 0.4, 0.5


def apart(head: Head, teacher: Head, x: Array) -> Head:
    """∇ of T² mean KL(teacher ‖ student): T (p_s - p_t) in the student's logits."""
    return head.back(T * (softmax(head.logits(x) / T) - softmax(teacher.logits(x) / T)), x)


def by_hand(epochs: int, max_steps: int, *, forward: bool = True) -> Head:
    teacher = head = Head.of()
    (stay, labels), (leave, _) = pooled("retained"), pooled("forget")

    def disobey(head: Head) -> Head:
        return head.plus(apart(head, teacher, leave), RATE)

    for epoch in range(epochs):
        if epoch < max_steps and forward:
            head = disobey(head)
        slope = apart(head, teacher, stay)
        kept = head.plus(slope, -RATE * ALPHA)
        head = kept.plus(head.gradient(stay, labels), -RATE * GAMMA)
        if epoch < max_steps and not forward:
            head = disobey(head)
    return head


def run(epochs: int, max_steps: int) -> dict[str, torch.Tensor]:
    method = Scrub(epochs, RATE, max_steps=max_steps, alpha=ALPHA, gamma=GAMMA, temperature=T)
    return dict(method.run(make_case(config=one_batch())).weights)


@pytest.mark.parametrize(("epochs", "max_steps"), [(1, 0), (1, 1), (2, 2), (3, 2), (4, 4)])
def test_the_alternation_is_the_one_by_hand(epochs: int, max_steps: int) -> None:
    assert close(run(epochs, max_steps), by_hand(epochs, max_steps), 3e-6)


def test_other_alternations_are_told_apart() -> None:
    found = run(3, 2)
    for other in (by_hand(3, 0), by_hand(3, 3), by_hand(3, 2, forward=False)):
        assert not close(found, other, 1e-4)


def test_the_first_max_step_has_no_slope() -> None:
    # gamma and alpha 0: only max-steps are left, and at the teacher their slope is zero.
    only = replace(Scrub(epochs=1, max_steps=1, learning_rate=RATE), alpha=0.0, gamma=0.0)
    found = only.run(make_case(config=one_batch()))
    assert moved_from(found.weights, WEIGHTS) < 1e-6


def test_the_distance_is_a_divergence_from_the_teacher() -> None:
    rng = np.random.default_rng(3)
    student, teacher = rng.normal(size=(2, 5, 4))
    p, q = softmax(teacher / T), softmax(student / T)
    expected = T**2 * (p * np.log(p / q)).sum(1).mean()
    found = distance(torch.from_numpy(student), torch.from_numpy(teacher), T)
    assert abs(float(found) - expected) < 1e-12
    # Pixels are rows.
    wide = [torch.from_numpy(z.T.copy())[None, :, :, None] for z in (student, teacher)]
    assert abs(float(distance(wide[0], wide[1], T)) - expected) < 1e-12
