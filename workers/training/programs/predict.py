"""Predictions of a program's ONNX model, by onnxruntime in one thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError
from workers.libraries import require

TYPES: Mapping[str, type[np.floating[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
SHAPES = (
    "to be measured on held-out rows, the ONNX model needs one input of rows, float or double, "
    "and a first output of one integer (the place of its class) or number for each row, or one "
    "score for each class"
)


@dataclass(frozen=True, slots=True, eq=False)
class OnnxModel:
    """A session of onnxruntime over a model with one input of rows."""

    session: Any
    kind: type[np.floating[Any]]

    def predict(self, features: NDArray[np.float64]) -> NDArray[Any]:
        """Return class positions or numbers (n,) for rows (n, columns), or scores' argmax.

        Raises RefusedError for another first output.
        """
        (wanted,) = self.session.get_inputs()
        name = self.session.get_outputs()[0].name
        try:
            found = self.session.run([name], {wanted.name: features.astype(self.kind)})[0]
        except Exception:  # onnxruntime's own classes; their texts may quote rows
            raise RefusedError(
                "onnxruntime cannot run the program's ONNX model on held-out rows: "
                "check that it takes any number of rows"
            ) from None
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
            raise RefusedError(SHAPES)
        if found.ndim == 2 and found.shape[1] > 1:
            found = found.argmax(axis=1)
        if found.size != len(features) or found.ndim not in (1, 2):
            raise RefusedError(SHAPES)
        flat: NDArray[Any] = found.reshape(-1)
        return flat


def decode(file: bytes) -> OnnxModel:
    """Return the model of an ONNX file.

    Raises:
        MissingLibraryError: onnxruntime is not installed.
        RefusedError: It is no ONNX model, or has other inputs.
    """
    library = require("onnxruntime", "export")
    options = library.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = library.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime's own classes
        raise RefusedError(
            "onnxruntime cannot read the program's ONNX model: check it with "
            "onnx.checker, and export for an operator set that this onnxruntime "
            "knows"
        ) from None
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in TYPES:
        raise RefusedError(SHAPES)
    return OnnxModel(session, TYPES[inputs[0].type])
