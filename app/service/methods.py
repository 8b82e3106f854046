"""The unlearning methods a request may name, by the kind of model they work on."""

from typing import Any

from lethe.catalogue import METHODS, UNTESTED

SKETCHED = "ridge-sketched"  # the only method that takes sketches in place of statistics


def offered(config: dict[str, object]) -> tuple[str, ...]:
    """Return the methods for a model of this configuration."""
    family = config.get("family", "ridge")
    return tuple(one.name for one in METHODS.values() if one.model == family)


def least_records(config: dict[str, Any], method: str) -> int:
    """Return how many records a request must erase for a result of the method to be certified.

    Each matched pair of the policy's tests has an erased row of its own. 0 if no test decides;
    even with this many records, a test may be inconclusive.
    """
    if not is_network(config) or method in UNTESTED:
        return 0
    return int(config["policy"]["minimum_pairs"])


def is_network(config: dict[str, object]) -> bool:
    """Return whether a model is a network."""
    return config.get("family") == "network"
