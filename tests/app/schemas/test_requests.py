"""What the base install repeats of the schemas, because it has no app."""

from typing import get_args

from app.schemas.requests import State
from lethe.cli.options import STATES


def test_the_command_line_knows_every_state() -> None:
    assert get_args(State) == STATES
