"""A bound key erases only its own rows, whatever happens between request and execution."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from lethe.signing.keys import generate_key
from models import Record, RequesterKey, Subject
from tests import small_network
from tests.installation import Installation, install, state
from tests.remote import Remote
from tests.small import MODEL, Caller, pack, rows
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.test_batch import batching
from workers.secure_sum.local import LocalRows, message_of

NPZ = "application/x-npz"
JANE = {"level": "subject", "subject": "jane"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: these tests do not depend on it."""
    return sqlite_url


@pytest.fixture
def ready(installation: Installation) -> Installation:
    assert installation.caller.register_key().status_code == 201
    assert installation.caller.register_model().status_code == 201
    installation.drain()
    return installation


def caller(installation: Installation, name: str, role: str, **bound: str) -> Caller:
    made = replace(installation.caller, keyid=name, key=generate_key("ed25519"))
    assert made.register_key(role=role, **bound).status_code == 201
    return made


def contribute(
    installation: Installation, client: str, subject: str, first: int, count: int = 3
) -> None:
    """Queue rows of a client with a named subject."""
    feeder = caller(installation, f"feeder-{first}", "client", client=client)
    arrays = rows(seed=first, count=count, first=first)
    arrays["clients"] = np.array([client] * count)
    arrays["subjects"] = np.array([subject] * count)
    path = f"/v1/models/{MODEL}/contributions"
    answer = feeder.signed("POST", path, pack(arrays), content_type=NPZ)
    assert answer.status_code == 202, answer.text


def left(installation: Installation, client: str, subject: str) -> int:
    with Session(installation.services.engine) as session:
        query = (
            select(Record.id)
            .join(Subject)
            .where(Subject.client_tag == client, Subject.subject_tag == subject)
        )
        return len(session.exec(query).all())


def submit(signer: Caller, scope: dict[str, Any], **fields: Any) -> str:
    answer = signer.erase(scope, fields=fields)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_rows_of_another_client_that_come_in_between_stay(ready: Installation) -> None:
    contribute(ready, "c1", "jane", 500)
    ready.drain()
    signer = caller(ready, "only-c1", "requester", client="c1")
    contribute(ready, "c2", "jane", 600)  # accepted, and learned before the erasure
    answer = signer.erase(JANE)
    assert "see its scope" in answer.json()["warnings"][-1]
    again = signer.erase(JANE)
    assert again.json()["type"] == "urn:lethe:problem:already-erased"
    shown = ready.caller.http.get(answer.headers["location"]).json()
    assert shown["scope"] == {**JANE, "client": "c1", "records": None}
    ready.drain()
    assert state(ready, answer.json()["id"]) == "certified"
    assert (left(ready, "c1", "jane"), left(ready, "c2", "jane")) == (0, 3)
    ready.check()


def test_rows_of_another_subject_that_come_in_between_stay(ready: Installation) -> None:
    contribute(ready, "c9", "jane", 500)
    ready.drain()
    signer = caller(ready, "only-jane", "requester", subject="jane")
    contribute(ready, "c9", "bob", 600)
    request = submit(signer, {"level": "client", "client": "c9"})
    ready.drain()
    assert state(ready, request) == "certified"
    assert (left(ready, "c9", "jane"), left(ready, "c9", "bob")) == (0, 3)
    ready.check()


def test_what_a_withdrawn_request_gives_free_is_not_taken(ready: Installation) -> None:
    contribute(ready, "c1", "jane", 500)
    contribute(ready, "c2", "jane", 600)
    ready.drain()
    first = submit(ready.caller, {**JANE, "client": "c2"})
    signer = caller(ready, "only-c1", "requester", client="c1")
    request = submit(signer, JANE)
    assert ready.caller.signed("DELETE", f"/v1/requests/{first}").status_code == 200
    ready.drain()
    assert state(ready, request) == "certified"
    assert (left(ready, "c1", "jane"), left(ready, "c2", "jane")) == (0, 3)


def test_a_key_that_is_unbound_or_revoked_later_changes_no_accepted_request(
    ready: Installation,
) -> None:
    contribute(ready, "c1", "jane", 500)
    contribute(ready, "c2", "jane", 600)
    ready.drain()
    signer = caller(ready, "only-c1", "requester", client="c1")
    request = submit(signer, JANE)
    with Session(ready.services.engine) as session:
        session.get_one(RequesterKey, "only-c1").client = None
        session.commit()
    ready.caller.operator("DELETE", "/v1/keys/only-c1")
    ready.drain()
    assert state(ready, request) == "certified"
    assert (left(ready, "c1", "jane"), left(ready, "c2", "jane")) == (0, 3)


def test_requests_that_are_carried_out_together_keep_to_their_keys(
    settings: Any, ledger: Any
) -> None:
    with install(batching(settings, 2)) as two:
        two.caller.register_key()
        two.caller.register_model()
        two.drain()
        contribute(two, "c1", "jane", 500)
        two.drain()
        signer = caller(two, "only-c1", "requester", client="c1")
        contribute(two, "c2", "jane", 600)
        both = [submit(signer, JANE), submit(two.caller, {"level": "client", "client": "c3"})]
        two.drain()
        assert [state(two, request) for request in both] == ["certified"] * 2
        assert (left(two, "c1", "jane"), left(two, "c2", "jane")) == (0, 3)
        two.check()


def test_statistics_of_another_client_stay_and_nobody_is_asked_for_them(
    installation: Installation,
) -> None:
    remote = Remote(installation)
    remote.register()
    remote.contribute_all()
    signer = caller(installation, "only-c1", "requester", client="c1")
    arrays = rows(seed=9, count=3, first=900)
    foreign = LocalRows(
        arrays["features"],
        arrays["labels"],
        ["c3"] * 3,
        arrays["records"].tolist(),
        ["c1"] * 3,  # c3 claims the subject of client c1
    )
    data = message_of(foreign, arrays["records"].tolist(), remote.manifest)
    assert remote.contribute("c3", data).status_code == 202
    request = submit(signer, {"level": "subject", "subject": "c1"})
    installation.drain()
    assert state(installation, request) == "certified"
    assert remote.asked("c3") == []
    assert (left(installation, "c1", "c1"), left(installation, "c3", "c1")) == (0, 3)


def test_rows_of_another_client_of_a_network_stay(installation: Installation) -> None:
    networks.register(installation)
    signer = caller(installation, "only-c1", "requester", client="c1")
    feeder = caller(installation, "feeder", "client", client="c3")
    more = small_network.rows(seed=1, count=16, first=120)
    more["clients"] = np.full(16, "c3")
    more["subjects"] = np.full(16, "c1")
    path = f"/v1/models/{small_network.MODEL}/contributions"
    assert feeder.signed("POST", path, pack(more), content_type=NPZ).status_code == 202
    scope = {"level": "subject", "subject": "c1"}
    request = submit(signer, scope, model=small_network.MODEL, method="retrain")
    installation.drain()
    assert state(installation, request) == "certified"
    assert (left(installation, "c1", "c1"), left(installation, "c3", "c1")) == (0, 16)
