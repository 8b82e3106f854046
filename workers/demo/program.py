"""The training program of `lethe demo --family script`: logistic regression in numpy."""

from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

NEEDED = ("numpy", "pyarrow", "safetensors")
TRAIN = """\
import sys

import numpy as np
import pyarrow.ipc
from safetensors.numpy import save_file

rows, model, seed = sys.argv[1:]
table = pyarrow.ipc.open_file(rows).read_all()
labels = table["label"].to_numpy()
classes = int(table.schema.metadata[b"classes"])
features = np.stack([table[f"f{i}"].to_numpy() for i in range(table.num_columns - 1)], axis=1)
mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
scaled = (features - mean) / scale
step = 2 / np.linalg.eigvalsh(scaled.T @ scaled / len(labels))[-1]  # the longest that is safe
weights = np.random.default_rng(int(seed)).normal(scale=0.01, size=(features.shape[1], classes))
bias = np.zeros(classes)
for _ in range(300):  # gradient descent
    scores = scaled @ weights + bias
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = shares / shares.sum(axis=1, keepdims=True) - np.eye(classes)[labels]
    weights -= step * (scaled.T @ error / len(labels) + 0.001 * weights)
    bias -= step * error.mean(axis=0)
save_file({"mean": mean, "scale": scale, "weights": weights, "bias": bias}, model)
"""


def document() -> dict[str, Any]:
    """Return the program as it is registered, locked to the installed versions."""
    lock = "".join(f"{name}=={metadata.version(name)}\n" for name in NEEDED)
    files = {"train.py": TRAIN, "requirements.lock": lock}
    return {"files": files, "entry": "train.py", "lock": "requirements.lock", "seed": 7}


def predict(file: bytes, features: NDArray[np.float64]) -> NDArray[Any]:
    """Return the class indices that the program's file predicts."""
    read = load(file)
    scores = (features - read["mean"]) / read["scale"] @ read["weights"] + read["bias"]
    found: NDArray[Any] = scores.argmax(axis=1)
    return found
