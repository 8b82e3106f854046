"""Any network that torch can export: one .pt2 archive holds its graph and its weights."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch

from workers.data.extractors.base import (
    ExtractorError,
    Features,
    Inputs,
    Kind,
    Parameters,
    check_inputs,
    digest_of_files,
)
from workers.data.extractors.exported_program import MAX_FILE, ExportedProgram, read_program
from workers.data.extractors.inference import frozen, in_batches

BATCH = 64


@dataclass(frozen=True, slots=True, eq=False)
class TorchModule:
    """Reads matrices whose rows are the program's inputs, flattened; returns float32."""

    program: ExportedProgram
    outputs: int
    digest: str
    id: str = "torch-module"
    kind: Kind = "features"

    @property
    def parameters(self) -> Parameters:
        """The numbers of input and output columns."""
        return _parameters(self.program, self.outputs)

    def extract(self, inputs: Inputs) -> Features:
        """Return features (n, outputs). Raises as `check_inputs`, ExtractorError for NaN."""
        check_inputs(inputs, prod(self.program.shape))
        shaped = inputs.astype(np.float32).reshape(-1, *self.program.shape)
        return in_batches(self.program.run, shaped, BATCH, self.outputs)


def load(path: Path) -> TorchModule:
    """Return the extractor of an archive written by torch.export.save.

    Raises ExtractorError if it cannot be read without executing code, needs too much memory
    (`read_program`), or does not return one float32 vector for each row.
    """
    try:
        if path.stat().st_size > MAX_FILE:
            raise ExtractorError(f"the archive has more than {MAX_FILE} bytes")
        data = path.read_bytes()
    except OSError:
        raise ExtractorError("the archive is missing or unreadable: check its path") from None
    program = read_program(data, BATCH)
    with frozen():
        found = program.run(torch.zeros(BATCH, *program.shape))
    if found.ndim != 2 or len(found) != BATCH or found.dtype != torch.float32:
        raise ExtractorError("the program must give one float32 vector for each row: flatten")
    outputs = int(found.shape[1])
    parameters = _parameters(program, outputs)
    digest = digest_of_files("torch-module", parameters, {"program": data})
    return TorchModule(program, outputs, digest)


def _parameters(program: ExportedProgram, outputs: int) -> Parameters:
    return {"inputs": str(prod(program.shape)), "outputs": str(outputs)}
