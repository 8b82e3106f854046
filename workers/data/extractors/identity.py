"""No extractor: the inputs are already features (of a foundation model, for example)."""

from dataclasses import dataclass

from workers.data.extractors.base import (
    Features,
    Inputs,
    Kind,
    Parameters,
    check_inputs,
    digest_of,
)
from workers.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Identity:
    """Returns its inputs (n, dimension) unchanged."""

    dimension: int
    id: str = "identity"
    kind: Kind = "features"

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise RefusedError("an extractor needs at least one column")

    @property
    def parameters(self) -> Parameters:
        """The width of the features."""
        return {"dimension": str(self.dimension)}

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the name and the width: there are no weights."""
        return digest_of(self.id, self.parameters)

    def extract(self, inputs: Inputs) -> Features:
        """Return `inputs`. Raises RefusedError as `check_inputs`."""
        check_inputs(inputs, self.dimension)
        return inputs
