"""The array types every method speaks."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
IntMatrix = NDArray[np.int64]
Codes = NDArray[np.int16]  # quantised features
Labels = NDArray[np.int64]
Head = NDArray[np.float32]
