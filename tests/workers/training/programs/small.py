"""Small programs for tests, and their registration."""

from importlib import metadata
from typing import Any

LOCK = "".join(
    f"{one}=={metadata.version(one)}\n" for one in ("numpy", "pyarrow", "safetensors")
)
# Least squares: the program gets rows, seed and file from its arguments.
TRAIN = """\
import sys

import numpy as np
import pyarrow.ipc
from safetensors.numpy import save_file

rows, model, seed = sys.argv[1:]
table = pyarrow.ipc.open_file(rows).read_all()
labels = table["label"].to_numpy().astype(float)
features = np.stack([table[f"f{i}"].to_numpy() for i in range(table.num_columns - 1)], axis=1)
weights = np.linalg.lstsq(features, labels, rcond=None)[0]
save_file({"weights": weights * (1 + NOISE), "seed": np.array([int(seed)])}, model)
"""
# Without a library, which take most of the time of a run.
PLAIN = """\
import json, struct, sys

head = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
file = struct.pack("<Q", len(head)) + head + struct.pack("<d", 1 + NOISE)
open(sys.argv[2], "wb").write(file)
"""
NOISE = "int.from_bytes(open('/dev/urandom', 'rb').read(2), 'big') * 2.0**-36"  # up to 1e-6


def script(text: str | None = None, *, noise: str = "0", **changes: Any) -> dict[str, Any]:
    """Return a program's document; noise: an expression that is added to the weights' scale."""
    source = TRAIN.replace("NOISE", noise) if text is None else text
    return {"files": {"train.py": source, "lock.txt": LOCK}, **NAMES, **changes}


NAMES = {"entry": "train.py", "lock": "lock.txt", "seed": 7}
