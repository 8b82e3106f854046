"""The array types of all methods."""

import tokenize
import zipfile
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError

Matrix = NDArray[np.float64]
IntMatrix = NDArray[np.int64]
Codes = NDArray[np.int16]  # quantised features
Labels = NDArray[np.int64]
Head = NDArray[np.float32]

# What `numpy.load`, and reading a member of its result, raise for bytes that are not an .npz. A
# member that is not a numpy array comes back as bytes; a file with a single array comes back
# without members.
UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, SyntaxError, MemoryError, NotImplementedError,
    OverflowError, RuntimeError, AttributeError, TypeError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Quantised training rows: codes (m, d) int16 and one int64 class label per row, (m,).

    Raises RefusedError for any other shape or dtype. A row is its position, not its
    content: duplicates count as often as they occur.
    """

    codes: Codes
    labels: Labels

    def __post_init__(self) -> None:
        if self.codes.dtype != np.int16 or self.codes.ndim != 2:
            raise RefusedError("codes must be an int16 matrix: quantise the features first")
        if self.labels.dtype != np.int64 or self.labels.shape != (len(self.codes),):
            raise RefusedError("labels must be int64, exactly one for each row of codes")

    def __len__(self) -> int:
        return len(self.codes)
