"""Ridge and naive Bayes from integer sums: an erasure subtracts rows and solves again."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from app.service.context import Services
from lethe import canonical
from models import Model
from workers.errors import refusing
from workers.families.base import Family
from workers.families.recipe.rows import TableBlock
from workers.families.recipe.updated import UpdatedFamily
from workers.families.sums.export import FORMATS, export
from workers.updates.draft import sha256_hex

if TYPE_CHECKING:  # numba takes a second to import
    from lethe.estimators.sums.config import CodedRows, SumsConfig
    from lethe.estimators.sums.sealed import Sums

GUARANTEE = (
    "The model is, byte for byte, the one that is fitted to the retained records alone: the "
    "judge summed and solved it anew. It depends on the registered options and on integer "
    "sums over the retained records. Not tested: copies of the data or of earlier models "
    "elsewhere, and what was chosen outside with the erased rows at hand (features, scales, "
    "weights, parameters)."
)


class SumsFamily(UpdatedFamily["Sums"]):
    """Rows are added to integer sums and subtracted from them; the judge sums them again."""

    rooms: tuple[str, ...] = ("families/recipe", "families/sums", "lethe/estimators/sums")
    judge_rooms: tuple[str, ...] = ("judge", *rooms)
    method = "sums-exact"
    meaning = GUARANTEE
    formats: tuple[str, ...] = tuple(FORMATS)

    def fitted(self, model: Model, blocks: Sequence[TableBlock]) -> "Sums":
        """Return the sums over some rows. Raises RefusedError for rows that it cannot sum."""
        from lethe.estimators.sums.sealed import of_nothing

        return self.add(model, of_nothing(config_of(model)), blocks)

    def opened(
        self, model: Model, state: bytes, blocks: Sequence[TableBlock], data: str
    ) -> "Sums | None":
        """Return the sums of a sealed state, None if they are not of these rows."""
        from lethe.estimators.errors import EstimatorInputError
        from lethe.estimators.sums.sealed import open_sums

        try:
            rows = sum(len(block.records) for block in blocks)
            return open_sums(state, config_of(model), data, rows)
        except EstimatorInputError:
            return None

    def add(self, model: Model, state: "Sums", blocks: Sequence[TableBlock]) -> "Sums":
        """Return the sums with more rows. Raises RefusedError."""
        with refusing():
            found = state.changed(_coded(state.config, blocks), 1)
            found.check_solvable()
        return found

    def remove(self, state: "Sums", blocks: Sequence[TableBlock]) -> "Sums":
        """Return the sums without some of their rows."""
        with refusing():
            return state.changed(_coded(state.config, blocks), -1)

    def published(self, model: Model, state: "Sums") -> bytes:
        """Return the published file. Raises RefusedError."""
        with refusing():
            return state.published([["str", name] for name in model.classes]).to_bytes()

    def seal(self, state: "Sums", rows: int, data: str) -> bytes:
        """Return the sealed state, which names the digest of its rows."""
        from lethe.estimators.sums.sealed import seal

        return seal(state, data, rows)

    def parameters(self, model: Model) -> dict[str, str]:
        """Return the estimator, and the digest of its options."""
        options = model.config["sums"]
        return {
            "estimator": str(options["estimator"]),
            "options": sha256_hex(canonical.encode(options)),
        }

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of the options."""
        return {"sums": sha256_hex(canonical.encode(model.config))}

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: NDArray[np.float64],
    ) -> NDArray[Any] | None:
        """Return class indices, or numbers. Raises RefusedError."""
        from workers.registration.sums import predicted

        self.check_here()
        return predicted(file, features)

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return a version's file in one of `formats`. Raises ArtifactError."""
        return export(artifact, form)


def config_of(model: Model) -> "SumsConfig":
    """Return everything that determines a model, except its rows. Raises RefusedError."""
    from lethe.estimators.sums.config import SumsConfig

    options = model.config["sums"]
    with refusing():
        return SumsConfig(
            kind=options["estimator"],
            columns=model.config["columns"],
            classes=len(model.classes),
            alpha=float.fromhex(options["alpha"]),
            var_smoothing=float.fromhex(options["var_smoothing"]),
            intercept=options["intercept"],
            exponent=options["exponent"],
            target_exponent=options["target_exponent"],
        )


def _coded(config: "SumsConfig", blocks: Sequence[TableBlock]) -> "CodedRows":
    """Return rows as integers; models without weights give each row the weight 1."""
    none = np.zeros((0, config.columns))
    features = np.concatenate([none, *(one.features for one in blocks)])
    kind = np.int64 if config.classes else np.float64
    targets = np.concatenate([np.zeros(0, kind), *(one.labels for one in blocks)])
    weights = [
        np.ones(len(one.records)) if one.weights is None else one.weights for one in blocks
    ]
    return config.coded(features, targets, np.concatenate([np.zeros(0), *weights]))


FAMILY: Family = SumsFamily()
