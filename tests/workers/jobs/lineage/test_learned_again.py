"""An attacker has a contribution learned a second time, after its rows were erased.

They have copies of its key and its file from before, and delete the tombstones.
"""

from pathlib import Path

import numpy as np
from sqlalchemy import text
from sqlmodel import Session, select

from models import Contribution, Record
from tests.installation import Installation
from tests.small import Caller, pack, rows
from workers.jobs.learn import AGAIN

RECORDS = [f"r{number}" for number in range(100, 104)]


def write(at: Installation, *statements: str) -> None:
    with at.services.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def contribute(at: Installation) -> None:
    client = Caller(at.caller.http, at.caller.token, keyid="client")
    client.register_key(role="client", client="c9")
    arrays = rows(seed=3, count=4, first=100)
    arrays["clients"] = np.array(["c9"] * 4)
    path, kind = "/v1/models/small/contributions", "application/x-npz"
    answer = client.signed("POST", path, pack(arrays), content_type=kind)
    assert answer.status_code == 202, answer.text


def last(at: Installation) -> Contribution:
    with Session(at.services.engine) as session:
        found = session.exec(select(Contribution).where(Contribution.keyid == "client"))
        return found.one()


def held(at: Installation) -> set[str]:
    with Session(at.services.engine) as session:
        return set(session.exec(select(Record.record))) & set(RECORDS)


def test_a_contribution_is_learned_once(ready: Installation) -> None:
    contribute(ready)
    upload = last(ready).upload_id
    file: Path = ready.settings.data_dir / "artifacts" / upload
    copy = file.read_bytes()
    write(ready, f"CREATE TABLE kept AS SELECT * FROM artifacts WHERE id = '{upload}'")
    ready.drain()
    assert held(ready) == set(RECORDS)
    request = ready.caller.erase_records(*RECORDS).json()["id"]
    ready.drain()
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["state"] == "certified"
    assert held(ready) == set()
    file.write_bytes(copy)
    write(
        ready,
        "UPDATE artifacts SET wrapped_key = (SELECT wrapped_key FROM kept), "
        "digest = (SELECT digest FROM kept), shredded_at = NULL, unlinked_at = NULL "
        f"WHERE id = '{upload}'",
        "UPDATE contributions SET state = 'received' WHERE keyid = 'client'",
        "UPDATE jobs SET id = 'other', stage = 'execute', done_at = NULL WHERE contribution_id = "
        "(SELECT id FROM contributions WHERE keyid = 'client')",
        "DELETE FROM tombstones",
    )
    ready.recover()
    ready.drain()
    assert held(ready) == set()
    found = last(ready)
    assert (found.state, found.failure) == ("failed", AGAIN)
    assert not file.exists()
