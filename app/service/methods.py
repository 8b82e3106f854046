"""The unlearning methods a request may name, by the kind of model they work on."""

from typing import Final

from lethe.catalogue import NETWORK, RIDGE

SKETCHED = "ridge-sketched"  # the only one that takes sketches in place of statistics
PIXELS: Final = "res-unet"  # the only one whose labels are masks


def offered(config: dict[str, object]) -> tuple[str, ...]:
    """Return the methods for a model of this configuration."""
    return NETWORK if is_network(config) else RIDGE


def is_network(config: dict[str, object]) -> bool:
    """Return whether a model is deep."""
    return config.get("family") == "network"
