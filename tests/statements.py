"""Compiled SQL that the engines of all tests share.

SQLAlchemy compiles a statement once for each engine, and nearly every test opens two or three
engines: compiling took as long as executing. What a statement is compiled to depends on the
kind of database, and its sealed columns on the master key, which the beginnings share.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.util import LRUCache
from sqlmodel.main import default_registry

import models.database.session
from models.database.types import Sealer, sealer_of

KEPT = 5000  # compiled statements; a test of another key adds some hundred


class SharedStatements(LRUCache[Any, Any]):
    """A cache of compiled statements by kind of database and key instead of by engine."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return what `key`'s statement was compiled to."""
        return super().get(_shared(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_shared(key), value)


_tags: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _shared(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key with the dialect's name and its master key in place of the dialect."""
    dialect: Dialect = key[0]
    sealer = sealer_of(dialect)
    # Unsealed columns can neither be read nor written: that must not be learned from others.
    return key if sealer is None else (dialect.name, _tag(sealer), *key[1:])


def _tag(sealer: Sealer) -> str:
    if sealer not in _tags:
        _tags[sealer] = sealer.tag("tests", "statements")
    return _tags[sealer]


def share_statements() -> None:
    """Let every engine that `models.database.session` makes from now on use one cache."""
    cache = SharedStatements(KEPT)
    for mapper in default_registry.mappers:  # a flush asks these instead of its engine
        mapper._compiled_cache = cache
    create: Callable[..., Engine] = create_engine

    def create_sharing(*arguments: Any, **options: Any) -> Engine:
        return create(*arguments, execution_options={"compiled_cache": cache}, **options)

    models.database.session.create_engine = create_sharing  # type: ignore[attr-defined]
