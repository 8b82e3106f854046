"""Forests whose bytes are a function of their configuration and the set of their rows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.service.context import Services
from lethe import canonical
from models import Model
from workers.families.base import Family
from workers.families.forest import update
from workers.families.recipe.rows import TableBlock
from workers.families.recipe.updated import UpdatedFamily
from workers.jobs.draft import sha256_hex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lethe.estimators.forest.forest import Forest

GUARANTEE = (
    "The forest is, byte for byte, the one that is fitted to the retained records alone: the "
    "judge fitted it anew. Its splits depend on the registered seed, on integer sums over the "
    "retained records, and on bin edges that are registered or computed from retained records "
    "alone, as the parameter bins says. Not tested: copies of the data or of earlier forests "
    "elsewhere, and what was chosen outside with the erased rows at hand (features, registered "
    "edges, parameters)."
)


class ForestFamily(UpdatedFamily["Forest"]):
    """A forest adds and removes rows; the judge refits it."""

    rooms: tuple[str, ...] = (
        "families/forest",
        "families/recipe",
        "lethe/estimators/forest",
    )
    judge_rooms: tuple[str, ...] = ("judge", *rooms)
    method = "forest-exact"
    meaning = GUARANTEE
    # scikit-learn's trees compare float32 with their thresholds: labels would differ at some
    # edges.
    formats: tuple[str, ...] = ("onnx",)

    def fitted(self, model: Model, blocks: Sequence[TableBlock]) -> "Forest":
        """Return the forest of some rows. Raises RefusedError for rows that it cannot learn."""
        return update.fitted(model, blocks)

    def opened(
        self, model: Model, state: bytes, blocks: Sequence[TableBlock], data: str
    ) -> "Forest | None":
        """Return the forest of a sealed state, None if it is not a forest of these rows."""
        return update.opened(model, state, blocks)

    def add(self, model: Model, state: "Forest", blocks: Sequence[TableBlock]) -> "Forest":
        """Return the forest with more rows. Raises RefusedError."""
        update.add(state, model, blocks)
        return state

    def remove(self, state: "Forest", blocks: Sequence[TableBlock]) -> "Forest":
        """Return the forest without some of its rows."""
        update.remove(state, blocks)
        return state

    def serves(self, model: Model, state: "Forest", blocks: Sequence[TableBlock]) -> bool:
        """Return whether these rows lead to the forest's edges."""
        return "bins" not in model.config or update.serves(state, model, blocks)

    def published(self, model: Model, state: "Forest") -> bytes:
        """Return the published file."""
        return state.published().to_bytes()

    def seal(self, state: "Forest", rows: int, data: str) -> bytes:
        """Return the sealed state."""
        return state.seal()

    def parameters(self, model: Model) -> dict[str, str]:
        """Return the options' digest, seed, number of trees, and source of the bins."""
        options = model.config["forest"]
        return {
            "bins": model.config.get("bins", "declared"),
            "forest": sha256_hex(canonical.encode(options)),
            "seed": str(options["seed"]),
            "trees": str(options["trees"]),
        }

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[np.float64]",
    ) -> "NDArray[Any] | None":
        """Return class indices, or numbers. Raises RefusedError."""
        from workers.registration.forest import predicted

        self.check_here()
        step = None if model.classes else float.fromhex(model.config["forest"]["step"])
        return predicted(file, features, step)

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return a version's file as ONNX. Raises RefusedError."""
        from workers.families.forest import export

        step = None if classes else float.fromhex(config["forest"]["step"])
        return export.export(artifact, classes, step)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of edges and options."""
        return {"forest": sha256_hex(canonical.encode(model.config))}


FAMILY: Family = ForestFamily()
