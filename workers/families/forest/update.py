"""Forests of stored rows.

If the bins come from rows, those rows have weight 0: the trees learn only the others. Both
kinds are stored, retained and erased alike, since the published file is made from both: the
edges from the former, the leaves from the latter.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from models import Model
from workers.families.recipe.rows import TableBlock
from workers.families.recipe.updated import refusing

if TYPE_CHECKING:  # numba takes a second to import
    from lethe.estimators.forest.forest import Forest
    from lethe.estimators.forest.published import ForestConfig


def config_of(model: Model, blocks: Iterable[TableBlock]) -> "ForestConfig":
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


def fitted(model: Model, blocks: Iterable[TableBlock]) -> "Forest":
    """Return the forest of some rows. Raises RefusedError for rows that it cannot learn."""
    from lethe.estimators.forest.forest import Forest

    parts = list(blocks)
    forest = Forest(config_of(model, parts))
    add(forest, model, parts)
    return forest


def opened(model: Model, state: bytes, blocks: Iterable[TableBlock]) -> "Forest | None":
    """Return the forest of a sealed state, None if it is not one of this model and rows."""
    from lethe.estimators.errors import EstimatorInputError
    from lethe.estimators.forest.forest import Forest

    parts = list(blocks)
    try:
        forest = Forest.open(state)
    except EstimatorInputError:
        return None
    same = serves(forest, model, parts) and _has_rows(forest, model, parts)
    return forest if same else None


def serves(forest: "Forest", model: Model, blocks: Iterable[TableBlock]) -> bool:
    """Return whether a forest has the options and the edges that these rows lead to."""
    wanted = config_of(model, blocks)
    return forest.config.header() == wanted.header() and all(
        map(np.array_equal, forest.config.edge_arrays(), wanted.edge_arrays())
    )


def add(forest: "Forest", model: Model, blocks: Iterable[TableBlock]) -> None:
    """Add rows. Raises RefusedError for rows that the forest cannot learn."""
    records, features, targets = _rows(model, blocks)
    with refusing():
        if records:
            forest.add(records, features, targets)


def remove(forest: "Forest", blocks: Iterable[TableBlock]) -> None:
    """Remove those of the rows that the trees have learned."""
    ids = sorted(record for block in map(_learned, blocks) for record in block.records)
    if ids:
        forest.remove(ids)


def _learned(block: TableBlock) -> TableBlock:
    return block if block.weights is None else block.only(block.weights > 0)


def _of_bins(model: Model, blocks: Iterable[TableBlock]) -> NDArray[np.float64]:
    """Return the features (n, columns) of the rows that determine the bins."""
    none = np.zeros((0, model.config["columns"]))
    marked = [one.features[one.weights == 0] for one in blocks if one.weights is not None]
    return np.concatenate([none, *marked])


def _has_rows(forest: "Forest", model: Model, blocks: Iterable[TableBlock]) -> bool:
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
    model: Model, blocks: Iterable[TableBlock]
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
