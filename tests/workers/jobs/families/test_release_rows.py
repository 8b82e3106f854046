"""An attacker writes the table `releases`: other statistics are subtracted, or a whole block."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import text
from sqlmodel import Session, select

from models import Record, Release
from tests.installation import Installation, head, predicate, state
from tests.remote import NPZ, Remote
from tests.small import MODEL
from tests.workers.jobs.families.test_statistics_hazards import drop_for
from tests.workers.jobs.families.test_statistics_model import erase
from workers.secure_sum.local import message_of

OTHER = "other"
UNIT = 2.0**-12  # of a feature: the manifest's exponents


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: these tests do not depend on it."""
    return sqlite_url


@pytest.fixture
def remote(installation: Installation, contributed: Remote) -> Remote:
    return contributed.at(installation)


def write(at: Installation, statement: str, **values: Any) -> None:
    with at.services.engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount


def stored(at: Installation) -> int:
    with Session(at.services.engine) as session:
        return len(session.exec(select(Record.id)).all())


class Other(Remote):
    """The same clients in a second model: their records have the same ids there."""

    def __init__(self, remote: Remote, features: NDArray[np.float32]) -> None:
        self.installation, self.clients = remote.installation, remote.clients
        self.manifest = {**remote.manifest, "ref": OTHER}
        self.rows = replace(remote.rows, features=features)
        form = {"manifest": (None, json.dumps(self.manifest))}
        answer = self.installation.caller.operator("POST", "/v1/models", files=form)
        assert answer.status_code == 201, answer.text
        for client, caller in self.clients.items():
            data = message_of(self.rows, self.owned(client), self.manifest)
            path = f"/v1/models/{OTHER}/contributions"
            sent = caller.signed("POST", path, data, content_type=NPZ)
            assert sent.status_code == 202, sent.text
        self.installation.drain()


def test_the_answer_to_another_release_is_not_subtracted(installation: Installation) -> None:
    """In the other model, two rows of one label are closer, with the same sum.

    So rows can have what remains if the other model's statistics are subtracted here.
    """
    remote = Remote(installation)
    wanted = ["r2", "r17"]
    one, two = (remote.rows.records.index(record) for record in wanted)
    assert remote.rows.labels[one] == remote.rows.labels[two]
    here = np.rint(remote.rows.features / UNIT)
    here[two] += (here[one] - here[two]) % 4
    there, apart = here.copy(), (here[one] - here[two]) / 4
    there[one] -= apart
    there[two] += apart
    remote.rows = replace(remote.rows, features=(here * UNIT).astype(np.float32))
    remote.register()
    remote.contribute_all()
    other = Other(remote, (there * UNIT).astype(np.float32))
    scope = {"level": "sample", "records": wanted}
    request = erase(installation, scope)
    body = json.dumps({"model": OTHER, "scope": scope}).encode()
    assert installation.caller.signed("POST", "/v1/requests", body).status_code == 202
    installation.drain()
    by_model = {question["model"]: question for question in remote.asked("c2")}
    assert sorted(by_model[MODEL]["records"]) == sorted(by_model[OTHER]["records"])
    for ref, clients in ((MODEL, remote), (OTHER, other)):
        question = by_model[ref]["id"]
        assert clients.answer("c2", question, clients.message(wanted)).status_code == 200
    with Session(installation.services.engine) as session:
        answers = {one.id: one for one in session.exec(select(Release))}
        first, second = (answers[by_model[ref]["id"]] for ref in (MODEL, OTHER))
        ids = [(one.upload_id, one.body_digest) for one in (first, second)]
    for release, (upload, digest) in zip((second, first), ids, strict=True):
        write(
            installation,
            "UPDATE releases SET upload_id = :upload, body_digest = :digest WHERE id = :id",
            upload=upload,
            digest=digest,
            id=release.id,
        )
    installation.drain()
    assert state(installation, request) == "awaiting-client"
    (again,) = [one for one in remote.asked("c2") if one["model"] == MODEL]
    assert remote.answer("c2", again["id"], remote.message(wanted)).status_code == 200
    installation.drain()
    assert state(installation, request) == "certified"
    assert head(installation) == remote.head_without(set(wanted))


@pytest.mark.parametrize("change", ["state = 'dropped'", "state = 'answered'"])
def test_a_block_that_nobody_decided_to_drop_is_kept(
    installation: Installation, remote: Remote, change: str
) -> None:
    wanted = remote.owned("c2")[:2]
    request = erase(installation, {"level": "sample", "records": wanted})
    held = stored(installation)
    write(installation, f"UPDATE releases SET {change}")
    write(installation, "UPDATE jobs SET stage = 'execute' WHERE done_at IS NULL")
    write(installation, "UPDATE erasure_requests SET state = 'executing'")
    installation.recover()
    installation.drain()
    assert state(installation, request) == "awaiting-client"
    assert stored(installation) == held
    (question,) = remote.asked("c2")
    assert remote.answer("c2", question["id"], remote.message(wanted)).status_code == 200
    installation.drain()
    assert state(installation, request) == "certified"
    assert stored(installation) == held - 2
    installation.check()


def test_a_decision_drops_no_other_block(installation: Installation, remote: Remote) -> None:
    """The log has it of one block of the request; the table has it of another, too."""
    wanted = [*remote.owned("c2")[:2], *remote.owned("c3")[:2]]
    request = erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c2")
    data = remote.message(remote.owned("c2")[:2])
    assert remote.answer("c2", question["id"], data).status_code == 200
    drop = installation.caller.operator
    (asked,) = remote.asked("c3")
    assert drop("POST", f"/v1/releases/{asked['id']}/drop").status_code == 200
    write(installation, "UPDATE releases SET state = 'dropped', upload_id = NULL")
    installation.drain()
    assert state(installation, request) == "awaiting-client"
    (again,) = remote.asked("c2")
    assert remote.answer("c2", again["id"], data).status_code == 200
    installation.drain()
    assert predicate(installation, request).method.parameters["dropped"] == str(
        len(remote.owned("c3")) - 2
    )
    assert head(installation) == remote.head_without({*wanted, *remote.owned("c3")})


def test_a_decision_that_is_logged_drops_the_block(
    installation: Installation, remote: Remote
) -> None:
    request = erase(installation, {"level": "sample", "records": remote.owned("c2")[:2]})
    drop_for(installation, request)
    assert state(installation, request) == "certified"
    assert head(installation) == remote.head_without(set(remote.owned("c2")))
