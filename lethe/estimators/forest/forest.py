"""A forest whose bytes are a function of its configuration and the set of its rows.

    forest = Forest(config); forest.add(ids, features, targets); forest.remove(ids)

Whatever the history of added and removed rows, `published` and `seal` have the bytes of a
forest fitted to the current rows. A split is the best of candidates that depend only on the
node's path and on the splits above it, by integer sums, whose order does not matter. If a row
changes which candidate is best, the subtree is rebuilt from its rows. Each tree has all rows: a
bootstrap would depend on their number and order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.bins import Floats
from lethe.estimators.forest.draws import tree_key
from lethe.estimators.forest.impurity import MAX_ROWS
from lethe.estimators.forest.published import ForestConfig, PublishedForest, check_targets
from lethe.estimators.forest.sealed import open_trees, seal_trees
from lethe.estimators.forest.tree import NONE, Codes, Int64s, change, empty_tree, unlink
from lethe.estimators.rows import RowStore


class Forest:
    """Rows, and trees with the counts that show when a split is no longer the best.

    The whole object is sealed state; only `published` may be published.
    """

    def __init__(self, config: ForestConfig) -> None:
        """Begin with no rows."""
        self.config = config
        self.store = RowStore(len(config.bins.edges), 1, np.uint8)
        self.shape = config.shape
        keys = [tree_key(config.seed, i) for i in range(config.trees)]
        self.trees = [empty_tree(key, self.shape, 0) for key in keys]
        self.rebuilt = 0  # rows in rebuilt subtrees at the last change, over all trees

    def __len__(self) -> int:
        return len(self.store)

    def add(self, ids: Sequence[str], features: Floats, targets: NDArray[Any]) -> None:
        """Learn rows: features (n, d) float64, targets (n,) classes from 0, or whole steps.

        Raises:
            EstimatorInputError: An id is known or given twice, a feature is NaN or infinite, a
                target is out of its range, or there would be 2^22 rows, at which sums of
                squares no longer fit 64 bits. The forest is then unchanged.
        """
        codes = self.config.bins.codes(features)
        plain = check_targets(targets, self.config.classes)
        if not len(ids) == len(codes) == len(plain) or len(set(ids)) != len(ids):
            raise EstimatorInputError("give an id, a row and a target each, and each id once")
        if len(self) + len(ids) > MAX_ROWS:
            raise EstimatorInputError(
                f"a forest has at most {MAX_ROWS} rows, so that its sums are exact: "
                "divide them among several"
            )
        self._learn(ids, codes, plain)

    def with_classes(self, config: ForestConfig, numbers: NDArray[Any]) -> "Forest":
        """Return the forest of the same rows with other numbers for their classes.

        config: must have as many classes as there are new numbers. numbers (old classes,): the
        new number of each class.
        """
        slots = list(self.store.slots.values())
        found = Forest(config)
        targets = numbers[self.store.targets[slots, 0]]
        found._learn(list(self.store.slots), self.store.values[slots], targets)
        found.store.take_tree(self.store)
        return found

    def _learn(self, ids: Sequence[str], codes: Codes, targets: Int64s) -> None:
        slots = self.store.add(ids, codes, targets[:, None])
        room = len(self.store.values)
        if room > len(self.trees[0].link):
            more = np.full((room - len(self.trees[0].link), 2), NONE, np.int32)
            self.trees = [
                tree._replace(link=np.concatenate([tree.link, more])) for tree in self.trees
            ]
        self._change(slots, 1)

    def remove(self, ids: Sequence[str]) -> None:
        """Unlearn rows; the forest's memory keeps nothing of them.

        Raises EstimatorInputError: an id is unknown or given twice. The forest is then
        unchanged.
        """
        if len(set(ids)) != len(ids):
            raise EstimatorInputError("ids: one is given twice")
        slots = self.store.slots_of(ids)
        for tree in self.trees:
            unlink(tree, slots)
        self._change(slots, -1)
        self.store.remove(ids)

    def published(self) -> PublishedForest:
        """Return the publishable model: it predicts, and holds no record ids and no counts."""
        return PublishedForest.of(self.config, self.trees)

    def seal(self) -> bytes:
        """Return the sealed state: ids and codes of all rows, and the counts of all nodes."""
        return seal_trees(self.config, self.store, self.trees)

    @classmethod
    def open(cls, data: bytes) -> "Forest":
        """Return the forest of a sealed state, without fitting it again.

        Its trees are trusted: only the owner of the forest may have written the file. Raises
        EstimatorInputError: the bytes are not such a file.
        """
        config, ids, codes, targets, trees = open_trees(data)
        found = cls(config)
        found.store.add(ids, codes, targets)
        found.trees = trees
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sealed state, which has no trace of removed rows."""
        return _unpickled, (self.seal(), self.store.class_digests)

    def _change(self, slots: NDArray[np.int32], sign: int) -> None:
        codes, targets = self.store.values, self.store.targets[:, 0]
        self.rebuilt = 0
        for i, tree in enumerate(self.trees):
            self.trees[i], rebuilt = change(
                tree, self.shape, codes, targets, slots.copy(), sign
            )
            self.rebuilt += rebuilt


def _unpickled(data: bytes, class_digests: list[bytes] | None) -> Forest:
    found = Forest.open(data)
    found.store.class_digests = class_digests
    return found
