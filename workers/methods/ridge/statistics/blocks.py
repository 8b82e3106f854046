"""Rows of any block structure as checked float64 blocks, ready for BLAS."""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import csr_array

from workers.arrays import Codes, IntMatrix, Labels, Matrix, Rows
from workers.errors import RefusedError
from workers.methods.ridge.statistics.quantiser import largest_code


def float_blocks(
    blocks: Iterable[Rows], dimension: int, classes: int, bits: int, block_rows: int
) -> Iterator[tuple[Matrix, IntMatrix]]:
    """Yield checked (features float64 (m, d), labels (m,)), m <= block_rows.

    Small blocks are joined. The arrays are overwritten at the next step. Raises RefusedError
    for a wrong width, a code beyond the bits or a foreign label.
    """
    features = np.empty((block_rows, dimension))
    labels = np.empty(block_rows, dtype=np.int64)
    filled = 0
    for rows in blocks:
        _check_width(rows, dimension)
        start = 0
        while start < len(rows):
            end = min(len(rows), start + block_rows - filled)
            part = slice(filled, filled + end - start)
            features[part] = _checked_codes(rows.codes[start:end], bits)
            labels[part] = _checked_labels(rows.labels[start:end], classes)
            filled, start = part.stop, end
            if filled == block_rows:
                yield features, labels
                filled = 0
    if filled:
        yield features[:filled], labels[:filled]


def check_rows(rows: Rows, dimension: int, classes: int, bits: int) -> None:
    """Raise RefusedError for what `float_blocks` refuses."""
    _check_width(rows, dimension)
    if len(rows):
        _checked_codes(rows.codes, bits)
        _checked_labels(rows.labels, classes)


def one_hot_moment(features: Matrix, labels: IntMatrix, classes: int) -> IntMatrix:
    """QᵀY (d, c) of one-hot labels, exact: a sum of at most block_rows codes."""
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(classes + 1))
    picks = csr_array((np.ones(len(labels)), order, ends), shape=(classes, len(labels)))
    moment: IntMatrix = (picks @ features).astype(np.int64).T
    return moment


def _check_width(rows: Rows, dimension: int) -> None:
    if rows.codes.shape[1] != dimension:
        raise RefusedError(
            f"rows have {rows.codes.shape[1]} columns, the model {dimension}: "
            "use the extractor the model was registered with"
        )


def _checked_codes(codes: Codes, bits: int) -> Codes:
    q_max = largest_code(bits)
    if int(codes.max()) > q_max or int(codes.min()) < -q_max:
        raise RefusedError(f"a code exceeds {bits} bits: quantise with this model's steps")
    return codes


def _checked_labels(labels: Labels, classes: int) -> Labels:
    if labels.min() < 0 or labels.max() >= classes:
        raise RefusedError(f"a label lies outside 0..{classes - 1}: check the classes")
    return labels
