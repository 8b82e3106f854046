"""Forests whose bytes are a function of their configuration and the set of their rows.

If the bins come from rows, those rows have weight 0: the trees learn only the others. Both
kinds are stored, retained and erased alike, since the published file is made from both: the
edges from the former, the leaves from the latter.
"""

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
from workers.updates.draft import sha256_hex

if TYPE_CHECKING:  # numba takes a second to import
    from lethe.estimators.forest.forest import Forest
    from lethe.estimators.forest.published import ForestConfig

GUARANTEE = (
    "The forest is, byte for byte, the one that is fitted to the retained records alone: the "
    "verifier fitted it again. Its splits depend on the registered seed, on integer sums over "
    "the retained records, and on bin edges that are registered or computed from retained "
    "records alone, as the parameter bins says. Not tested: copies of the data or of earlier "
    "forests elsewhere, and what was chosen outside with the erased rows at hand (features, "
    "registered edges, parameters)."
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
        from lethe.estimators.forest.forest import Forest

        return self.add(model, Forest(_config_of(model, blocks)), blocks)

    def opened(
        self, model: Model, state: bytes, blocks: Sequence[TableBlock], data: str
    ) -> "Forest | None":
        """Return the forest of a sealed state, None if it is not a forest of these rows."""
        from lethe.estimators.errors import EstimatorInputError
        from lethe.estimators.forest.forest import Forest

        try:
            forest = Forest.open(state)
        except EstimatorInputError:
            return None
        same = _is_of(forest, model, blocks) and _has_rows(forest, model, blocks)
        return forest if same else None

    def add(self, model: Model, state: "Forest", blocks: Sequence[TableBlock]) -> "Forest":
        """Return the forest with more rows. Raises RefusedError."""
        records, features, targets = _rows(model, blocks)
        with refusing():
            if records:
                state.add(records, features, targets)
        return state

    def remove(self, state: "Forest", blocks: Sequence[TableBlock]) -> "Forest":
        """Return the forest without some of its rows."""
        ids = sorted(record for block in map(_learned, blocks) for record in block.records)
        if ids:
            state.remove(ids)
        return state

    def serves(self, model: Model, state: "Forest", blocks: Sequence[TableBlock]) -> bool:
        """Return whether these rows lead to the forest's edges."""
        return "bins" not in model.config or _is_of(state, model, blocks)

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
        features: NDArray[np.float64],
    ) -> NDArray[Any] | None:
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


def _config_of(model: Model, blocks: Sequence[TableBlock]) -> "ForestConfig":
    """Return everything that determines a model's forest, except the rows that its trees learn.

    blocks: all rows. Raises RefusedError.
    """
    from lethe.estimators.forest.bins import Bins
    from lethe.estimators.forest.published import ForestConfig

    options = dict(model.config["forest"])
    options.pop("step")
    edges = [[float.fromhex(edge) for edge in own] for own in model.config["edges"]]
    with refusing():
        if "bins" in model.config:
            bins = Bins.of_rows(_of_bins(model, blocks), edges, missing=model.config["missing"])
        else:
            bins = Bins.declared(edges, missing=model.config["missing"])
        return ForestConfig(bins=bins, classes=len(model.classes), **options)


def _is_of(forest: "Forest", model: Model, blocks: Sequence[TableBlock]) -> bool:
    """Return whether a forest has the options and the edges that these rows lead to."""
    wanted = _config_of(model, blocks)
    return forest.config.header() == wanted.header() and all(
        map(np.array_equal, forest.config.edge_arrays(), wanted.edge_arrays())
    )


def _learned(block: TableBlock) -> TableBlock:
    return block if block.weights is None else block.only(block.weights > 0)


def _of_bins(model: Model, blocks: Sequence[TableBlock]) -> NDArray[np.float64]:
    """Return the features (n, columns) of the rows that determine the bins."""
    none = np.zeros((0, model.config["columns"]))
    marked = [one.features[one.weights == 0] for one in blocks if one.weights is not None]
    return np.concatenate([none, *marked])


def _has_rows(forest: "Forest", model: Model, blocks: Sequence[TableBlock]) -> bool:
    from lethe.estimators.errors import EstimatorInputError

    records, features, targets = _rows(model, blocks)
    if len(forest) != len(records):
        return False
    try:
        slots = forest.store.slots_of(records)
        codes = forest.config.bins.codes(features)
    except EstimatorInputError:
        return False
    store = forest.store
    return np.array_equal(store.values[slots], codes) and np.array_equal(
        store.targets[slots, 0], targets
    )


def _rows(
    model: Model, blocks: Sequence[TableBlock]
) -> tuple[list[str], NDArray[np.float64], NDArray[np.int64]]:
    """Return ids, features (n, columns) and targets (n,) of the rows that trees learn."""
    parts = list(map(_learned, blocks))
    records = [record for block in parts for record in block.records]
    none = np.zeros((0, model.config["columns"]))
    features = np.concatenate([none, *(block.features for block in parts)])
    labels = np.concatenate([none[:, 0], *(block.labels for block in parts)])
    if not model.classes:
        step = float.fromhex(model.config["forest"]["step"])
        labels = np.rint(np.clip(labels / step, -(2.0**62), 2.0**62))
    return records, features, labels.astype(np.int64)


FAMILY: Family = ForestFamily()
