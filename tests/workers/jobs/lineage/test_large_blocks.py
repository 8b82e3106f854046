"""Rows of one owner that a database would store, and could not give back, are refused."""

import numpy as np
import pytest
from sqlmodel import Session, col, select

from models import Contribution, FeatureBlock, Record, Subject
from tests.installation import Installation
from tests.small import Caller, pack, rows

COUNT = 4


def contribute(client: Caller, first: int) -> None:
    arrays = rows(seed=first, count=COUNT, first=first)
    arrays["clients"] = np.array(["c9"] * COUNT)
    path, kind = "/v1/models/small/contributions", "application/x-npz"
    answer = client.signed("POST", path, pack(arrays), content_type=kind)
    assert answer.status_code == 202, answer.text


def size(at: Installation) -> int:
    """Return the bytes of the owner's stored rows."""
    with Session(at.services.engine) as session:
        query = select(FeatureBlock).join(Subject, col(Subject.id) == FeatureBlock.subject_id)
        return len(session.exec(query.where(Subject.client_tag == "c9")).one().ciphertext)


@pytest.mark.parametrize("too_large", ["sent", "with-earlier-ones"])
def test_rows_of_an_owner_that_no_database_gives_back_are_refused(
    too_large: str, ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c9")
    contribute(client, 100)
    ready.drain()
    stored = size(ready)
    most = stored - 100 if too_large == "sent" else stored
    monkeypatch.setattr("workers.jobs.learn.MOST_BLOCK", most)
    contribute(client, 200)
    ready.drain()
    with Session(ready.services.engine) as session:
        found = session.exec(select(Contribution).where(Contribution.keyid == "client")).all()
        held = set(session.exec(select(Record.record)))
    states = {one.state: one.failure for one in found}
    assert states.keys() == {"learned", "failed"}
    assert f"more than {most} bytes" in str(states["failed"])
    assert {f"r{100 + place}" for place in range(COUNT)} <= held
    assert f"r{200}" not in held
    assert size(ready) == stored
    ready.check()
