"""A federation that is learned by heart, without a data set, and how its methods are set.

Normal columns, and classes whose centres are so close that a linear rule is right about seven
rows in ten. A logistic head of more columns than most of its clients have rows learns the
training rows themselves: the attacks find them before unlearning. One client has a third of
the rows and goes; it is large enough for 310 pairs with as many rows held out.
"""

from typing import Any

import numpy as np

from workers.judge.policy.document import to_document
from workers.judge.policy.policy import default

COLUMNS, CLASSES = 800, 4
OWN, OTHERS = 1800, (1000, 1000, 1000)  # rows of the client that goes, and of each other
HELD_OUT = 0.5
APART, LENGTH = 0.07, 4.0  # of the classes' centres, in deviations; of a row
GONE = "c0"
# Of rows and training. In the draw 0 some erased rows stand out at a low false positive rate
# even of a retrained model, so that some choices of pairs leave a check undecided.
SEED = 1
TRAINING = {"rounds": 4, "local": {"epochs": 5.0, "batch_size": 32, "learning_rate": 0.3}}
# The step ends where the rows that go have little more than the loss of rows never seen. Every
# one of them is asked: on a hundred their mean loss is known to no better than a tenth.
GUARD = {"rise": 8.0, "shrink": 0.9, "trials": 60, "forget_rows": 1000}
RECOVERY = {"rounds": 1, "epochs": 1.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "puf-special": {"cycles": 2, "recovery": RECOVERY, "guard": {**GUARD, "forget": 1.3}},
    "hf-kcu": {
        "form": "influence",
        "drift": "skip",
        "iterations": 5,
        "curvature_rows": 0.5,
        "step": 4.0,
        "cycles": 2,
        "recovery": RECOVERY,
        "guard": {**GUARD, "forget": 1.2},
    },
    # The control: as much recovery, and no step.
    "natural": {"recovery": {"rounds": 2, "epochs": 1.0}},
}


def rows(seed: int = SEED) -> dict[str, Any]:
    """Return the arrays of a registration; record i is "r<i>"."""
    rng = np.random.default_rng([17, seed])
    clients = np.repeat([f"c{i}" for i in range(1 + len(OTHERS))], [OWN, *OTHERS])
    labels = rng.integers(CLASSES, size=len(clients))
    centres = rng.normal(size=(CLASSES, COLUMNS))
    inputs = APART * centres[labels] + rng.normal(size=(len(clients), COLUMNS))
    return {
        "inputs": (inputs * (LENGTH / np.sqrt(COLUMNS))).astype(np.float32),
        "labels": labels,
        "clients": clients,
        "records": np.array([f"r{i}" for i in range(len(clients))]),
    }


def manifest(method: str, ref: str, seed: int = SEED) -> dict[str, Any]:
    """Return the registration, with the policy that any registration of this size gets."""
    policy = default(int(OWN * HELD_OUT), method=method)
    return {
        "family": "network",
        "ref": ref,
        "method": method,
        "classes": [str(number) for number in range(CLASSES)],
        "network": {
            "id": "logistic",
            "parameters": {"features": COLUMNS, "classes": CLASSES},
        },
        "input_shape": [COLUMNS],
        "training": {"seed": seed, **TRAINING},
        "held_out": HELD_OUT,
        "settings": SETTINGS,
        "policy": to_document(policy),
    }
