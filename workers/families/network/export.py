"""A network for other programs: logits (n, classes) of inputs (n, *shape) float32."""

import io
import logging
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch.export import Dim, ExportedProgram

from workers.libraries import require
from workers.training.networks.weights import decode_weights, with_weights


def to_onnx(program: ExportedProgram) -> bytes:
    """Return a graph from `inputs` to `logits`, for any number of rows."""
    require("onnxscript", "export")
    # torch.onnx warns of torchvision's operators, which no network here has, and of its own
    # calls.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        done = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=["inputs"],
            output_names=["logits"],
        )
    assert done is not None
    data: bytes = done.model_proto.SerializeToString()
    return data


def to_torch(program: ExportedProgram) -> bytes:
    """Return a file that `torch.export.load` reads without Lethe's code."""
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


FORMATS: Mapping[str, Callable[[ExportedProgram], bytes]] = MappingProxyType(
    {"onnx": to_onnx, "torch": to_torch}
)


def export(artifact: bytes, form: str) -> bytes:
    """Return a network's file in another format, one of FORMATS.

    Raises:
        ArtifactError: It is not a network's file.
        MissingLibraryError: The library of the format is not installed.
    """
    network, weights = decode_weights(artifact)
    module = with_weights(network, weights, "cpu").eval()
    example = torch.zeros(2, *network.input_shape)
    rows = {0: Dim("rows", min=1)}
    return FORMATS[form](torch.export.export(module, (example,), dynamic_shapes=(rows,)))
