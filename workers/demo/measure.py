"""The demonstration's own control: accuracy, and a retraining in another process."""

import io
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workers.artifacts import decode_head
from workers.registration import Prepared


def accuracy(head: bytes, features: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
    """Return the share of held-out rows (n, d) whose highest score is their label."""
    weights, _ = decode_head(head)
    scores = features.astype(np.float64) @ weights.astype(np.float64)
    return float((scores.argmax(axis=1) == labels).mean())


def retrained_digest(
    after: bytes, prepared: Prepared, erased: set[str], clients: set[str]
) -> tuple[str, str]:
    """Return the SHA-256 of the unlearned head and of one retrained on the rows that remain.

    The retraining runs in another process, with one thread and another block size.
    """
    gone = [
        record in erased or client in clients
        for record, client in zip(prepared.records, prepared.clients, strict=True)
    ]
    with np.load(io.BytesIO(prepared.npz), allow_pickle=False) as arrays:
        keep = ~np.array(gone)
        features, labels = arrays["features"][keep], arrays["labels"][keep]
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, allow_pickle=False, features=features, labels=labels, head=_bytes(after))
        command = [sys.executable, "-m", "workers.demo.retrain", str(rows)]
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
    return sha256(after).hexdigest(), done.stdout.strip()


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)
