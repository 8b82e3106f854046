"""How a policy spells what it holds: decimals in quotes, objects of names, and its error."""

import re
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite

from workers.errors import RefusedError

DECIMAL = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,20})?")


class PolicyError(RefusedError):
    """A policy is malformed. The message names the field and the remedy."""

    def __init__(self, name: str, remedy: str) -> None:
        """Say what field, and what would do."""
        super().__init__(f"policy: {name}: {remedy}")
        self.field = name


def mapping(name: str, value: object) -> Mapping[str, object]:
    """Return `value` if it maps names to something. Raises PolicyError."""
    if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
        raise PolicyError(name, "write an object, or an empty one")
    return value


def check_decimal(name: str, value: object, low: float, high: float) -> None:
    """Raise PolicyError unless `value` is a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not isfinite(value):
        raise PolicyError(name, "write a decimal number")
    if not low <= value <= high:
        raise PolicyError(name, f"choose from {low:g} to {high:g}")


def decimal(name: str, value: object) -> float:
    """Return the number that a decimal in quotes is. Raises PolicyError."""
    if not isinstance(value, str) or not DECIMAL.fullmatch(value):
        raise PolicyError(name, 'write a decimal in quotes, such as "0.05"')
    return float(value)


def spelled(value: float) -> str:
    """Return the shortest decimal that is read as `value` again, never with an exponent."""
    text = f"{Decimal(repr(float(value))):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
