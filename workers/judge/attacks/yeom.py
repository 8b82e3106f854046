"""The loss threshold attack of Yeom, Giacomelli, Fredrikson and Jha (CSF 2018).

A row is classified as a member if its loss is below the model's average training loss (their
adversary 2 with the threshold of section 3.2); the average is over the retained rows known to
be members. The score is the negative loss in nats.
"""

import numpy as np

from workers.judge.attacks.attack import Scores, Setting
from workers.judge.attacks.outputs import losses


def yeom(setting: Setting) -> Scores:
    """Score by loss, with the members' mean loss as the threshold."""
    with np.errstate(over="ignore"):
        threshold = -float(losses(setting.members).mean())
    return Scores(-losses(setting.forget), -losses(setting.unseen), threshold)
