"""The unlearning methods a request may name, by the kind of model they work on."""

from typing import Final, Literal, get_args

from app.schemas.networks import NetworkMethod

# One family: each keeps the exact statistics, so any of them can follow any other.
RidgeMethod = Literal["ridge-exact", "ridge-woodbury", "acu", "ridge-sketched"]
RIDGE: tuple[str, ...] = get_args(RidgeMethod)
Method = RidgeMethod | NetworkMethod
SKETCHED = "ridge-sketched"  # the only one that takes sketches in place of statistics

# Deep models. Whether a method finds what it needs, the worker knows and says.
NETWORK: tuple[str, ...] = get_args(NetworkMethod)

PIXELS: Final = "res-unet"  # the only one whose labels are masks


def offered(config: dict[str, object]) -> tuple[str, ...]:
    """Return the methods for a model of this configuration."""
    return NETWORK if is_network(config) else RIDGE


def is_network(config: dict[str, object]) -> bool:
    """Return whether a model is deep; those registered before there were any are not."""
    return config.get("family") == "network"
