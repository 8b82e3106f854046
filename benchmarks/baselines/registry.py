"""The methods of this folder by name, beside those that a request may name."""

from collections.abc import Mapping
from typing import Any

from benchmarks.baselines import exact_fun, fats, fed_eraser, pga, sisa
from workers.methods.network import registry
from workers.methods.network.base import Maker, UnlearningMethod

BASELINES: Mapping[str, Maker] = {
    **exact_fun.METHODS,
    **fats.METHODS,
    **fed_eraser.METHODS,
    **pga.METHODS,
    **sisa.METHODS,
}
ALL: Mapping[str, Maker] = {**registry.METHODS, **BASELINES}


def make(method_id: str, settings: Mapping[str, Any] | None = None) -> UnlearningMethod:
    """Return a method of either. Raises RefusedError as the product's `make`."""
    return registry.make(method_id, settings, ALL)
