"""The sealed state of a model of sums: its configuration, its rows' digest, and the sums."""

from dataclasses import asdict
from typing import Any

import numpy as np

from lethe.estimators import container
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.sums.bayes import BayesSums
from lethe.estimators.sums.config import RIDGE, SumsConfig
from lethe.estimators.sums.ridge import RidgeSums

Sums = RidgeSums | BayesSums
KIND = "sealed-sums"


def of_nothing(config: SumsConfig) -> Sums:
    """Return the sums over no rows."""
    return _kind(config).of_nothing(config)


def seal(sums: Sums, data: str, rows: int) -> bytes:
    """Return the file of sums; data: the digest of their rows; rows: their number.

    The order in which rows were added leaves no trace in it.
    """
    header = {"kind": KIND, "config": _spelled(sums.config), "data": data, "rows": rows}
    return container.pack(header, sums.arrays)


def open_sums(file: bytes, config: SumsConfig, data: str, rows: int) -> Sums:
    """Return the sums of a sealed state.

    Raises EstimatorInputError: it is not such a file, or it is of another model or of other
    rows.
    """
    header, arrays = container.unpack(file, KIND)
    expected = {"kind": KIND, "config": _spelled(config), "data": data, "rows": rows}
    try:
        if header != expected or any(one.dtype != np.int64 for one in arrays):
            raise ValueError("of something else")
        return _kind(config).read(config, arrays)
    except (TypeError, ValueError):
        raise EstimatorInputError(
            "these are not the sums of this model: read the state that was saved with it"
        ) from None


def _kind(config: SumsConfig) -> type[RidgeSums] | type[BayesSums]:
    return RidgeSums if config.kind in RIDGE else BayesSums


def _spelled(config: SumsConfig) -> dict[str, Any]:
    """Return a configuration in JSON, with exact numbers."""
    return {
        name: value.hex() if isinstance(value, float) else value
        for name, value in asdict(config).items()
    }
