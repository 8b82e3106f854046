"""What others append to the log while a stage reads its tables holds nothing up."""

from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.reconcile.inputs import is_withdrawn
from app.service.desk import decisions
from app.service.models import registry
from models import Contribution, Model
from tests.installation import Installation, shown, state
from tests.small import MODEL, Caller, pack, rows
from workers.jobs import certify, learn, verify
from workers.lineage.logged import open_received

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("stage", [verify, certify], ids=["verify", "certify"])
def test_a_note_on_a_request_that_is_read_at_that_moment_stops_nothing(
    ready: Installation, stage: Any, monkeypatch: Patch
) -> None:
    """The stage's snapshot does not have the row of the note, whose entry is signed by then."""
    request = str(ready.caller.erase_records("r1").json()["id"])
    honest, noted = stage.load_job, list[str]()

    def noted_meanwhile(services: Any, session: Session, lease: Any) -> Any:
        found = honest(services, session, lease)  # the snapshot begins
        if not noted:
            noted.append(shown(ready, request)["ref"])
            decisions.note(ready.services, noted[0], "anna", "asked by telephone")
        return found

    monkeypatch.setattr(stage, "load_job", noted_meanwhile)
    ready.drain()
    assert noted
    assert state(ready, request) == "certified", shown(ready, request)["reason"]
    with Session(ready.services.engine) as session:
        assert session.exec(select(Model)).one().state == "ready"
    ready.check()


def test_an_entry_that_is_signed_while_an_upload_is_opened_keeps_its_rows_from_no_model(
    ready: Installation, monkeypatch: Patch
) -> None:
    """A large upload takes seconds to open, and a busy log gets entries in each of them."""
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c9")
    arrays = rows(seed=3, count=4, first=100)
    arrays["clients"] = np.array(["c9"] * 4)
    path = f"/v1/models/{MODEL}/contributions"
    sent = client.signed("POST", path, pack(arrays), content_type="application/x-npz")
    assert sent.status_code == 202, sent.text
    honest, received = open_received, list[int]()

    def received_meanwhile(*given: Any) -> Any:
        found = honest(*given)
        received.append(ready.caller.erase_records("r1").status_code)
        return found

    monkeypatch.setattr(learn, "open_received", received_meanwhile)
    ready.drain()
    with Session(ready.services.engine) as session:
        row = session.exec(select(Contribution).where(Contribution.keyid == "client")).one()
    assert (row.state, received) == ("learned", [202])


@pytest.mark.parametrize("what", ["artifact", "signature"])
def test_a_current_version_that_is_replaced_while_it_is_read_is_the_next_one(
    ready: Installation, what: str, monkeypatch: Patch
) -> None:
    honest, replaced = is_withdrawn, list[str]()

    def replaced_meanwhile(ledger: Ledger, model: Model, number: int) -> bool:
        if not replaced:
            replaced.append(str(ready.caller.erase_records("r1").json()["id"]))
            ready.drain()
        return honest(ledger, model, number)

    monkeypatch.setattr(registry, "is_withdrawn", replaced_meanwhile)
    answer = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions/current/{what}")
    assert answer.status_code == 200, answer.text
    assert state(ready, replaced[0]) == "certified"
    by_number = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions/1/{what}")
    assert by_number.status_code == 410
