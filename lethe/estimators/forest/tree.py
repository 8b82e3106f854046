"""One tree as growing arrays, and the operations on its nodes.

A node is a row of `node`. An inner node of at least `kept_from` rows keeps the counts of its
candidates in a list of chunks, one for each group of features that was examined. A smaller one
keeps none: it is rebuilt from its rows when one of them is added or removed. The rows of a leaf
are a doubly linked list over row numbers. The places of nodes, chunks and rows depend on the
tree's history, and are never serialised (`layout`).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lethe.estimators.forest.draws import WORDS, below, block
from lethe.estimators.forest.impurity import best_candidate, is_pure

# Aliases as documentation; compiled code mixes them with plain numbers, which mypy refuses.
Int32s = NDArray[Any]
Int64s = NDArray[Any]
Codes = NDArray[Any]  # uint8
Rows = NDArray[Any]  # int32, row numbers

ROWS, FEATURE, BIN, LEFT, RIGHT, CHUNK, FIRST = range(7)  # columns of `node`
NONE = -1
MAX_DEPTH = 62  # the path to a node, below a leading 1, fits an int64
MAX_CODES = 64
_NODES, _CHUNKS = 0, 2  # in `pool`: how many were ever used, then the first free one


class Shape(NamedTuple):
    """The common parameters of a forest's trees.

    classes: 0 for a sum of targets (regression, two classes). group: features per group.
    thresholds: candidates per feature. widest (features, 2): lowest and highest code of each.
    """

    classes: int
    group: int
    thresholds: int
    depth: int
    least: int
    kept_from: int
    widest: Int32s


class Tree(NamedTuple):
    """The arrays of one tree.

    node (nodes, 7). total (nodes, 2): sums of targets and of their squares, or (nodes,
    classes): counts. chunk (chunks,): the next of the list. pair (chunks, candidates, 2):
    feature and bin. left (chunks, candidates, 2): rows and sum of targets left of it, or
    (chunks, candidates, classes). link (rows, 2): next and previous row of the leaf. pool (4,).
    """

    key: NDArray[np.uint64]
    node: Int32s
    total: Int64s
    chunk: Int32s
    pair: Int32s
    left: Int64s
    link: Int32s
    pool: Int64s


def empty_tree(key: NDArray[np.uint64], shape: Shape, rows: int) -> Tree:
    """Return the tree of no rows, with links for `rows` row numbers."""
    width, candidates = max(2, shape.classes), shape.group * shape.thresholds
    tree = Tree(
        key,
        np.full((16, 7), NONE, np.int32),
        np.zeros((16, width), np.int64),
        np.full(4, NONE, np.int32),
        np.full((4, candidates, 2), NONE, np.int32),
        np.zeros((4, candidates, width), np.int64),
        np.full((rows, 2), NONE, np.int32),
        np.array([1, NONE, 0, NONE], np.int64),
    )
    tree.node[0, ROWS] = 0
    return tree


@njit(cache=True)
def _longer(array: Any, length: int) -> Any:
    out = np.zeros((length, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


@njit(cache=True)
def _with_room(tree: Tree, nodes: int, chunks: int) -> Tree:
    """Return the tree with room for this many more nodes and chunks."""
    if tree.pool[_NODES] + nodes > len(tree.node):
        size = 2 * len(tree.node) + nodes
        tree = Tree(
            tree.key,
            _longer(tree.node, size),
            _longer(tree.total, size),
            tree.chunk,
            tree.pair,
            tree.left,
            tree.link,
            tree.pool,
        )
    if tree.pool[_CHUNKS] + chunks > len(tree.chunk):
        size = 2 * len(tree.chunk) + chunks
        tree = Tree(
            tree.key,
            tree.node,
            tree.total,
            _longer(tree.chunk, size),
            _longer(tree.pair, size),
            _longer(tree.left, size),
            tree.link,
            tree.pool,
        )
    return tree


@njit(cache=True)
def _new_node(tree: Tree) -> int:
    found = tree.pool[_NODES + 1]
    if found != NONE:
        tree.pool[_NODES + 1] = tree.node[found, LEFT]
    else:
        found = tree.pool[_NODES]
        tree.pool[_NODES] += 1
    tree.node[found, :] = NONE
    return found


@njit(cache=True)
def _new_chunk(tree: Tree) -> int:
    found = tree.pool[_CHUNKS + 1]
    if found != NONE:
        tree.pool[_CHUNKS + 1] = tree.chunk[found]
    else:
        found = tree.pool[_CHUNKS]
        tree.pool[_CHUNKS] += 1
    tree.chunk[found] = NONE
    return found


@njit(cache=True)
def _free_chunks(tree: Tree, at: int) -> None:
    """Free a node's counts and overwrite them: erased rows may have contributed to them."""
    chunk = tree.node[at, CHUNK]
    tree.node[at, CHUNK] = NONE
    while chunk != NONE:
        after = tree.chunk[chunk]
        tree.left[chunk] = 0
        tree.chunk[chunk] = tree.pool[_CHUNKS + 1]
        tree.pool[_CHUNKS + 1] = chunk
        chunk = after


@njit(cache=True)
def _link(tree: Tree, leaf: int, row: int) -> None:
    first = tree.node[leaf, FIRST]
    tree.link[row, 0] = first
    tree.link[row, 1] = -2 - leaf  # the first row of a list links back to its leaf
    if first != NONE:
        tree.link[first, 1] = row
    tree.node[leaf, FIRST] = row


@njit(cache=True)
def unlink(tree: Tree, rows: Rows) -> None:
    """Remove rows from the lists of their leaves."""
    for row in rows:
        after, before = tree.link[row, 0], tree.link[row, 1]
        if before >= 0:
            tree.link[before, 0] = after
        else:
            tree.node[-2 - before, FIRST] = after
        if after != NONE:
            tree.link[after, 1] = before
        tree.link[row, :] = NONE


@njit(cache=True)
def take_rows(tree: Tree, top: int, out: Rows, free: bool) -> int:
    """Write the rows below a node to `out`; return their number.

    free: also free the subtree.
    """
    stack = np.empty(MAX_DEPTH + 2, np.int32)
    stack[0], waiting, count = top, 1, 0
    while waiting:
        waiting -= 1
        at = stack[waiting]
        if tree.node[at, FEATURE] == NONE:
            row = tree.node[at, FIRST]
            while row != NONE:
                out[count] = row
                count += 1
                row = tree.link[row, 0]
        else:
            stack[waiting], stack[waiting + 1] = tree.node[at, RIGHT], tree.node[at, LEFT]
            waiting += 2
        if free:
            _free_chunks(tree, at)
            if at != top:
                tree.total[at] = 0
                tree.node[at, :] = 0
                tree.node[at, LEFT] = tree.pool[_NODES + 1]
                tree.pool[_NODES + 1] = at
    return count


@njit(cache=True)
def _ranges(tree: Tree, shape: Shape, path: int, ranges: Int32s) -> None:
    """Write the range of codes that the splits above a path leave to each feature."""
    ranges[:] = shape.widest
    bit = 0
    while path >> (bit + 1):
        bit += 1
    at = 0
    while bit:
        bit -= 1
        feature, threshold = tree.node[at, FEATURE], tree.node[at, BIN]
        if path >> bit & 1:
            ranges[feature, 0] = max(ranges[feature, 0], threshold + 1)
            at = tree.node[at, RIGHT]
        else:
            ranges[feature, 1] = min(ranges[feature, 1], threshold)
            at = tree.node[at, LEFT]


@njit(cache=True)
def _add_targets(targets: Int64s, rows: Rows, sign: int, classes: int, total: Int64s) -> None:
    for row in rows:
        target = targets[row]
        if classes:
            total[target] += sign
        else:
            total[0] += sign * target
            total[1] += sign * target * target


@njit(cache=True)
def _add_counts(
    codes: Codes,
    targets: Int64s,
    rows: Rows,
    sign: int,
    pair: Int32s,
    left: Int64s,
    classes: int,
) -> None:
    """Add rows, `sign` times, to the counts left of the candidates."""
    for row in rows:
        target = targets[row]
        for i in range(len(pair)):
            feature = pair[i, 0]
            if feature == NONE:
                break
            if codes[row, feature] <= pair[i, 1]:
                if classes:
                    left[i, target] += sign
                else:
                    left[i, 0] += sign
                    left[i, 1] += sign * target


@njit(cache=True)
def _count_by_histogram(
    codes: Codes, targets: Int64s, rows: Rows, pair: Int32s, left: Int64s, classes: int
) -> None:
    """Set the counts left of candidates that are ordered by feature, bins ascending."""
    first = np.empty(len(pair) + 1, np.int64)
    features, used = 0, 0
    while used < len(pair) and pair[used, 0] != NONE:
        if used == 0 or pair[used, 0] != pair[used - 1, 0]:
            first[features] = used
            features += 1
        used += 1
    first[features] = used
    width = left.shape[1]
    counts = np.zeros((features, MAX_CODES, width), np.int64)
    for row in rows:
        target = targets[row]
        for f in range(features):
            code = codes[row, pair[first[f], 0]]
            if classes:
                counts[f, code, target] += 1
            else:
                counts[f, code, 0] += 1
                counts[f, code, 1] += target
    below_it = np.empty(width, np.int64)
    for f in range(features):
        below_it[:] = 0
        code = 0
        for i in range(first[f], first[f + 1]):
            while code <= pair[i, 1]:
                below_it += counts[f, code]
                code += 1
            left[i] = below_it


@njit(cache=True)
def _draw_group(
    tree: Tree,
    shape: Shape,
    path: int,
    ranges: Int32s,
    order: Int32s,
    position: int,
    pair: Int32s,
) -> int:
    """Draw the candidates of the next group of features; return the position after them.

    `order` (features,) is the random order of features up to `position`. Features that the
    splits above restrict to a single code are skipped. The range of a feature is cut into equal
    parts, one for each threshold, and one code is drawn from each; a smaller range gives all
    its codes.
    """
    words = np.empty(WORDS, np.uint64)
    blocks = (shape.thresholds + WORDS) // WORDS
    pair[:, :] = NONE
    used, features = 0, 0
    while features < shape.group and position < len(order):
        block(tree.key, path, position * blocks, words)
        other = position + below(words[0], len(order) - position)
        feature, order[other] = order[other], order[position]
        order[position] = feature
        low, splits = ranges[feature, 0], ranges[feature, 1] - ranges[feature, 0]
        features += splits > 0
        for i in range(min(splits, shape.thresholds)):
            if splits <= shape.thresholds:
                step = i
            else:
                if (i + 1) % WORDS == 0:
                    block(tree.key, path, position * blocks + (i + 1) // WORDS, words)
                start = i * splits // shape.thresholds
                end = (i + 1) * splits // shape.thresholds
                step = start + below(words[(i + 1) % WORDS], end - start)
            pair[used, 0], pair[used, 1] = feature, low + step
            used += 1
        position += 1
    return position


@njit(cache=True)
def _used(pair: Int32s) -> int:
    used = 0
    while used < len(pair) and pair[used, 0] != NONE:
        used += 1
    return used


@njit(cache=True)
def _must_be_leaf(shape: Shape, rows: int, total: Int64s, depth: int) -> bool:
    return (
        depth >= shape.depth
        or rows < 2 * shape.least
        or rows < 2
        or is_pure(rows, total, shape.classes)
    )


@njit(cache=True)
def _find_split(
    tree: Tree,
    shape: Shape,
    codes: Codes,
    targets: Int64s,
    at: int,
    rows: Rows,
    path: int,
    keep: bool,
) -> tuple[Tree, int, int]:
    """Return feature and bin of a node's best candidate, NONE if no candidate is allowed.

    Groups of features are examined until one has an allowed candidate. keep: store their
    counts.
    """
    candidates, width = tree.pair.shape[1], tree.left.shape[2]
    ranges = np.empty_like(shape.widest)
    _ranges(tree, shape, path, ranges)
    order = np.arange(len(ranges)).astype(np.int32)
    position, last = 0, NONE
    pair = np.empty((candidates, 2), np.int32)
    left = np.empty((candidates, width), np.int64)
    while position < len(order):
        position = _draw_group(tree, shape, path, ranges, order, position, pair)
        left[:] = 0
        if len(rows) * shape.thresholds <= MAX_CODES * width:
            _add_counts(codes, targets, rows, 1, pair, left, shape.classes)
        else:
            _count_by_histogram(codes, targets, rows, pair, left, shape.classes)
        if keep:
            tree = _with_room(tree, 0, 1)
            chunk = _new_chunk(tree)
            tree.pair[chunk], tree.left[chunk] = pair, left
            if last == NONE:
                tree.node[at, CHUNK] = chunk
            else:
                tree.chunk[last] = chunk
            last = chunk
        best = best_candidate(
            len(rows), tree.total[at], left, _used(pair), shape.least, shape.classes
        )
        if best != NONE:
            return tree, pair[best, 0], pair[best, 1]
    _free_chunks(tree, at)
    return tree, NONE, NONE


@njit(cache=True)
def _partition(codes: Codes, rows: Rows, feature: int, threshold: int) -> int:
    """Move the rows that go left to the front; return their number."""
    low, high = 0, len(rows)
    while low < high:
        row = rows[low]
        if codes[row, feature] <= threshold:
            low += 1
        else:
            high -= 1
            rows[low], rows[high] = rows[high], row
    return low


@njit(cache=True)
def build(
    tree: Tree, shape: Shape, codes: Codes, targets: Int64s, top: int, rows: Rows, path: int
) -> Tree:
    """Build the subtree of a node from its rows, which are reordered; a root has the path 1."""
    waiting = 1
    ats, paths = np.empty(MAX_DEPTH + 2, np.int64), np.empty(MAX_DEPTH + 2, np.int64)
    starts, ends = np.empty(MAX_DEPTH + 2, np.int64), np.empty(MAX_DEPTH + 2, np.int64)
    depths = np.empty(MAX_DEPTH + 2, np.int64)
    ats[0], paths[0], starts[0], ends[0], depths[0] = top, path, 0, len(rows), 0
    while path >> (depths[0] + 1):
        depths[0] += 1
    while waiting:
        waiting -= 1
        at, start, end = ats[waiting], starts[waiting], ends[waiting]
        here, depth = paths[waiting], depths[waiting]
        own = rows[start:end]
        tree = _with_room(tree, 2, 0)
        tree.node[at, :] = NONE
        tree.node[at, ROWS] = len(own)
        tree.total[at] = 0
        _add_targets(targets, own, 1, shape.classes, tree.total[at])
        feature, threshold = NONE, NONE
        if not _must_be_leaf(shape, len(own), tree.total[at], depth):
            keep = len(own) >= shape.kept_from
            tree, feature, threshold = _find_split(
                tree, shape, codes, targets, at, own, here, keep
            )
        if feature == NONE:
            for row in own:
                _link(tree, at, row)
            continue
        middle = start + _partition(codes, own, feature, threshold)
        left, right = _new_node(tree), _new_node(tree)
        tree.node[at, FEATURE], tree.node[at, BIN] = feature, threshold
        tree.node[at, LEFT], tree.node[at, RIGHT] = left, right
        ats[waiting], starts[waiting], ends[waiting] = right, middle, end
        paths[waiting], depths[waiting] = 2 * here + 1, depth + 1
        waiting += 1
        ats[waiting], starts[waiting], ends[waiting] = left, start, middle
        paths[waiting], depths[waiting] = 2 * here, depth + 1
        waiting += 1
    return tree


@njit(cache=True)
def _rebuild(
    tree: Tree, shape: Shape, codes: Codes, targets: Int64s, at: int, come: Rows, path: int
) -> Tree:
    """Rebuild the subtree of a node from its rows and those added to it."""
    rows = np.empty(tree.node[at, ROWS], np.int32)
    count = take_rows(tree, at, rows, True)
    rows[count:] = come
    return build(tree, shape, codes, targets, at, rows, path)


@njit(cache=True)
def _still_best(tree: Tree, shape: Shape, at: int) -> bool:
    """Return whether the kept counts of a node still lead to its split."""
    chunk = tree.node[at, CHUNK]
    while chunk != NONE:
        best = best_candidate(
            tree.node[at, ROWS],
            tree.total[at],
            tree.left[chunk],
            _used(tree.pair[chunk]),
            shape.least,
            shape.classes,
        )
        if best != NONE:
            feature, threshold = tree.pair[chunk, best, 0], tree.pair[chunk, best, 1]
            same = feature == tree.node[at, FEATURE] and threshold == tree.node[at, BIN]
            return same and tree.chunk[chunk] == NONE
        chunk = tree.chunk[chunk]
    return False


@njit(cache=True)
def change(
    tree: Tree, shape: Shape, codes: Codes, targets: Int64s, rows: Rows, sign: int
) -> tuple[Tree, int]:
    """Add rows (sign 1) or remove unlinked rows (-1); `rows` is reordered.

    Returns the tree that `build` gives for the current rows, and the number of rows in rebuilt
    subtrees.
    """
    ats, paths = np.empty(MAX_DEPTH + 2, np.int64), np.empty(MAX_DEPTH + 2, np.int64)
    starts, ends = np.empty(MAX_DEPTH + 2, np.int64), np.empty(MAX_DEPTH + 2, np.int64)
    depths = np.empty(MAX_DEPTH + 2, np.int64)
    ats[0], paths[0], starts[0], ends[0], depths[0] = 0, 1, 0, len(rows), 0
    waiting, rebuilt = 1, 0
    while waiting:
        waiting -= 1
        at, path, depth = ats[waiting], paths[waiting], depths[waiting]
        start, end = starts[waiting], ends[waiting]
        own = rows[start:end]
        come = own if sign > 0 else own[:0]
        tree.node[at, ROWS] += sign * len(own)
        _add_targets(targets, own, sign, shape.classes, tree.total[at])
        leaf = _must_be_leaf(shape, tree.node[at, ROWS], tree.total[at], depth)
        if tree.node[at, FEATURE] == NONE and (leaf or sign < 0):
            # A leaf that loses a row stays a leaf: each reason for being one holds for fewer
            # rows.
            for row in come:
                _link(tree, at, row)
            continue
        chunk = tree.node[at, CHUNK]
        again = leaf or chunk == NONE or tree.node[at, ROWS] < shape.kept_from
        if not again:
            while chunk != NONE:
                _add_counts(
                    codes, targets, own, sign, tree.pair[chunk], tree.left[chunk], shape.classes
                )
                chunk = tree.chunk[chunk]
            again = not _still_best(tree, shape, at)
        if again:
            rebuilt += tree.node[at, ROWS]
            tree = _rebuild(tree, shape, codes, targets, at, come, path)
            continue
        middle = start + _partition(codes, own, tree.node[at, FEATURE], tree.node[at, BIN])
        if middle < end:
            ats[waiting], starts[waiting], ends[waiting] = tree.node[at, RIGHT], middle, end
            paths[waiting], depths[waiting] = 2 * path + 1, depth + 1
            waiting += 1
        if start < middle:
            ats[waiting], starts[waiting], ends[waiting] = tree.node[at, LEFT], start, middle
            paths[waiting], depths[waiting] = 2 * path, depth + 1
            waiting += 1
    return tree, rebuilt


@njit(cache=True)
def layout(tree: Tree) -> Int32s:
    """Return the nodes in the order of their paths: a node, its left part, its right part."""
    out = np.empty(len(tree.node), np.int32)
    stack = np.empty(MAX_DEPTH + 2, np.int32)
    stack[0], waiting, count = 0, 1, 0
    while waiting:
        waiting -= 1
        at = stack[waiting]
        out[count] = at
        count += 1
        if tree.node[at, FEATURE] != NONE:
            stack[waiting], stack[waiting + 1] = tree.node[at, RIGHT], tree.node[at, LEFT]
            waiting += 2
    return out[:count]
