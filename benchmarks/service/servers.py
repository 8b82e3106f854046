"""Databases for a benchmark, on a server whose commits are synced."""

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url


def created_database(server: str, name: str) -> str:
    """Create a database on a PostgreSQL server; return its URL."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(server).set(database=name).render_as_string(hide_password=False)
