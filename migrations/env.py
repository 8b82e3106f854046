"""Alembic's environment: runs on the caller's connection, in the caller's transaction.

`migrations.runner` begins that transaction and holds a lock in it, so that all revisions
apply or none do, however many processes start at once.
"""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlmodel import AutoString

import models  # noqa: F401 - registers every table
from models.database.types import METADATA, UTCDateTime


def render_item(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Render the code's own column types as plain ones, since a revision outlives the code."""
    if kind != "type":
        return False
    if isinstance(item, UTCDateTime):
        return "sa.DateTime()"
    if isinstance(item, AutoString):
        return f"sa.String(length={item.length})" if item.length else "sa.String()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_item=render_item,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
