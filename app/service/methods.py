"""The unlearning methods a request may name, by the kind of model they work on."""

from lethe.catalogue import METHODS

SKETCHED = "ridge-sketched"  # the only one that takes sketches in place of statistics


def offered(config: dict[str, object]) -> tuple[str, ...]:
    """Return the methods for a model of this configuration."""
    family = config.get("family", "ridge")
    return tuple(one.name for one in METHODS.values() if one.model == family)


def is_network(config: dict[str, object]) -> bool:
    """Return whether a model is deep."""
    return config.get("family") == "network"
