"""Families that learn tables and vectors, several at once; erasures from each.

Some are updated (sums, a forest, an index), the others are fitted again to what remains
(a recipe, shards, a program).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from tests.workers.training.programs import small as small_program
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe

ROWS, COLUMNS, GONE = 40, 4, 2  # rows of each model, and how many are erased of it
CLASSES = ["no", "yes"]
VECTORS = "vectors"
RECIPE = {"estimator": "sklearn.naive_bayes.GaussianNB", "seed": 5}
PROGRAM = small_program.PLAIN.replace("NOISE", "0")
COMMON: dict[str, Any] = {"classes": CLASSES, "columns": COLUMNS}


@dataclass(frozen=True, eq=False)
class Several:
    """Models by the name of their family, with what each one's manifest says.

    The first is registered while a fault strikes, the others before it.
    """

    manifests: Mapping[str, Mapping[str, Any]]

    @property
    def refs(self) -> Sequence[str]:
        """Their names, that of the first one first."""
        return tuple(self.manifests)

    def fitted(self, made: Installation) -> None:
        """Have all but the first fitted."""
        _fit_in_this_process()
        for ref in self.refs[1:]:
            self._register(made, ref)
        made.drain()

    def learn_and_erase(self, made: Installation, told: Told) -> None:
        """Register the first, have it fitted, and ask for erasures from each."""
        _fit_in_this_process()
        first = self.refs[0]
        self._register(made, first)
        told("model", first)
        work(made, self.are_ready)
        for ref in self.refs:
            asked(made, told, {"level": "sample", "records": gone(ref)}, ref)
            told("erased", ref)

    def are_ready(self, session: Session) -> bool:
        """Return whether all are fitted."""
        query = select(Model.state).where(col(Model.ref).in_(self.refs))
        return session.exec(query).all() == ["ready"] * len(self.refs)

    def are_certified(self, session: Session) -> bool:
        """Return whether the request to each is certified."""
        states = session.exec(select(ErasureRequest.state)).all()
        return states == ["certified"] * len(self.refs)

    def doubled(self, session: Session, _: Settings) -> list[str]:
        """Return the models that were fitted or erased from more than once."""
        counts = session.exec(
            select(Model.ref, func.count())
            .join(ModelVersion, col(ModelVersion.model_id) == col(Model.id))
            .where(col(Model.ref).in_(self.refs))
            .group_by(Model.ref)
        ).all()
        return [f"{ref} has {number} versions of 2" for ref, number in counts if number > 2]

    def _register(self, made: Installation, ref: str) -> None:
        sent = {"ref": ref, "family": ref, **self.manifests[ref]}
        data = pack(rows(ref))

        def call() -> Response:
            return made.caller.operator(
                "POST",
                "/v1/models",
                files={"data": ("rows.npz", data)},
                data={"manifest": json.dumps(sent)},
            )

        answered(call, 200, 201)


UPDATED = Several(
    {
        "sums": {**COMMON, "sums": {"estimator": "gaussian-nb"}},
        "forest": {
            "classes": CLASSES,
            "edges": [np.linspace(-2, 2, 9).tolist()] * COLUMNS,
            "forest": {"trees": 2, "depth": 3, "group": 2, "thresholds": 2, "seed": 9},
        },
        VECTORS: {"columns": COLUMNS, "vectors": {"index": "flat"}},
    }
)
REFITTED = Several(
    {
        "recipe": {**COMMON, "recipe": RECIPE},
        "shards": {**COMMON, "recipe": RECIPE, "shards": {"count": 2}},
        "script": {**COMMON, "script": small_program.script(PROGRAM)},
    }
)


def gone(ref: str) -> list[str]:
    """Return the records that are erased of a model."""
    return [f"{ref}-{row}" for row in range(GONE)]


def why_kept(session: Session, ref: str) -> str | None:
    """Return what of a model's rows is not as its certificate says; None if all is."""
    model = session.exec(select(Model).where(Model.ref == ref)).one()
    query = select(Record.record).where(Record.model_id == model.id)
    left = set(session.exec(query))
    if left != {f"{ref}-{row}" for row in range(ROWS)} - set(gone(ref)):
        return f"{ref} has {len(left)} rows of the {ROWS} that were sent, less those erased"
    return None


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


def _fit_in_this_process() -> None:
    """Fit recipes without the processes that confine them, which take seconds to start."""

    def fit(recipe: Recipe, table: FitRows, threads: int, _: Limits) -> bytes:
        return fit_here(recipe, table, threads)

    def fit_all(
        recipe: Recipe, tables: Sequence[FitRows], threads: int, _: Limits
    ) -> list[bytes]:
        return [fit_here(recipe, table, threads) for table in tables]

    vars(process).update(fit=fit, fit_all=fit_all)
