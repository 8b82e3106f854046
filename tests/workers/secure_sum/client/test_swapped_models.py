"""Exchanging two masked models' references, or a job's model, adds no sum."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from app.rounds.steps import CHANGED
from models import ModelVersion
from tests.exchanged import exchange_columns
from tests.installation import Installation
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.secure_sum.client.test_failures import started
from tests.workers.secure_sum.client.test_masked_model import FOUR
from workers.families.masked import rounds
from workers.families.masked.case import load_case

TERMS = ("ref", "config", "classes", "method", "extractor", "tombstone_key")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log does not depend on it."""
    return sqlite_url


def references(at: Installation) -> None:
    exchange_columns(at.services.engine, "models", "1=1", *TERMS)


def the_jobs_model(at: Installation) -> None:
    other = "(SELECT id FROM models WHERE ref = 'other')"
    with at.services.engine.begin() as connection:
        moved = text(f"UPDATE jobs SET model_id = {other} WHERE kind = 'round'")
        assert connection.execute(moved).rowcount == 1


def sent(fresh: Masked) -> str:
    """All of a round's members have sent; a second masked model has learned nothing either."""
    other = json.dumps({**fresh.manifest, "ref": "other", "penalty": 2.0})
    files = {"manifest": (None, other)}
    answer = fresh.installation.caller.operator("POST", "/v1/models", files=files)
    assert answer.status_code == 201, answer.text
    round_id, joining = started(fresh, *FOUR)
    fresh.take(joining)
    assert fresh.view(round_id)["state"] == "summing"
    return round_id


def nothing_added(masked: Masked, round_id: str) -> None:
    shown = masked.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", CHANGED)
    with Session(masked.installation.services.engine) as session:
        assert session.exec(select(ModelVersion)).all() == []


@pytest.mark.parametrize("change", [the_jobs_model, references])
def test_a_sum_is_added_to_the_model_of_its_plan_alone(
    fresh: Masked, change: Callable[[Installation], None]
) -> None:
    round_id = sent(fresh)
    change(fresh.installation)
    fresh.installation.drain()
    nothing_added(fresh, round_id)


@pytest.mark.full
def test_no_sum_is_added_by_terms_that_are_there_for_a_while(
    fresh: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are exchanged while one is compared with the log, and put back after that."""
    installation, round_id = fresh.installation, sent(fresh)

    def late(*arguments: Any) -> Any:
        references(installation)
        return load_case(*arguments)

    def reach(step: str) -> None:
        if step == "execute.leased":
            steps.install(None)
            references(installation)

    monkeypatch.setattr(rounds, "load_case", late)
    steps.install(reach)
    try:
        installation.drain()
    finally:
        steps.install(None)
    nothing_added(fresh, round_id)
