"""An agent's request that ended half way, and is sent again."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlmodel import Session, select

from app.problems import ContributionPendingError
from app.protocols import cases
from app.protocols.cases import AgentRequest
from app.protocols.opendsr.wire import PROTOCOL
from app.service.desk.opening import open_case
from models import Case, Record
from tests.app.protocols.test_opendsr import EXAMPLE, ID, Controller, error
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, write

Identities = list[dict[str, str]]


def who(*people: str) -> Identities:
    """Return OpenDSR's identities of these addresses."""
    return [EXAMPLE["subject_identities"][0] | {"identity_value": person} for person in people]


def end_after_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next call end between the commits of its first and second case."""
    opened: list[int] = []

    def once(*args: Any, **named: Any) -> Any:
        if opened:
            monkeypatch.setattr(cases, "open_case", open_case)
            raise ContributionPendingError("a model is learning rows")
        opened.append(1)
        return open_case(*args, **named)

    monkeypatch.setattr(cases, "open_case", once)


def begin(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, identities: Identities
) -> None:
    """Send a request of which one case is opened."""
    end_after_one_case(monkeypatch)
    error(controller.ask(subject_identities=identities), 400, "contribution-pending")
    with Session(controller.installation.services.engine) as session:
        assert len(session.exec(select(Case)).all()) == 1
    error(controller.call("GET", f"/requests/{ID}"), 404, "not-found")


def left(installation: Installation) -> set[str]:
    """Return which of Ann's and Bob's records the model still has."""
    with Session(installation.services.engine) as session:
        return set(session.exec(select(Record.record))) & {"r0", "r5", "r1"}


@pytest.mark.parametrize("first", [(ANN, BOB), (BOB, ANN)])
@pytest.mark.parametrize("second", [(ANN, BOB), (BOB, ANN)])
def test_each_person_is_looked_up_in_whatever_order(
    serving: Installation, monkeypatch: pytest.MonkeyPatch, first: Any, second: Any
) -> None:
    controller = Controller(serving)
    begin(controller, monkeypatch, who(*first))
    assert controller.ask(subject_identities=who(*second)).status_code == 201
    assert controller.ask(subject_identities=who(*first)).status_code == 201
    serving.drain()
    assert left(serving) == set()
    assert controller.status() == "completed"
    serving.check()


@pytest.mark.parametrize(
    "second",
    [who(BOB, ANN), who(EVE), who(BOB), who(EVE, BOB, ANN)],
    ids=["corrected", "first", "second", "one more"],
)
def test_other_identities_are_refused(
    serving: Installation, monkeypatch: pytest.MonkeyPatch, second: Identities
) -> None:
    controller = Controller(serving)
    begin(controller, monkeypatch, who(EVE, BOB))
    error(controller.ask(subject_identities=second), 400, "conflict")
    error(controller.ask(subject_identities=who(EVE, BOB), regulation="ccpa"), 400, "conflict")
    error(controller.call("GET", f"/requests/{ID}"), 404, "not-found")
    assert controller.ask(subject_identities=who(EVE, BOB)).status_code == 201
    serving.drain()
    assert controller.status() == "completed"
    assert left(serving) == {"r0", "r5"}


def asked(controller: Controller) -> AgentRequest:
    """Return the request by the controller's own name."""
    with Session(controller.installation.services.engine) as session:
        name = session.exec(select(Case.opened_by).distinct()).one()
    return AgentRequest(PROTOCOL, name, ID)


def copied(of: str, to: str) -> str:
    """Return the statement that gives a case the tag of another one."""
    tag = f"SELECT checked FROM cases WHERE ref = '{of}'"
    return f"UPDATE cases SET checked = ({tag}) WHERE ref = '{to}'"


def between(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Make a call just before the next case is opened."""

    def after(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(cases, "open_case", open_case)
        call()
        return open_case(*args, **named)

    monkeypatch.setattr(cases, "open_case", after)


@pytest.mark.parametrize(
    "second", [who(BOB, ANN), who(ANN), who(EVE, BOB, ANN)], ids=["same", "less", "more"]
)
def test_of_two_calls_at_once_one_is_the_request(
    serving: Installation, monkeypatch: pytest.MonkeyPatch, second: Identities
) -> None:
    controller, other = Controller(serving), Controller(serving)
    other.token = controller.token
    answers = []
    between(
        monkeypatch, lambda: answers.append(other.ask(subject_identities=second).status_code)
    )
    error(controller.ask(subject_identities=who(EVE, BOB)), 400, "conflict")
    assert answers == [201]
    with Session(serving.services.engine) as session:
        assert len(session.exec(select(Case)).all()) == len(second)
    serving.drain()
    assert controller.status() == "completed"


def test_a_tag_of_another_request_is_not_taken(
    serving: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes `cases` alone copies the tag of a request that has both people."""
    controller = Controller(serving)
    begin(controller, monkeypatch, who(EVE, BOB))
    request = asked(controller)
    other = AgentRequest(PROTOCOL, request.agent, ID.replace("a", "b"))
    both = {"subject_request_id": other.request, "subject_identities": who(ANN, BOB)}
    assert controller.ask(**both).status_code == 201
    write(serving, copied(other.ref(2, 1), request.ref(2, 1)))
    error(controller.ask(subject_identities=who(ANN, BOB)), 400, "conflict")


def test_cases_for_different_identities_are_not_signed_as_one(serving: Installation) -> None:
    """An older version opened such, or somebody put one case in the place of another."""
    controller = Controller(serving)
    assert controller.ask(subject_identities=who(EVE, BOB)).status_code == 201
    assert controller.status() == "pending"
    request = asked(controller)
    other = AgentRequest(PROTOCOL, request.agent, ID.replace("a", "b"))
    assert controller.ask(subject_request_id=other.request).status_code == 201
    write(serving, copied(other.ref(1, 0), request.ref(2, 1)))
    error(controller.call("GET", f"/requests/{ID}"), 500, "people-changed")
