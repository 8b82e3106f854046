"""The federated baselines by name: one import for the registry of methods."""

from collections.abc import Callable

from workers.methods.network.base import UnlearningMethod
from workers.methods.network.baselines import (
    exact_fun,
    fats,
    fed_au,
    fed_eraser,
    mode,
    naive_ga,
    no_t,
    pga,
    sisa,
)

METHODS: dict[str, Callable[..., UnlearningMethod]] = {
    **exact_fun.METHODS,
    **fats.METHODS,
    **fed_au.METHODS,
    **fed_eraser.METHODS,
    **mode.METHODS,
    **naive_ga.METHODS,
    **no_t.METHODS,
    **pga.METHODS,
    **sisa.METHODS,
}
