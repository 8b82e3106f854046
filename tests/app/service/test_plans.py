"""What is asked all the time reads no row of what is over, however much that is."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from app import metrics
from app.service.queue import head_of_queue
from tests.installation import Installation


def head(ready: Installation) -> None:
    """Ask whose turn it is, as each stage of each job does several times."""
    with ready.services.reading() as session:
        head_of_queue(session, 1)


def scrape(ready: Installation) -> None:
    """Count, as each scrape does."""
    metrics.read(ready.services)


def erase(ready: Installation) -> None:
    """Make a version, whose files no other version may name."""
    ready.caller.erase_records("r1")
    ready.drain()


@pytest.mark.parametrize(
    ("ask", "marks", "indexes"),
    [
        (head, ("FROM jobs", "ORDER BY"), ["ix_jobs_open"]),
        (scrape, ("FROM certificates GROUP BY",), ["ix_certificates_result"]),
        (
            erase,
            ("model_versions.head_id IN",),
            ["ix_model_versions_head_id", "ix_model_versions_state_id"],
        ),
    ],
)
def test_an_index_answers(
    ready: Installation,
    ask: Callable[[Installation], None],
    marks: tuple[str, ...],
    indexes: list[str],
) -> None:
    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        plain = " ".join(statement.split())
        if plain.startswith("SELECT") and all(mark in plain for mark in marks):
            sent.append((statement, parameters))

    engine = ready.services.engine
    event.listen(engine, "before_cursor_execute", note)
    ask(ready)
    event.remove(engine, "before_cursor_execute", note)
    plan = explained(engine, *sent[-1])
    assert [one for one in indexes if one not in plan] == [], plan


def explained(engine: Engine, statement: str, parameters: Any) -> str:
    """Return how the database would read a statement."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        else:  # which would read so small a table whole
            for way in ("seqscan", "sort"):
                connection.execute(text(f"SET LOCAL enable_{way} = off"))
            plan = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        return " ".join(map(str, plan))
