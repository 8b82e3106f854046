"""A client's own rows from an .npz on its machine.

inputs (n, *input_shape) float32 · targets (n,) int64, or (n, height, width) for segmentation
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from workers.errors import DatasetError
from workers.training.fedavg.base import ClientData

_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
_DTYPES = {"inputs": np.float32, "targets": np.int64}


def load_rows(path: Path) -> ClientData:
    """Return the rows in a file. Nothing in it is executed: pickled objects are refused.

    Raises DatasetError naming the array at fault, RefusedError as `ClientData`. The message
    names neither the file nor its content, because it leaves this machine.
    """
    tensors = {}
    for name, dtype in _DTYPES.items():
        try:
            with np.load(path, allow_pickle=False) as archive:
                array = archive[name]
        except _UNREADABLE:
            remedy = "save it with numpy.savez, or repair the path of the node"
            raise DatasetError(f"{name}: missing or unreadable; {remedy}") from None
        if array.dtype != dtype:
            raise DatasetError(f"{name}: must be {np.dtype(dtype).name}")
        tensors[name] = torch.from_numpy(array)
    return ClientData(**tensors)
