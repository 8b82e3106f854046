"""A small deep model: a logistic head over few features, trained in a fraction of a second."""

from typing import Any

import numpy as np

from workers.judge.policy.document import to_document
from workers.judge.policy.policy import default

MODEL = "small-network"
FEATURES, CLASSES, CLIENTS = 6, 3, 4
SHAPE = {"features": FEATURES, "classes": CLASSES}


def rows(seed: int = 0, count: int = 120, first: int = 0) -> dict[str, Any]:
    """Return the arrays of a registration; record i of client i % CLIENTS is "r<i>"."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    centres = rng.normal(size=(CLASSES, FEATURES))
    inputs = centres[labels] + rng.normal(size=(count, FEATURES))
    return {
        "inputs": inputs.astype(np.float32),
        "labels": labels,
        "clients": np.array([f"c{i % CLIENTS}" for i in range(first, first + count)]),
        "records": np.array([f"r{i}" for i in range(first, first + count)]),
    }


def manifest(**changes: Any) -> dict[str, Any]:
    """Return a registration's manifest."""
    training = {"rounds": 3, "seed": 7, "local": {"batch_size": 8, "learning_rate": 0.2}}
    return {
        "family": "network",
        "ref": MODEL,
        "method": "puf-special",
        "classes": [str(number) for number in range(CLASSES)],
        "network": {"id": "logistic", "parameters": SHAPE},
        "input_shape": [FEATURES],
        "training": training,
        "held_out": 0.25,
        "settings": {"puf-special": {"recovery": {"rounds": 1}}},
        "policy": to_document(default(30)),
        **changes,
    }
