"""The sealed state of a forest as bytes, independent of its history.

Rows are sorted by id, nodes by path, the rows of a leaf by their place among all rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lethe.estimators import container
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.draws import tree_key
from lethe.estimators.forest.published import ForestConfig
from lethe.estimators.forest.tree import (
    BIN,
    CHUNK,
    FEATURE,
    FIRST,
    LEFT,
    NONE,
    RIGHT,
    ROWS,
    Codes,
    Int64s,
    Shape,
    Tree,
    empty_tree,
    layout,
)
from lethe.estimators.rows import RowStore

KIND = "sealed-forest"
_COLUMNS = (ROWS, FEATURE, BIN)


def seal_trees(config: ForestConfig, store: RowStore, trees: Sequence[Tree]) -> bytes:
    """Return the file of a forest's rows and trees."""
    ids = store.sorted_ids()
    slots = store.slots_of(ids)
    place = np.full(len(store.values), NONE, np.int32)
    place[slots] = np.arange(len(slots), dtype=np.int32)
    encoded = [one.encode() for one in ids]
    lengths = np.array([len(one) for one in encoded], np.uint32)
    arrays = [
        *config.edge_arrays(),
        lengths,
        np.frombuffer(b"".join(encoded), np.uint8),
        store.values[slots],
        store.targets[slots],
    ]
    for tree in trees:
        order = layout(tree)
        rows, groups, chunks = _contents(tree, order, place)
        arrays += [
            tree.node[order][:, _COLUMNS],
            tree.total[order],
            groups,
            tree.pair[chunks],
            tree.left[chunks],
            rows,
        ]
    return container.pack({"kind": KIND, **config.header()}, arrays)


def open_trees(data: bytes) -> tuple[ForestConfig, list[str], Codes, Int64s, list[Tree]]:
    """Return configuration, ids, codes, targets and trees of a sealed state.

    Raises EstimatorInputError: the bytes are not such a file.
    """
    header, arrays = container.unpack(data, KIND)
    try:
        config = ForestConfig.read(header, arrays[:2])
        ends = np.cumsum(arrays[2].astype(np.int64)).tolist()
        text = arrays[3].tobytes()
        starts = [0, *ends[:-1]] if ends else []
        ids = [text[start:end].decode() for start, end in zip(starts, ends, strict=True)]
        codes, targets = arrays[4].astype(np.uint8), arrays[5].astype(np.int64)
        rest = arrays[6:]
        if len(rest) != 6 * config.trees:
            raise ValueError("a part is missing")
        trees = [
            _tree(tree_key(config.seed, i), config.shape, len(ids), rest[6 * i : 6 * i + 6])
            for i in range(config.trees)
        ]
    except (IndexError, KeyError, TypeError, ValueError):
        raise EstimatorInputError(
            "this is not the sealed state of a forest: read it again"
        ) from None
    return config, ids, codes, targets, trees


def _tree(
    key: NDArray[np.uint64], shape: Shape, rows: int, parts: Sequence[NDArray[Any]]
) -> Tree:
    columns, total, groups, pair, left, leaf_rows = parts
    nodes, chunks = len(columns), len(pair)
    empty = empty_tree(key, shape, rows)
    tree = Tree(
        key,
        np.full((nodes, empty.node.shape[1]), NONE, np.int32),
        total.astype(np.int64),
        np.full(chunks, NONE, np.int32),
        pair.astype(np.int32).reshape(chunks, *empty.pair.shape[1:]),
        left.astype(np.int64).reshape(chunks, *empty.left.shape[1:]),
        empty.link,
        np.array([nodes, NONE, chunks, NONE], np.int64),
    )
    tree.node[:, _COLUMNS] = columns
    if len(leaf_rows) != rows or int(groups.sum()) != chunks:
        raise ValueError("a row or a chunk is missing")
    _restore(tree, groups.astype(np.int64), leaf_rows.astype(np.int32))
    return tree


@njit(cache=True)
def _contents(tree: Tree, order: Any, place: Any) -> Any:
    """Return rows of leaves, number of chunks of each node, and all chunks, in node order."""
    rows = np.empty(tree.node[0, ROWS], np.int32)
    groups = np.zeros(len(order), np.uint32)
    chunks = np.empty(len(tree.chunk), np.int64)
    count, used = 0, 0
    for i in range(len(order)):
        at = order[i]
        if tree.node[at, FEATURE] == NONE:
            start = count
            row = tree.node[at, FIRST]
            while row != NONE:
                rows[count] = place[row]
                count += 1
                row = tree.link[row, 0]
            rows[start:count].sort()
        chunk = tree.node[at, CHUNK]
        while chunk != NONE:
            groups[i] += 1
            chunks[used] = chunk
            used += 1
            chunk = tree.chunk[chunk]
    return rows, groups, chunks[:used]


@njit(cache=True)
def _restore(tree: Tree, groups: Any, rows: Any) -> None:
    """Set children, chunks and the rows of leaves of nodes that are in order."""
    waiting = np.empty(len(tree.node) + 1, np.int64)
    open_, row, chunk = 0, 0, 0
    for at in range(len(tree.node)):
        if at and tree.node[at - 1, FEATURE] == NONE:
            open_ -= 1
            tree.node[waiting[open_], RIGHT] = at
        if tree.node[at, FEATURE] != NONE:
            tree.node[at, LEFT] = at + 1
            waiting[open_] = at
            open_ += 1
        else:
            before = -2 - at
            for _ in range(tree.node[at, ROWS]):
                own = rows[row]
                tree.link[own, 1] = before
                if before < NONE:
                    tree.node[at, FIRST] = own
                else:
                    tree.link[before, 0] = own
                before = own
                row += 1
        for i in range(groups[at]):
            if i:
                tree.chunk[chunk - 1] = chunk
            else:
                tree.node[at, CHUNK] = chunk
            chunk += 1
