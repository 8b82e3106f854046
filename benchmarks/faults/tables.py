"""Families that learn tables and vectors: sums, a forest, an index; erasures from each."""

import json
from typing import Any

import faiss  # noqa: F401 - imported once, before forks
import numpy as np
from httpx2 import Response
from sqlmodel import Session, col, func, select

from app.settings import Settings
from benchmarks.faults.clients import answered, asked
from benchmarks.faults.workload import Told, work
from lethe.estimators.forest import forest  # noqa: F401
from models import ErasureRequest, Model, ModelVersion, Record
from tests.installation import Installation
from tests.small import pack

ROWS, COLUMNS, GONE = 40, 4, 2  # rows of each model, and how many are erased of it
CLASSES = ["no", "yes"]
SUMS, FOREST, VECTORS = "sums", "forest", "vectors"
MANIFESTS: dict[str, dict[str, Any]] = {
    SUMS: {"classes": CLASSES, "columns": COLUMNS, "sums": {"estimator": "gaussian-nb"}},
    FOREST: {
        "classes": CLASSES,
        "edges": [np.linspace(-2, 2, 9).tolist()] * COLUMNS,
        "forest": {"trees": 2, "depth": 3, "group": 2, "thresholds": 2, "seed": 9},
    },
    VECTORS: {"columns": COLUMNS, "vectors": {"index": "flat"}},
}


def gone(ref: str) -> list[str]:
    """Return the records that are erased of a model."""
    return [f"{ref}-{row}" for row in range(GONE)]


def fitted(made: Installation) -> None:
    """Have a forest and an index of vectors fitted."""
    for ref in (FOREST, VECTORS):
        _register(made, ref)
    made.drain()


def learn_and_erase(made: Installation, told: Told) -> None:
    """Register a model of sums, have it fitted, and ask for erasures from all three."""
    _register(made, SUMS)
    told("model", SUMS)
    work(made, are_ready)
    for ref in MANIFESTS:
        asked(made, told, {"level": "sample", "records": gone(ref)}, ref)
        told("erased", ref)


def are_ready(session: Session) -> bool:
    """Return whether all three are fitted."""
    query = select(Model.state).where(col(Model.ref).in_(MANIFESTS))
    return session.exec(query).all() == ["ready"] * len(MANIFESTS)


def are_certified(session: Session) -> bool:
    """Return whether each of the three requests is certified."""
    states = session.exec(select(ErasureRequest.state)).all()
    return states == ["certified"] * len(MANIFESTS)


def why_kept(session: Session, ref: str) -> str | None:
    """Return what of a model's rows is not as its certificate says; None if all is."""
    model = session.exec(select(Model).where(Model.ref == ref)).one()
    query = select(Record.record).where(Record.model_id == model.id)
    left = set(session.exec(query))
    if left != {f"{ref}-{row}" for row in range(ROWS)} - set(gone(ref)):
        return f"{ref} has {len(left)} rows of the {ROWS} that were sent, less those erased"
    return None


def doubled(session: Session, _: Settings) -> list[str]:
    """Return the models that were fitted or erased from more than once."""
    counts = session.exec(
        select(Model.ref, func.count())
        .join(ModelVersion, col(ModelVersion.model_id) == col(Model.id))
        .where(col(Model.ref).in_(MANIFESTS))
        .group_by(Model.ref)
    ).all()
    return [f"{ref} has {number} versions of 2" for ref, number in counts if number > 2]


def _register(made: Installation, ref: str) -> None:
    sent = {"ref": ref, "family": ref, **MANIFESTS[ref]}
    data = pack(rows(ref))

    def call() -> Response:
        return made.caller.operator(
            "POST",
            "/v1/models",
            files={"data": ("rows.npz", data)},
            data={"manifest": json.dumps(sent)},
        )

    answered(call, 200, 201)


def rows(ref: str) -> dict[str, Any]:
    """Return the arrays of a registration."""
    features = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    found: dict[str, Any] = {
        "features": features,
        "clients": np.array([f"c{row % 5}" for row in range(ROWS)]),
        "records": np.array([f"{ref}-{row}" for row in range(ROWS)]),
    }
    if ref != VECTORS:
        found["labels"] = (features[:, 0] > 0).astype(np.int64)
    return found
