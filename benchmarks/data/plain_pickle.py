"""Pickles that hold only numbers, text, lists, dictionaries and arrays of bytes.

Unpickling runs whatever the file names. Here the file can name five things, and each is
replaced by a few lines of this module: no code of NumPy or of anything else is called with
what the file says. The unpickler is the one written in Python: that in C reserves memory
by numbers in the file.
"""

import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from workers.errors import DatasetError

DEEPEST = 8  # lists in lists; a CIFAR file has 2


def read_pickle(path: Path) -> Any:
    """Return the object in a file; text from Python 2 comes as bytes, arrays as uint8.

    Raises DatasetError for a file that is missing, cut, or names anything else.
    """
    try:
        with path.open("rb") as file:
            return _finished(_Plain(file).load())
    except DatasetError:
        raise
    except RecursionError:
        raise DatasetError("the pickle is nested too deeply") from None
    except (
        pickle.UnpicklingError, OSError, EOFError, ValueError, TypeError, KeyError,
        IndexError, AttributeError, OverflowError, MemoryError, AssertionError,
    ):  # fmt: skip
        # The unpickler raises whatever a malformed stream leads to.
        raise DatasetError("the file is no readable pickle: fetch it again") from None


class _Dtype:
    """Stands for numpy.dtype: one byte without sign, or refused."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in ("u1", b"u1", "|u1", b"|u1"):
            raise DatasetError("the pickle holds an array of another type than bytes")

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment: a byte has neither


class _Array:
    """Stands for numpy.ndarray: filled by its state, checked when it is used."""

    def __init__(self) -> None:
        self.values: NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, column_major, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise DatasetError("the pickle holds an array of another type than bytes")
        if not all(type(side) is int and side >= 0 for side in shape):
            raise DatasetError("the pickle holds an array without a shape")
        values = np.frombuffer(data, np.uint8)
        self.values = values.reshape(shape, order="F" if column_major else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _encode(text: Any, encoding: Any) -> bytes:
    """Python 3 writes bytes of protocol 2 as text to be encoded."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise DatasetError("the pickle wants an encoding that no array needs")
    return text.encode("latin-1")


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Plain(pickle._Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="bytes", fix_imports=False)

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name. Raises DatasetError for any but the five."""
        try:
            return _NAMES[module, name]
        except (KeyError, TypeError):
            raise DatasetError("the pickle wants to run code: it is not opened") from None


def _finished(value: Any, depth: int = 0, done: dict[int, Any] | None = None) -> Any:
    """Return the object with its arrays in place of what stood for them.

    `done` keeps a list that is referred to a thousand times from being copied as often.
    """
    done = {} if done is None else done
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if depth > DEEPEST:
        raise DatasetError("the pickle is nested too deeply")
    if id(value) in done:
        return done[id(value)]
    found: Any
    if isinstance(value, _Array):
        found = value.values
        if found is None:
            raise DatasetError("the pickle holds an array without values")
    elif isinstance(value, dict):
        found = {key: _finished(part, depth + 1, done) for key, part in value.items()}
    elif isinstance(value, list | tuple):
        found = [_finished(part, depth + 1, done) for part in value]
    else:
        raise DatasetError("the pickle holds something else than numbers, text and arrays")
    done[id(value)] = found
    return found
