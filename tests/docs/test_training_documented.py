"""The table of a training's members in docs/register-networks.md is the schema's, defaults included."""

import re
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from app.schemas.families.networks import Training
from benchmarks.data import formats as published
from tests.docs.markdown import read
from workers.cli import network_data
from workers.registration.network_source import FORMATS


def members(wire: type[BaseModel], before: str = "") -> dict[str, Any]:
    """Return the default of each member, those of objects by dotted names."""
    found: dict[str, Any] = {}
    for name, field in wire.model_fields.items():
        if isinstance(field.default, BaseModel):
            found |= members(type(field.default), f"{before}{name}.")
        else:
            found[before + name] = field.default
    return found


def documented(heading: str) -> list[list[str]]:
    """Return the cells of the rows of a section's table."""
    section = re.search(rf"(?ms)^## {heading}$(.*?)^##", read("docs/register-networks.md"))
    assert section is not None
    rows = re.findall(r"(?m)^\| (`.*) \|$", section[1])
    return [row.split(" | ") for row in rows if not row.startswith("`--format`")]


def test_every_member_of_a_training_is_documented_with_its_default() -> None:
    said: dict[str, str] = {}
    for names, default, _ in documented("Training parameters"):
        values = default.split(", ") if ", " in names else [default]
        for name, value in zip(re.findall(r"`([^`]+)`", names), values, strict=True):
            said[name] = re.split("[:;]", value)[0].strip("`")
    known = members(Training)
    assert set(said) == set(known)
    assert known.pop("rounds") is PydanticUndefined
    for name, default in known.items():
        number = isinstance(default, int | float)
        assert (float(said[name]) if number else said[name]) == default, name


def test_every_format_is_documented() -> None:
    said = [row[0].strip("`") for row in documented("Data formats")]
    assert said == ["npz", "npz", "table", "masks", *published.FORMATS, "sentiment140"]
    assert set(said[:4]) == set(FORMATS)
    assert network_data.FORMATS == FORMATS
