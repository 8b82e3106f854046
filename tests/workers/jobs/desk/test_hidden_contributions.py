"""An attacker hides rows that wait to be learned, so that a person's lookup finds nothing."""

import json
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from models import Contribution, Model, Record
from tests.installation import Installation
from tests.small import Caller, pack, rows
from tests.workers.jobs.desk.test_cases import opened, outcomes, shown
from tests.workers.jobs.desk.test_people import ANN, EVE, packed, ready, write
from workers.jobs.learn import ANSWERED

HIDDEN = (
    "UPDATE contributions SET state = 'learned' WHERE state = 'received'",
    "UPDATE contributions SET state = 'failed' WHERE state = 'received'",
    "UPDATE contributions SET model_id = (SELECT id FROM models WHERE ref = 'two')",
)


def contribute(at: Installation) -> None:
    """Send rows of a new client, of which Eve's is the first: record r100."""
    client = Caller(at.caller.http, at.caller.token, keyid="client")
    client.register_key(role="client", client="c9")
    arrays: dict[str, Any] = rows(seed=3, count=4, first=100)
    arrays |= {"clients": np.array(["c9"] * 4), "identity_email": packed(EVE, "", "", "")}
    path, kind = "/v1/models/one/contributions", "application/x-npz"
    answer = client.signed("POST", path, pack(arrays), content_type=kind)
    assert answer.status_code == 202, answer.text


def last(at: Installation) -> Contribution:
    with Session(at.services.engine) as session:
        return session.exec(
            select(Contribution).order_by(Contribution.log_index.desc())  # type: ignore[attr-defined]
        ).all()[0]


def is_learned(at: Installation) -> bool:
    with Session(at.services.engine) as session:
        return "r100" in session.exec(select(Record.record)).all()


@pytest.mark.parametrize("statement", HIDDEN)
def test_rows_that_wait_are_not_hidden_by_their_table(
    installation: Installation, statement: str
) -> None:
    ready(installation, "one", "two")
    contribute(installation)
    write(installation, statement)
    answer = opened(installation, EVE, models=["one"])
    assert answer.json()["type"] == "urn:lethe:problem:contribution-pending"


@pytest.mark.parametrize("statement", HIDDEN)
def test_rows_received_before_a_case_was_answered_are_not_learned(
    installation: Installation, statement: str
) -> None:
    ready(installation, "one", "two")
    contribute(installation)
    write(installation, "CREATE TABLE kept AS SELECT * FROM jobs WHERE done_at IS NULL")
    write(installation, "UPDATE jobs SET done_at = created_at WHERE done_at IS NULL")
    write(installation, statement)
    case = opened(installation, EVE, models=["one"]).json()
    assert outcomes(case) == {"one": "nothing found"}
    assert shown(installation, case["ref"], "/summary").status_code == 200
    write(installation, "UPDATE jobs SET done_at = NULL WHERE id IN (SELECT id FROM kept)")
    write(installation, "UPDATE contributions SET state = 'received' WHERE state != 'learned'")
    installation.recover()
    installation.drain()
    assert not is_learned(installation)
    found = last(installation)
    assert (found.state, found.failure) == ("failed", ANSWERED)
    with Session(installation.services.engine) as session:
        assert set(session.exec(select(Model.state))) == {"ready"}


def test_a_part_that_gets_another_request_stops_no_contribution(
    installation: Installation,
) -> None:
    """Its entry is of the same kind as that of a new case, and nobody was looked up."""
    ready(installation, "one")
    body = {"model": "one", "scope": {"level": "sample", "records": ["r0", "r5"]}}
    asked = installation.caller.signed("POST", "/v1/requests", json.dumps(body).encode())
    request = asked.json()["id"]
    case = opened(installation, ANN).json()["ref"]
    contribute(installation)
    gone = installation.caller.signed("DELETE", f"/v1/requests/{request}")
    assert gone.status_code == 200, gone.text
    installation.drain()
    assert is_learned(installation)
    assert outcomes(shown(installation, case).json()) == {"one": "certified"}
    installation.check()
