"""The demonstration's own control: accuracy, and a retraining in another process."""

import io
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from workers.artifacts import decode_head
from workers.registration.ridge import RidgeRegistration


def accuracy(head: bytes, features: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
    """Return the share of held-out rows (n, d) whose highest score is their label."""
    weights, _ = decode_head(head)
    scores = features.astype(np.float64) @ weights.astype(np.float64)
    return float((scores.argmax(axis=1) == labels).mean())


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of an unlearned head with a retraining: outcome and description."""

    agrees: bool
    lines: tuple[str, ...]


def compare(
    after: bytes,
    certificate: bytes,
    prepared: RidgeRegistration,
    erased: set[str],
    clients: set[str],
) -> Comparison:
    """Compare the unlearned head with one retrained on the rows that remain.

    An exact head must equal the retrained one bit for bit, any other must be no further from it
    (Frobenius norm) than this version's certificate promises.
    """
    digest, distance = _retrain(after, prepared, erased, clients)
    own = sha256(after).hexdigest()
    guarantee = parse_statement(
        parse_bundle(certificate).dsse_envelope.payload
    ).predicate.guarantee
    if guarantee.class_ == "exact":
        lines = (
            f"Unlearned head:          sha256 {own}",
            f"Retrained without them:  sha256 {digest}",
        )
        return Comparison(own == digest, lines)
    bound = float(guarantee.bounds["head"])
    lines = (
        f"Unlearned head:          sha256 {own}",
        f"Distance to retraining:  {distance:.2e}, and certified to be at most {bound:.2e}",
    )
    return Comparison(distance <= bound, lines)


def _retrain(
    after: bytes, prepared: RidgeRegistration, erased: set[str], clients: set[str]
) -> tuple[str, float]:
    """Return SHA-256 of the retrained head, and its distance from `after`.

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
        head = np.frombuffer(after, dtype=np.uint8)
        np.savez(rows, allow_pickle=False, features=features, labels=labels, head=head)
        command = [sys.executable, "-m", "workers.demo.retrain", str(rows)]
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
    digest, distance = done.stdout.split()
    return digest, float(distance)
