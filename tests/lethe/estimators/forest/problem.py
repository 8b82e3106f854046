"""Small problems, and a forest in plain Python: fractions, no counts kept, numpy's Philox."""

from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.estimators.forest.bins import Bins
from lethe.estimators.forest.draws import TAG
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import ForestConfig

N, FEATURES = 160, 5


def config(classes: int, **others: Any) -> ForestConfig:
    public = np.random.default_rng(99).normal(size=(80, FEATURES))
    numbers: dict[str, Any] = {
        "trees": 3,
        "depth": 7,
        "least": 2,
        "group": 2,
        "thresholds": 4,
        "seed": 7,
    }
    bins = Bins.of_public_rows(public, missing=True)
    numbers |= {"bins": bins, "classes": classes, "prior": 1}
    return ForestConfig(**(numbers | others))


def rows(classes: int, n: int = N) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    """Rows with duplicates, a constant feature, a coarse one, and missing values."""
    rng = np.random.default_rng(classes)
    features = rng.normal(size=(n, FEATURES))
    features[:, 3] = np.round(features[:, 3])
    features[:, 4] = 0.25
    features[rng.random((n, FEATURES)) < 0.05] = np.nan
    features[n // 2 : n // 2 + n // 8] = features[: n // 8]
    score = np.nan_to_num(features[:, 0] + features[:, 1] * features[:, 2])
    if classes:
        targets = np.digitize(score, np.linspace(-1, 1, classes + 1)[1:-1])
    else:
        targets = np.rint(1000 * score + 100 * rng.normal(size=n)).astype(np.int64)
    return [f"row-{i}" for i in range(n)], features, targets


def fitted(classes: int, some: Any = slice(None), **others: Any) -> Forest:
    ids, features, targets = rows(classes)
    forest = Forest(config(classes, **others))
    chosen = np.arange(N)[some]
    forest.add([ids[i] for i in chosen], features[chosen], targets[chosen])
    return forest


Node = tuple[Any, ...]  # a leaf: rows and targets; else feature, bin, left, right


def plain_trees(forest: Forest) -> list[Node]:
    """Return the trees that a forest should have, fitted without anything of its own code."""
    slots = list(forest.store.slots.values())
    codes = forest.store.values[slots].astype(int)
    targets = forest.store.targets[slots, 0].tolist()
    trees = []
    for i in range(forest.config.trees):
        seed = forest.config.seed.to_bytes(8, "big") + i.to_bytes(8, "big")
        key = np.frombuffer(sha256(TAG + seed).digest()[:16], "<u8")
        ranges = [(0, len(own) + 1) for own in forest.config.bins.edges]
        members = list(range(len(slots)))
        trees.append(_node(forest.config, key, codes, targets, members, 1, ranges))
    return trees


def _node(
    config: ForestConfig,
    key: NDArray[np.uint64],
    codes: NDArray[Any],
    targets: list[int],
    members: list[int],
    path: int,
    ranges: list[tuple[int, int]],
) -> Node:
    own = [targets[i] for i in members]
    stop = path.bit_length() - 1 >= config.depth or len(set(own)) < 2
    order, position = list(range(len(ranges))), 0
    while not stop and position < len(order):
        best: tuple[Fraction, int, int] | None = None
        looked_at = 0
        while looked_at < config.group and position < len(order):
            words = _words(key, path, position, config.thresholds)
            other = position + (words[0] * (len(order) - position) >> 64)
            order[position], order[other] = order[other], order[position]
            feature = order[position]
            low, high = ranges[feature]
            looked_at += high > low
            position += 1
            for threshold in _thresholds(low, high - low, config.thresholds, words[1:]):
                left = [targets[i] for i in members if codes[i, feature] <= threshold]
                right = [targets[i] for i in members if codes[i, feature] > threshold]
                if min(len(left), len(right)) < config.least:
                    continue
                score = _score(left, config.classes) + _score(right, config.classes)
                if best is None or score > best[0]:
                    best = score, feature, threshold
        if best is not None:
            _, feature, threshold = best
            low, high = ranges[feature]
            children = []
            for side, span in enumerate([(low, threshold), (threshold + 1, high)]):
                inside = [i for i in members if span[0] <= codes[i, feature] <= span[1]]
                narrower = [*ranges[:feature], span, *ranges[feature + 1 :]]
                children.append(
                    _node(config, key, codes, targets, inside, 2 * path + side, narrower)
                )
            return feature, threshold, *children
    return len(members), own


def _score(side: list[int], classes: int) -> Fraction:
    """Least variance or Gini impurity: what is left of the sum of squares is constant."""
    if classes:
        squares = sum(side.count(c) ** 2 for c in range(classes))
        return Fraction(squares, len(side))
    return Fraction(sum(side) ** 2, len(side))


def _thresholds(low: int, splits: int, most: int, words: list[int]) -> list[int]:
    if splits <= most:
        return [low + i for i in range(splits)]
    found = []
    for i in range(most):
        start, end = i * splits // most, (i + 1) * splits // most
        found.append(low + start + (words[i] * (end - start) >> 64))
    return found


def _words(key: NDArray[np.uint64], path: int, position: int, thresholds: int) -> list[int]:
    blocks = (thresholds + 4) // 4
    words: list[int] = []
    for i in range(blocks):
        # numpy counts on before the first block
        counter = path + ((position * blocks + i) << 64) - 1
        philox = np.random.Philox(counter=counter, key=int(key[0]) + (int(key[1]) << 64))
        words += philox.random_raw(4).tolist()
    return words


def tree_of(forest: Forest, tree: int) -> Node:
    """Return a tree of a forest in the form of `plain_trees`."""
    arrays = forest.trees[tree]

    def node(at: int) -> Node:
        rows, feature, threshold, left, right, _, row = arrays.node[at].tolist()
        if feature >= 0:
            return feature, threshold, node(left), node(right)
        own = []
        while row >= 0:
            own.append(int(forest.store.targets[row, 0]))
            row = int(arrays.link[row, 0])
        return rows, own

    return node(0)


def in_order(node: Node) -> Node:
    """Return a tree with the targets of each leaf sorted."""
    if len(node) == 2:
        return node[0], sorted(node[1])
    return node[0], node[1], in_order(node[2]), in_order(node[3])
