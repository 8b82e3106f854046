"""Every failure of a round: a named reason, an unchanged model, and a new round that works."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session

from app.rounds.steps import members
from lethe.client.errors import ProblemError, UnreachableError
from models import Round
from models.database.types import utcnow
from tests.installation import head, state
from tests.small import MODEL
from tests.workers.jobs.leases.test_deaths import set_ahead
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.secure_sum.client.test_masked_model import FOUR, erase_records
from tests.workers.secure_sum.rounds import stand_by
from workers.errors import RefusedError
from workers.families.masked import case
from workers.secure_sum.client.join import Joining
from workers.secure_sum.errors import RoundError
from workers.secure_sum.messages import (
    MaskedInput,
)


def version(masked: Masked) -> int:
    model = masked.installation.caller.operator("GET", f"/v1/models/{MODEL}").json()
    number: int = model["current_version"]
    return number


def started(masked: Masked, *clients: str, **changes: Any) -> tuple[str, list[Joining]]:
    opened = masked.open(*clients, **changes)
    assert opened.status_code == 201, opened.text
    round_id = opened.json()["id"]
    return round_id, [masked.joining(round_id, client) for client in clients]


@pytest.mark.parametrize(
    "steps", [0, 1, 2, 3, 4], ids=["advertise", "share", "masked", "confirm", "reveal"]
)
def test_a_member_that_drops_out_at_a_step_is_done_without(learned: Masked, steps: int) -> None:
    """Four members, three must stay; c3 sends nothing from some step on."""
    installation = learned.installation
    wanted = learned.owned("c0")[:1]
    request_id = erase_records(installation, *wanted)
    round_id, joining = started(learned, *FOUR)
    learned.take(joining, steps)
    learned.take(joining[:3], 1)
    learned.end_step(round_id)
    learned.take(joining[:3], 4 - steps)
    installation.drain()
    assert learned.view(round_id)["state"] == "done", learned.view(round_id)
    assert state(installation, request_id) == "certified"
    assert head(installation) == learned.head_without({*wanted, *learned.owned("c4")})
    installation.check()


@pytest.mark.parametrize(
    "steps", [0, 1, 2, 3, 4], ids=["advertise", "share", "masked", "confirm", "reveal"]
)
def test_too_few_that_stay_end_the_round_and_a_new_one_works(
    learned: Masked, steps: int
) -> None:
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    before, old = version(learned), head(installation)
    round_id, joining = started(learned, *FOUR)
    learned.take(joining, steps)
    learned.take(joining[:2], 1)
    learned.end_step(round_id)
    ended = learned.view(round_id)
    assert ended["state"] == "failed"
    assert ended["reason"].startswith("survivors-too-few: 2 members remain")
    assert (version(learned), head(installation)) == (before, old)
    assert state(installation, request_id) == "awaiting-round"
    learned.round(*FOUR)
    assert state(installation, request_id) == "certified"
    installation.check()


def test_a_request_is_not_completed_by_half_of_its_clients(learned: Masked) -> None:
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0], learned.owned("c3")[0])
    round_id, joining = started(learned, *FOUR)
    learned.take(joining, 2)
    learned.take(joining[:3], 1)
    learned.end_step(round_id)
    assert learned.view(round_id)["reason"].startswith("release-incomplete: ")
    assert state(installation, request_id) == "awaiting-round"


def test_a_request_whose_only_client_dropped_out_waits_on(learned: Masked) -> None:
    installation = learned.installation
    theirs = erase_records(installation, learned.owned("c3")[0])
    ours = erase_records(installation, learned.owned("c0")[0])
    round_id, joining = started(learned, *FOUR)
    learned.take(joining, 2)
    learned.take(joining[:3], 1)
    learned.end_step(round_id)
    learned.take(joining[:3], 2)
    installation.drain()
    assert (state(installation, theirs), state(installation, ours)) == (
        "awaiting-round",
        "certified",
    )
    learned.round(*FOUR, add=False)  # c0's data still holds what is erased
    assert state(installation, theirs) == "certified"
    installation.check()


def test_a_member_whose_key_is_revoked_while_the_sum_is_read_is_summed(
    learned: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's snapshot has the key's row from before, which is listed as revoked by then."""
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    round_id, joining = started(learned, *FOUR)
    learned.take(joining)
    (keyid,) = learned.keyids("c3")
    honest, revoked = members, list[int]()

    def revoked_meanwhile(session: Session, round_id: str) -> Any:
        found = honest(session, round_id)
        if not revoked:
            answer = installation.caller.operator("DELETE", f"/v1/keys/{keyid}")
            revoked.append(answer.status_code)
        return found

    monkeypatch.setattr(case, "members", revoked_meanwhile)
    installation.drain()
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"], revoked) == ("done", None, [200])
    assert state(installation, request_id) == "certified"
    installation.check()


def lie(joining: Joining, change: Callable[[MaskedInput], MaskedInput]) -> None:
    """Let a member sign another input than its rows give."""
    assert joining.member is not None
    stand_by(joining.member, joining.key, joining.roster, change)


def _moved(entry: int, by: int) -> Any:
    def change(message: MaskedInput) -> MaskedInput:
        vector = message.vector.copy()
        vector[[entry]] += np.uint64(by % 2**64)  # of an array, wrapping is no accident
        return replace(message, vector=vector)

    return change


LIES = {
    "more-rows": (_moved(-1, 1), "sum-mismatch: "),
    "negative-diagonal": (_moved(0, -(2**50)), "sum-implausible: "),
    "huge-entry": (_moved(0, 2**62), "sum-implausible: "),
    "label-counts": (_moved(-2, 1), "sum-implausible: "),
    "moment": (_moved(-8, 2**45), "sum-implausible: "),
}


@pytest.mark.parametrize(("change", "reason"), LIES.values(), ids=LIES.keys())
def test_a_sum_that_no_rows_have_is_refused(learned: Masked, change: Any, reason: str) -> None:
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    before, old = version(learned), head(installation)
    round_id, joining = started(learned, *FOUR)
    learned.take(joining, 2)
    lie(joining[1], change)
    learned.take(joining, 3)
    installation.drain()
    ended = learned.view(round_id)
    assert ended["state"] == "failed"
    assert ended["reason"].startswith(reason), ended
    assert (version(learned), head(installation)) == (before, old)
    assert state(installation, request_id) == "awaiting-round"
    learned.round(*FOUR)
    assert state(installation, request_id) == "certified"
    installation.check()


def test_an_id_that_two_members_add(fresh: Masked) -> None:
    round_id, joining = started(fresh, *FOUR)
    twin = fresh.local("c1")
    joining[1].rows = replace(twin, records=[fresh.owned("c0")[0], *twin.records[1:]])
    fresh.take(joining)
    fresh.installation.drain()
    assert fresh.view(round_id)["reason"].startswith("record-moved-twice: ")
    fresh.round(*FOUR)
    assert version(fresh) == 1


def test_a_failed_first_round_leaves_a_model_that_can_be_begun(fresh: Masked) -> None:
    round_id, joining = started(fresh, *FOUR)
    fresh.take(joining[:2], 1)
    fresh.end_step(round_id)
    assert fresh.view(round_id)["state"] == "failed"
    fresh.round(*FOUR)
    assert head(fresh.installation) == fresh.head_without(set(fresh.owned("c4")))


def test_who_was_given_up_is_told(learned: Masked) -> None:
    round_id, joining = started(learned, *FOUR)
    learned.take(joining[:3], 1)
    learned.end_step(round_id)
    with pytest.raises(RoundError, match="continues without it"):
        joining[3].step()


def test_a_member_that_lost_its_memory_has_dropped_out(learned: Masked) -> None:
    """A new process has new secrets: the service keeps the first message."""
    round_id, joining = started(learned, *FOUR)
    learned.take(joining[:1], 1)
    again = learned.joining(round_id, "c0")
    with pytest.raises(ProblemError) as refused:
        again.step()
    assert refused.value.status == 409


def test_a_worker_that_dies_in_between_is_followed_by_another(learned: Masked) -> None:
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    round_id, joining = started(learned, *FOUR)
    learned.take(joining)
    installation.dispatcher.nudges.clear()
    installation.recover()
    assert learned.view(round_id)["state"] == "done"
    assert state(installation, request_id) == "certified"
    assert json.dumps(learned.view(round_id))


def test_data_that_still_holds_what_was_erased(learned: Masked) -> None:
    erase_records(learned.installation, learned.owned("c0")[0])
    learned.round(*FOUR)
    _, joining = started(learned, *FOUR)
    learned.take(joining, 2)
    with pytest.raises(RefusedError, match="take them out of the data"):
        joining[0].step()
    joining[1].step()  # with data that nothing was erased of


class Flaky:
    """A service that answers no call at first: not reached, then reached and not heard."""

    def __init__(self, joining: Joining) -> None:
        self.service, self.calls = joining.service, Counter[tuple[Any, ...]]()

    def __getattr__(self, name: str) -> Any:
        honest = getattr(self.service, name)

        def call(*arguments: Any) -> Any:
            key = (name, *arguments)
            self.calls[key] += 1
            if self.calls[key] == 1:
                raise UnreachableError("no answer")
            answer = honest(*arguments)
            if self.calls[key] == 2:
                raise UnreachableError("no answer")
            return answer

        return call


def test_a_service_that_does_not_answer_is_waited_for(
    fresh: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost answer is requested again; nothing is sent in two versions."""
    round_id, joining = started(fresh, *FOUR)
    flaky = joining[0]
    flaky.service = Flaky(flaky)  # type: ignore[assignment]
    others = joining[1:]

    def sleep(_: float) -> None:
        fresh.take(others, 1)
        fresh.installation.drain()

    monkeypatch.setattr("workers.secure_sum.client.join.sleep", sleep)
    assert flaky.run(timeout=60)["state"] == "done"
    assert fresh.view(round_id)["sent"]["reveal"] == 4
    assert head(fresh.installation) == fresh.head_without(set(fresh.owned("c4")))


def test_a_member_that_waits_does_not_take_the_logs_turn(
    fresh: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, joining = started(fresh, *FOUR)
    joining[0].step()

    def transact(*_: Any) -> Any:
        raise AssertionError("a poll took the log's turn")

    with monkeypatch.context() as patched:
        patched.setattr(fresh.installation.services.ledger, "transact", transact)
        assert joining[0].step()["state"] == "advertise"
    for one in joining[1:]:
        one.step()
    assert joining[0].step()["state"] == "share"


@pytest.mark.parametrize(
    ("database_url", "slow"), [("sqlite", 0), ("postgresql", 1)], indirect=["database_url"]
)
def test_the_first_poll_after_a_step_ends_it_by_the_databases_clock(
    fresh: Masked, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """No member sends, no sweep runs, and the machine that answers may be an hour slow."""
    round_id, joining = started(fresh, *FOUR)
    joining[0].step()
    over = utcnow() - timedelta(minutes=1)
    with Session(fresh.installation.services.engine) as session:
        session.get_one(Round, round_id).step_until = over
        session.commit()
    set_ahead(monkeypatch, timedelta(hours=-slow))
    work = joining[0].step()
    assert (work["state"], work["reason"][:17]) == ("failed", "survivors-too-few")


@pytest.mark.parametrize(("polls", "pause"), [(10, 1.0), (2, 2.0)])
def test_members_of_a_large_round_poll_less_often(
    fresh: Masked, monkeypatch: pytest.MonkeyPatch, polls: int, pause: float
) -> None:
    def sleep(seconds: float) -> None:
        assert seconds == pause
        raise TimeoutError

    _, joining = started(fresh, *FOUR)
    monkeypatch.setattr("workers.secure_sum.client.join.POLLS", polls)
    monkeypatch.setattr("workers.secure_sum.client.join.sleep", sleep)
    with pytest.raises(TimeoutError):
        joining[0].run()


def test_patience_has_an_end(fresh: Masked, monkeypatch: pytest.MonkeyPatch) -> None:
    _, joining = started(fresh, *FOUR)
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr("workers.secure_sum.client.join.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("workers.secure_sum.client.join.sleep", lambda _: None)
    with pytest.raises(RoundError, match="did not end within"):
        joining[0].run(timeout=500)  # the others never come
    gone = joining[1]

    def nothing(_: str) -> Any:
        raise UnreachableError("no answer")

    monkeypatch.setattr(gone.service, "work", nothing)
    with pytest.raises(UnreachableError):
        gone.run()
