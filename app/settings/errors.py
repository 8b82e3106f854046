"""The refusal of a configuration, in words that never repeat what was given."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from lethe.errors import LetheError


class SettingsError(LetheError):
    """The environment describes no installation that may run."""

    slug, title = "settings", "The configuration is refused"


def refusal(error: ValidationError, known: Mapping[str, FieldInfo]) -> SettingsError:
    """Return the refusal that names each variable of an error, given the known settings."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    return SettingsError("; ".join(_complaint(dict(item), known) for item in found))


def _complaint(error: dict[str, Any], known: Mapping[str, FieldInfo]) -> str:
    # pydantic's messages of our field types name what is allowed, never what was given. A
    # pattern or a bound alone does not say what for, nor in which unit.
    message = str(error["msg"])
    if error["type"] != "value_error":
        message += "".join(f": {known[name].description}" for name in error["loc"])
    names = [f"LETHE_{name}".upper() for name in error["loc"]]
    return ": ".join([*names, message.removeprefix("Value error, ")])
