"""Changes to a model's row, and their reversal, by an attacker who can write only `models`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session

from app import steps
from app.service.context import Services
from models import Model
from tests.installation import Installation
from workers.jobs import execute, publish
from workers.lineage import chain

Config = dict[str, Any]
Change = Callable[[Services], None]

ACCEPTED = "accepted"  # before any step of the execution


def config_of(services: Services) -> Config:
    with services.engine.connect() as connection:
        found = connection.execute(text("SELECT config FROM models")).scalar_one()
    config: Config = json.loads(found) if isinstance(found, str) else found
    return config


def set_config(services: Services, config: Config) -> None:
    set_column(services, "config", config)


def set_column(services: Services, column: str, value: Any) -> None:
    with services.engine.begin() as connection:
        stored = value if isinstance(value, str) else json.dumps(value)
        connection.execute(text(f"UPDATE models SET {column} = :value"), {"value": stored})


def member(*path: str, value: Any) -> Change:
    """Return a change of one member of the stored configuration."""

    def write(services: Services) -> None:
        config = config_of(services)
        inner = config
        for name in path[:-1]:
            inner = inner[name]
        assert inner[path[-1]] != value
        inner[path[-1]] = value
        set_config(services, config)

    return write


def uncompared(patch: pytest.MonkeyPatch) -> None:
    """Skip execution's comparison with the log: the judge must not depend on it."""

    def row(_: Any, session: Session, model_id: int, *, mends: bool) -> Model:
        return session.get_one(Model, model_id)

    for module in (execute, publish):
        patch.setattr(module, "as_registered", row)
    patch.setattr(chain, "check_logged", lambda *_: None)


@contextmanager
def changing(installation: Installation, at: str, change: Change) -> Iterator[None]:
    """Change the row now, or when a worker first reaches a step."""
    if at == ACCEPTED:
        change(installation.services)
        yield
        return
    done: list[str] = []

    def write(step: str) -> None:
        if step == at and not done:
            done.append(step)
            change(installation.services)

    steps.install(write)
    try:
        yield
    finally:
        steps.install(None)
    assert done
