"""What a revision says instead of dropping or invalidating rows."""

from alembic import op
from sqlalchemy import func, select, table


class CannotCarryError(Exception):
    """The revision cannot carry rows of the database; the text has cause and remedy."""


def count_rows(name: str) -> int:
    """Return how many rows a table has at this revision."""
    counted: int = (
        op.get_bind().execute(select(func.count()).select_from(table(name))).scalar_one()
    )
    return counted
