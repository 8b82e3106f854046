"""The published part of a forest, and its predictions.

Structure, thresholds, and for each leaf the probability of each class or the mean target. The
file holds no number of rows. A probability has a prior and 255 steps, so it does not reveal the
exact counts behind it; for a small leaf it still narrows them down, and the minimum leaf size
`least` bounds that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lethe.estimators import container
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.bins import Bins, Floats
from lethe.estimators.forest.impurity import MAX_ROWS, MAX_TARGET
from lethe.estimators.forest.tree import (
    BIN,
    FEATURE,
    MAX_DEPTH,
    NONE,
    RIGHT,
    ROWS,
    Codes,
    Int64s,
    Shape,
    Tree,
    layout,
)

KIND = "forest"
STEPS = 255  # per unit of probability
_PARTS = ["<u4", "<i2", "|u1", "<u4"]  # types of sizes, feature, bin and right in a file
MAX_CLASSES = 1000
_BOUNDS = {
    "classes": (0, MAX_CLASSES),
    "trees": (1, 100_000),
    "depth": (0, MAX_DEPTH),
    "least": (1, MAX_ROWS),
    "group": (1, 32_767),
    "thresholds": (1, 63),
    "seed": (0, 2**53 - 1),
    "prior": (1, 1000),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ForestConfig:
    """The parameters that, with the rows, determine a forest.

    classes: number of classes, or 0 for regression. trees: number of trees. depth: maximum
    depth of a leaf. least: minimum rows per leaf. group: number of features examined together;
    thresholds: candidates per feature. prior: pseudo-rows added to each leaf, spread evenly
    over the classes. None of these may be chosen using rows that are erased later.

    Raises EstimatorInputError: a number is out of its range.
    """

    bins: Bins
    classes: int
    trees: int
    depth: int
    least: int
    group: int
    thresholds: int
    seed: int
    prior: int

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            if not low <= getattr(self, name) <= high:
                raise EstimatorInputError(f"{name}: give a whole number from {low} to {high}")
        if not self.group <= len(self.bins.edges) <= _BOUNDS["group"][1]:
            raise EstimatorInputError(
                "group: must be at most the number of features, "
                f"{len(self.bins.edges)}, and there may be {_BOUNDS['group'][1]} of them"
            )

    @property
    def shape(self) -> Shape:
        """The common parameters of the trees. Two classes are a sum of targets 0 and 1."""
        classes = self.classes if self.classes > 2 else 0
        # In a smaller node, reading the rows costs less than reading its counts.
        kept_from = max(32, self.group * self.thresholds * max(2, classes) // 4)
        return Shape(
            classes,
            self.group,
            self.thresholds,
            self.depth,
            self.least,
            kept_from,
            self.bins.widest,
        )

    def header(self) -> dict[str, Any]:
        """Return the configuration without its edges as JSON."""
        return {name: getattr(self, name) for name in _BOUNDS} | {"missing": self.bins.missing}

    def edge_arrays(self) -> list[NDArray[Any]]:
        """Return the number of edges of each feature, and all edges."""
        lengths = np.array([len(own) for own in self.bins.edges], np.uint32)
        return [lengths, np.concatenate(self.bins.edges)]

    @classmethod
    def read(cls, header: dict[str, Any], arrays: Sequence[NDArray[Any]]) -> "ForestConfig":
        """Return the configuration with this header and these edges."""
        ends = np.cumsum(arrays[0].astype(np.int64))
        edges = np.split(arrays[1].astype(np.float64), ends[:-1])
        numbers = {name: int(header[name]) for name in _BOUNDS}
        return cls(bins=Bins(tuple(edges), bool(header["missing"])), **numbers)


@dataclass(frozen=True, eq=False)
class PublishedForest:
    """A forest that predicts. The nodes of a tree are in the order of their paths.

    config: the configuration of the fit. sizes (trees,): nodes of each tree. feature, bin
    (nodes,): the split, or -1. right (nodes,): index of the right child in the tree; the left
    child follows its parent. value (leaves, classes) uint8, in steps of a probability, or
    (leaves, 1) int32, in steps of the target.
    """

    config: ForestConfig
    sizes: NDArray[np.uint32]
    feature: NDArray[np.int16]
    bin: NDArray[np.uint8]
    right: NDArray[np.uint32]
    value: NDArray[Any]

    @classmethod
    def of(cls, config: ForestConfig, trees: Sequence[Tree]) -> "PublishedForest":
        """Return the published part of trees."""
        sizes, features, bins, rights, values = [], [], [], [], []
        for tree in trees:
            order = layout(tree)
            feature, bin_, right = _structure(tree, order)
            sizes.append(len(order))
            features.append(feature)
            bins.append(bin_)
            rights.append(right)
            leaves = order[feature == NONE]
            values.append(leaf_values(config, tree.node[leaves, ROWS], tree.total[leaves]))
        return cls(
            config,
            np.array(sizes, np.uint32),
            np.concatenate(features),
            np.concatenate(bins),
            np.concatenate(rights),
            np.concatenate(values),
        )

    def to_bytes(self) -> bytes:
        """Return the file that is published."""
        own: list[NDArray[Any]] = [self.sizes, self.feature, self.bin, self.right, self.value]
        header = {"kind": KIND, **self.config.header()}
        return container.pack(header, [*self.config.edge_arrays(), *own])

    @classmethod
    def from_bytes(cls, data: bytes) -> "PublishedForest":
        """Parse a published file.

        Raises EstimatorInputError: it is not such a file, or its trees are invalid.
        """
        header, arrays = container.unpack(data, KIND)
        try:
            found = cls(ForestConfig.read(header, arrays[:2]), *arrays[2:])
            same = found.to_bytes() == data
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            same = False
        if not same or not found._well_formed():
            raise EstimatorInputError("this is not a forest file: read it again")
        return found

    def _well_formed(self) -> bool:
        parts: list[NDArray[Any]] = [self.sizes, self.feature, self.bin, self.right]
        if [one.dtype.str for one in parts] != _PARTS or any(one.ndim != 1 for one in parts):
            return False  # sums of other types may overflow, and index outside the arrays
        config, nodes = self.config, len(self.feature)
        inner = self.feature != NONE
        features = self.feature[inner]
        wide = self.value.dtype == (np.uint8 if config.classes else np.int32)
        return bool(
            wide
            and len(self.sizes) == config.trees
            and self.sizes.min() >= 1
            and int(self.sizes.sum()) == nodes == len(self.bin) == len(self.right)
            and self.value.shape == (nodes - int(inner.sum()), max(1, config.classes))
            and (features >= 0).all()
            and (features < len(config.bins.edges)).all()
            and _are_trees(self.sizes, self.feature, self.right)
        )

    def sums(self, codes: Codes) -> Int64s:
        """Return the sum over trees of the values (n, classes or 1) of rows of codes."""
        leaf = np.cumsum(self.feature == NONE) - 1
        out = np.zeros((len(codes), self.value.shape[1]), np.int64)
        _sum_values(
            codes, self.sizes, self.feature, self.bin, self.right, leaf, self.value, out
        )
        return out

    def probabilities(self, features: Floats) -> Floats:
        """Return the probability of each class (n, classes) for rows of features.

        A quotient of two integers, so it is the same on every machine. Raises
        EstimatorInputError: as `Bins.codes`.
        """
        sums = self.sums(self.config.bins.codes(features)).astype(np.float64)
        found: Floats = sums / sums.sum(axis=1, keepdims=True)
        return found

    def means(self, features: Floats) -> Floats:
        """Return the mean target (n,), in steps, for rows of features. Raises as above."""
        sums = self.sums(self.config.bins.codes(features))[:, 0]
        found: Floats = sums.astype(np.float64) / self.config.trees
        return found


def leaf_values(config: ForestConfig, rows: NDArray[np.int32], total: Int64s) -> NDArray[Any]:
    """Return the published values of leaves, from their number of rows and their totals.

    (n_c C + prior) / (C (n + prior)) of a class in steps of 1 / 255, never 0; or the mean
    target in whole steps, 0 if there is no row. Halves are rounded up.
    """
    n, classes = rows.astype(np.int64)[:, None], config.classes
    if not classes:
        size = np.maximum(n, 1)
        steps: NDArray[np.int32] = ((2 * total[:, :1] + size) // (2 * size)).astype(np.int32)
        return steps
    if classes > 2:
        counts = total
    else:
        counts = np.concatenate([n - total[:, :1], total[:, :1]], axis=1)[:, :classes]
    over, under = STEPS * (counts * classes + config.prior), classes * (n + config.prior)
    found: NDArray[np.uint8] = np.maximum(1, (2 * over + under) // (2 * under)).astype(np.uint8)
    return found


def check_targets(targets: NDArray[Any], classes: int) -> Int64s:
    """Return targets (n,) as int64.

    Raises EstimatorInputError: one is not a whole number, not a class, or beyond 2^20 steps.
    """
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise EstimatorInputError("targets: give one whole number for each row")
    low, high = (0, classes - 1) if classes else (-MAX_TARGET, MAX_TARGET)
    if len(targets) and not (low <= targets.min() and targets.max() <= high):
        raise EstimatorInputError(f"targets: one is outside {low} to {high}")
    return targets.astype(np.int64)


@njit(cache=True)
def _structure(tree: Tree, order: Any) -> Any:
    """Return feature, bin and right child of the nodes of a tree in this order."""
    place = np.empty(len(tree.node), np.uint32)
    for i in range(len(order)):
        place[order[i]] = i
    feature = np.empty(len(order), np.int16)
    bin_ = np.zeros(len(order), np.uint8)
    right = np.zeros(len(order), np.uint32)
    for i in range(len(order)):
        at = order[i]
        feature[i] = tree.node[at, FEATURE]
        if feature[i] != NONE:
            bin_[i] = tree.node[at, BIN]
            right[i] = place[tree.node[at, RIGHT]]
    return feature, bin_, right


@njit(cache=True)
def _are_trees(sizes: Any, feature: Any, right: Any) -> bool:
    """Return whether each tree is valid: nodes in order, within the maximum depth."""
    ends = np.empty(MAX_DEPTH + 2, np.int64)
    start = 0
    for size in sizes.astype(np.int64):
        # `ends`: where the right part starts, of each ancestor whose left part `i` is in.
        waiting, i = 0, 0
        while i < size:
            if feature[start + i] != NONE:
                after = np.int64(right[start + i])
                bound = ends[waiting - 1] if waiting else size
                if waiting > MAX_DEPTH or not i + 1 < after < bound:
                    return False
                ends[waiting] = after
                waiting += 1
                i += 1
            else:
                i += 1
                if waiting:
                    if ends[waiting - 1] != i:
                        return False
                    waiting -= 1
                elif i != size:
                    return False
        if waiting:
            return False
        start += size
    return True


@njit(cache=True)
def _sum_values(
    codes: Any, sizes: Any, feature: Any, bin_: Any, right: Any, leaf: Any, value: Any, out: Any
) -> None:
    for start in np.cumsum(sizes.astype(np.int64)) - sizes.astype(np.int64):
        for i in range(len(codes)):
            at = start
            while feature[at] != NONE:
                if codes[i, feature[at]] <= bin_[at]:
                    at += 1
                else:
                    at = np.int64(start + right[at])
            for c in range(value.shape[1]):
                out[i, c] += value[leaf[at], c]
