"""Frozen random features φ(x) = ReLU(scale·x R + b): width for a linear head, no training.

Source: random projection with a nonlinearity before a ridge head, as in RanPAC (McDonnell et
al., NeurIPS 2023, section 3). R and b come from a published seed, so anyone can rebuild the
extractor, and it contains no training data.
"""

from dataclasses import dataclass, field

import numpy as np

from workers.arrays import Matrix
from workers.data.extractors.base import (
    Features,
    Inputs,
    Kind,
    Parameters,
    check_inputs,
    digest_of,
)
from workers.errors import RefusedError


@dataclass(frozen=True, slots=True, eq=False)
class RandomRelu:
    """inputs columns in, outputs columns out; scale brings the inputs to about unit range.

    Features are extracted once and then quantised: the last bits of the product may differ
    between machines, and nothing after the quantiser depends on them.
    """

    inputs: int
    outputs: int
    seed: int
    scale: float = 1.0
    id: str = "random-relu"
    kind: Kind = "features"
    projection: Matrix = field(init=False, repr=False)
    shift: Matrix = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.outputs < 1 or self.seed < 0:
            raise RefusedError("random features need at least one column and a seed >= 0")
        if not 0 < self.scale < float("inf"):
            raise RefusedError("the scale must be a positive number")
        # PCG64 named: default_rng may become another generator in a later NumPy.
        rng = np.random.Generator(np.random.PCG64(self.seed))
        projection = rng.standard_normal((self.inputs, self.outputs))
        object.__setattr__(self, "projection", projection / np.sqrt(self.inputs))
        object.__setattr__(self, "shift", rng.uniform(-1.0, 1.0, self.outputs))

    @property
    def parameters(self) -> Parameters:
        """The shape, the seed and the scale."""
        return {
            "inputs": str(self.inputs),
            "outputs": str(self.outputs),
            "scale": str(float(self.scale)),
            "seed": str(self.seed),
        }

    @property
    def digest(self) -> str:
        """Hex SHA-256 over name, parameters and weights."""
        return digest_of(self.id, self.parameters, self.projection, self.shift)

    def extract(self, inputs: Inputs) -> Features:
        """Return features (n, outputs) float64, all >= 0. Raises as `check_inputs`."""
        check_inputs(inputs, self.inputs)
        scaled = inputs.astype(np.float64) * self.scale
        return np.maximum(scaled @ self.projection + self.shift, 0.0)
