"""A person asks for their erasure while a masked round has their rows and no sum of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.reconcile.model_events import masked_inputs
from app.service.desk import opening
from app.service.desk.pending import read_rounds
from lethe.identity import digests
from models import LogEntry
from tests.app.api.test_requests import problem
from tests.installation import Installation
from tests.small import MODEL
from tests.workers.jobs.desk.test_people import write
from tests.workers.secure_sum.client.federation import Masked
from workers.data.identities import hashed
from workers.families.masked import end
from workers.families.masked.case import UNLOGGED
from workers.families.masked.end import advance_due
from workers.secure_sum.client.join import Joining

ANN, BOB = "ann@x.org", "bob@x.org"


def case(installation: Installation, email: str, *algorithms: str, **changes: Any) -> Any:
    """Open a case for a person, known by all digests or some."""
    found = digests("email", email)
    person = {name: found[name].hex() for name in algorithms or found}
    body = {"person": {"kind": "email", **person}, "ticket": "T1", **changes}
    return installation.caller.operator("POST", "/v1/cases", json=body)


def outcomes(answer: Any) -> list[str]:
    assert answer.status_code == 201, answer.text
    return [part["outcome"] for part in answer.json()["parts"]]


def refused(answer: Any) -> None:
    problem(answer, 409, "contribution-pending")


def sent(learned: Masked) -> tuple[str, list[Joining]]:
    """Open a round in which c4 has sent rows, the first of them Ann's; return its members."""
    rows = learned.local("c4")
    emails = np.array([ANN, *[""] * (len(rows.records) - 1)])
    rows = replace(rows, identities={"email": hashed("email", emails)})
    opened = learned.open("c0", "c1", "c2", "c4").json()["id"]
    joining = [learned.joining(opened, client) for client in ("c0", "c1", "c2")]
    joining.append(learned.joining(opened, "c4", rows=rows))
    learned.take(joining, 2)
    none = case(learned.installation, ANN, models=[MODEL])
    assert outcomes(none) == ["nothing found"]  # and nothing is here
    learned.take(joining, 1)
    assert learned.view(opened)["state"] == "confirm"
    return opened, joining


def test_rows_of_a_round_are_found_once_they_are_summed(learned: Masked) -> None:
    installation = learned.installation
    round_id, joining = sent(learned)
    size = installation.services.ledger.latest().size
    for algorithms in ((), ("sha256",), ("md5",)):
        refused(case(installation, ANN, *algorithms))
    assert installation.services.ledger.latest().size == size
    assert outcomes(case(installation, BOB)) == ["nothing found"]  # of whom nothing was sent
    learned.take(joining, 2)
    assert learned.view(round_id)["state"] == "summing"
    refused(case(installation, ANN))
    installation.drain()
    assert learned.view(round_id)["state"] == "done"
    assert outcomes(case(installation, ANN)) == ["in progress"]
    installation.check()


def test_nothing_is_found_once_the_round_is_aborted(learned: Masked) -> None:
    installation = learned.installation
    round_id, _ = sent(learned)
    refused(case(installation, ANN))
    path = f"/v1/rounds/{round_id}/abort"
    assert installation.caller.operator("POST", path).status_code == 200
    assert outcomes(case(installation, ANN)) == ["nothing found"]
    installation.check()


def test_another_models_case_does_not_wait(learned: Masked) -> None:
    installation = learned.installation
    sent(learned)
    assert installation.caller.register_model(ref="plain").status_code == 201
    installation.drain()
    assert outcomes(case(installation, ANN, models=["plain"])) == ["nothing found"]
    refused(case(installation, ANN, models=[MODEL, "plain"]))
    refused(case(installation, ANN))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rounds SET state = 'done'",
        "UPDATE rounds SET state = 'failed', model_id = (SELECT max(id) FROM models)",
        "UPDATE round_members SET masked_id = NULL",
        "UPDATE round_members SET masked_id = advertise_id",
        "DELETE FROM round_members",
        "UPDATE artifacts SET wrapped_key = NULL, shredded_at = created_at "
        "WHERE kind = 'round-message'",
    ],
)
def test_no_one_table_hides_the_rows(learned: Masked, statement: str) -> None:
    installation = learned.installation
    assert installation.caller.register_model(ref="plain").status_code == 201
    installation.drain()
    sent(learned)
    write(installation, statement)
    refused(case(installation, ANN, models=[MODEL]))


HIDDEN = (
    "UPDATE artifacts SET kind = 'x' WHERE kind = 'round-message'",
    "UPDATE rounds SET state = 'done' WHERE state = 'confirm'",
)


def test_nor_do_two_tables(learned: Masked) -> None:
    """The log has the message as received until the round ends."""
    installation = learned.installation
    round_id, joining = sent(learned)
    for statement in HIDDEN:
        write(installation, statement)
    refused(case(installation, ANN))
    write(installation, "UPDATE artifacts SET kind = 'round-message' WHERE kind = 'x'")
    write(installation, "UPDATE rounds SET state = 'confirm' WHERE closed_at IS NULL")
    learned.take(joining, 2)
    installation.drain()
    assert learned.view(round_id)["state"] == "done"
    assert outcomes(case(installation, ANN)) == ["in progress"]


def test_a_round_that_the_log_has_as_ended_is_not_summed(learned: Masked) -> None:
    """Somebody hides the round until the sweep has it as lost, and a person is looked up."""
    installation = learned.installation
    round_id, joining = sent(learned)
    write(installation, "CREATE TABLE kept AS SELECT id, state FROM rounds")
    for statement in HIDDEN:
        write(installation, statement)
    advance_due(installation.services)
    advance_due(installation.services)
    with Session(installation.services.engine) as session:
        ended = select(LogEntry.ref).where(LogEntry.event == "round.failed")
        assert session.exec(ended).all() == [MODEL]
    assert outcomes(case(installation, ANN)) == ["nothing found"]
    write(installation, "UPDATE artifacts SET kind = 'round-message' WHERE kind = 'x'")
    write(installation, "UPDATE rounds SET state = 'confirm' WHERE closed_at IS NULL")
    learned.take(joining, 2)
    installation.drain()
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", UNLOGGED)
    assert outcomes(case(installation, ANN)) == ["nothing found"]
    installation.check()


def test_two_sweeps_at_once_log_the_end_of_a_lost_round_once(
    learned: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = learned.installation
    sent(learned)
    for statement in HIDDEN:
        write(installation, statement)
    swept: list[Any] = []

    def swept_meanwhile(*args: Any) -> Any:
        found = masked_inputs(*args)
        if not swept:
            swept.append(found)
            advance_due(installation.services)
        return found

    monkeypatch.setattr(end, "masked_inputs", swept_meanwhile)
    advance_due(installation.services)
    with Session(installation.services.engine) as session:
        ended = select(LogEntry.ref).where(LogEntry.event == "round.failed")
        assert session.exec(ended).all() == [MODEL]


def test_a_message_that_comes_during_the_lookup_is_not_missed(
    learned: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []

    def early(*args: Any) -> Any:
        found = read_rounds(*args)
        if not held:
            held.append(found)
            sent(learned)
        return found

    monkeypatch.setattr(opening, "read_rounds", early)
    refused(case(learned.installation, ANN))
