"""A batch of requests costs each stage a few statements, however many they are."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Certificate
from models.database import bulk
from tests.installation import Installation, install
from tests.small import rows
from workers.jobs import certify, execute, verify

FEW, MANY = 8, 32
# Lists of ids are read in chunks, and a few statements depend on how full a page is.
MOST_MORE = 4
STAGES = {"execute": execute.run, "verify": verify.run, "certify": certify.run}


@contextmanager
def counted(installation: Installation, patch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the statements of the block, by their text; one for many rows counts once."""
    found: Counter[str] = Counter()
    engine = installation.services.engine

    def note(*arguments: Any) -> None:
        found[str(arguments[2])] += 1

    honest = bulk.run

    def run(connection: Any, *statements: bulk.Statement) -> Any:
        found.update(one.text for one in statements)
        return honest(connection, *statements)

    event.listen(engine, "before_cursor_execute", note)
    with patch.context() as within:
        within.setattr(bulk, "run", run)
        yield found
    event.remove(engine, "before_cursor_execute", note)


def stages(
    installation: Installation, records: range, patch: pytest.MonkeyPatch
) -> dict[str, Counter[str]]:
    """Certify a request for each record together; return the statements of each stage."""
    for number in records:
        assert installation.caller.erase_records(f"r{number}").status_code == 202
    job_id, _ = installation.dispatcher.nudges[0]
    found = {}
    for stage, run in STAGES.items():
        with counted(installation, patch) as found[stage]:
            run(installation.services, job_id)
    installation.dispatcher.nudges.clear()
    return found


def test_each_stage_of_a_group_has_as_many_statements_as_of_a_smaller_one(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each record has its own block: one client has a subject for each.
    arrays = rows(count=400)
    arrays["subjects"] = np.array([f"s{number}" for number in range(400)])
    with install(settings) as made:
        made.ready(arrays=arrays)
        few = stages(made, range(FEW), monkeypatch)
        many = stages(made, range(FEW, FEW + MANY), monkeypatch)
        with Session(made.services.engine) as session:
            assert len(session.exec(select(Certificate)).all()) == FEW + MANY
        made.check()
    for stage in STAGES:
        more = (many[stage] - few[stage]).most_common(5)
        assert many[stage].total() - few[stage].total() <= MOST_MORE, (stage, more)
