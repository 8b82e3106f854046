"""Write access to `models`, `rounds` and `round_members` cannot add an unopened sum."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.reconcile.fsck.vault import UNNAMED
from app.rounds import operator
from app.rounds.steps import CHANGED
from lethe.client.errors import ProblemError
from models import Model, ModelVersion, Round
from tests.installation import Installation, head, state
from tests.workers.jobs.cases.test_swapped_scope import Writer
from tests.workers.jobs.lineage.changed_rows import changing, config_of, member, set_config
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.secure_sum.client.test_failures import started, version
from tests.workers.secure_sum.client.test_masked_model import FOUR, erase, erase_records
from workers.artifacts import decode_state, encode_state
from workers.lineage import logged as logged_model

THREE = FOUR[:3]
Change = Callable[[Masked, str], None]


def sql(masked: Masked, statement: str, **values: object) -> None:
    with masked.installation.services.engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount == 1


def added(masked: Masked, round_id: str) -> None:
    """A key that the operator did not name becomes a member; another row lends its client."""
    (stranger,) = masked.keyids("c3")
    sql(
        masked,
        "INSERT INTO round_members (round_id, keyid, client, moved) "
        "SELECT round_id, :it, client, 0 FROM round_members WHERE round_id = :round LIMIT 1",
        round=round_id,
        it=stranger,
    )


def left_out(masked: Masked, round_id: str) -> None:
    (one,) = masked.keyids("c2")
    sql(
        masked,
        "DELETE FROM round_members WHERE round_id = :round AND keyid = :it",
        round=round_id,
        it=one,
    )


def for_another(masked: Masked, round_id: str) -> None:
    """The client's name is sealed; a copy of another row's opens in its place."""
    one, other = masked.keyids("c2", "c0")
    sql(
        masked,
        "UPDATE round_members SET client = (SELECT o.client FROM round_members o "
        "WHERE o.round_id = :round AND o.keyid = :other) "
        "WHERE round_id = :round AND keyid = :it",
        round=round_id,
        it=one,
        other=other,
    )


def named_in_the_plan(masked: Masked, round_id: str) -> None:
    left_out(masked, round_id)
    with Session(masked.installation.services.engine) as session:
        row = session.get_one(Round, round_id)
        row.plan = {**row.plan, "members": sorted(masked.keyids("c0", "c1"))}
        session.commit()


def check(installation: Installation, change: Change) -> None:
    """Run fsck, which finds the messages of a member whose row was deleted."""
    if change not in (left_out, named_in_the_plan):
        installation.check()
        return
    with pytest.raises(AssertionError, match=UNNAMED):
        installation.check()


def a_lower_threshold(masked: Masked, round_id: str) -> None:
    sql(masked, "UPDATE rounds SET threshold = 1 WHERE id = :it", it=round_id)


def another_entry(masked: Masked, round_id: str) -> None:
    sql(masked, "UPDATE rounds SET log_index = log_index - 1 WHERE id = :it", it=round_id)


CHANGES = [added, left_out, for_another, named_in_the_plan, a_lower_threshold, another_entry]


@pytest.mark.parametrize("change", CHANGES)
def test_a_round_whose_members_were_changed_fails(learned: Masked, change: Change) -> None:
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    before, old = version(learned), head(installation)
    round_id, joining = started(learned, *THREE)
    learned.take(joining, 2)
    change(learned, round_id)
    for one in joining * 3:
        with suppress(ProblemError):  # an excluded member gets an error
            learned.take([one], 1)
    installation.drain()
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", CHANGED)
    assert (version(learned), head(installation)) == (before, old)
    assert state(installation, request_id) == "awaiting-round"
    learned.round(*THREE, add=False)
    assert state(installation, request_id) == "certified"
    check(installation, change)


@pytest.mark.parametrize(
    "client", ["(SELECT o.client FROM requester_keys o WHERE o.keyid = :other)", "'no seal'"]
)
def test_a_member_whose_key_was_changed_too_fails_the_round(
    learned: Masked, client: str
) -> None:
    """Both rows say the same, and only the key's MAC does not; or the key's cannot be read."""
    round_id, joining = started(learned, *THREE)
    learned.take(joining, 2)
    for_another(learned, round_id)
    one, other = learned.keyids("c2", "c0")
    statement = f"UPDATE requester_keys SET client = {client} WHERE keyid = :it"
    sql(
        learned, statement, **{"it": one, "other": other} if ":other" in client else {"it": one}
    )
    learned.take(joining[:1], 1)
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", CHANGED)


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_summed_of_members_that_were_changed(
    learned: Masked, change: Change
) -> None:
    """All have sent, and the sum is a worker's next job."""
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    before = version(learned)
    round_id, joining = started(learned, *THREE)
    learned.take(joining)
    assert learned.view(round_id)["state"] == "summing"
    change(learned, round_id)
    installation.drain()
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", CHANGED)
    assert version(learned) == before
    assert state(installation, request_id) == "awaiting-round"
    check(installation, change)


def test_no_round_releases_by_the_scope_of_another_request(learned: Masked) -> None:
    """c2's rows would be released for a request about c3, whose scope is then restored."""
    installation = learned.installation
    request = erase(installation, {"level": "client", "client": "c3"})
    other = erase(installation, {"level": "client", "client": "c2"})
    writer = Writer(installation, request, other)
    writer.swap()
    learned.round(*THREE, add=False)
    writer.put_back()
    assert (state(installation, request), state(installation, other)) == (
        "awaiting-round",
        "certified",
    )
    installation.check()


@pytest.mark.full
def test_records_that_a_round_left_behind_fail_its_judgement(
    learned: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without a scope comparison: the named person's records are still there."""
    installation = learned.installation
    request = erase(installation, {"level": "client", "client": "c3"})
    other = erase(installation, {"level": "client", "client": "c2"})
    writer = Writer(installation, request, other)
    writer.swap()
    monkeypatch.setattr(operator, "changed_since_received", lambda *_: set())
    round_id, joining = started(learned, *THREE)
    learned.take(joining)
    writer.put_back()
    installation.drain()
    assert learned.view(round_id)["state"] == "done"
    assert state(installation, request) == "failed"
    told = installation.caller.http.get(f"/v1/requests/{request}").json()
    assert "purge" in told["reason"]


@pytest.mark.full
def test_no_sum_is_added_to_those_of_another_model(learned: Masked) -> None:
    """Its state was sealed by the service, and no judge checks what a round adds."""
    services = learned.installation.services
    before = version(learned)
    with Session(services.engine) as session:
        row = session.exec(select(ModelVersion)).one()
        own = decode_state(services.artifacts.get(session, row.state_id))
        sums = replace(own.statistics, moment=own.statistics.moment + 1)
        planted = encode_state(replace(own, statistics=sums))
        row.state_id = services.artifacts.put(session, "state", planted).id
        session.commit()
    shown = learned.view(learned.round("c0", "c1", "c2", "c4"))
    assert (shown["state"], shown["reason"]) == ("failed", logged_model.OTHER_ROWS)
    assert version(learned) == before


@pytest.mark.parametrize("when", ["accepted", "execute.leased", "execute.computed"])
def test_no_sum_is_published_by_another_configuration(learned: Masked, when: str) -> None:
    installation: Installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    before, kept = version(learned), config_of(installation.services)
    round_id, joining = started(learned, *FOUR)
    learned.take(joining)
    with changing(installation, when, member("penalty", value=(2.0).hex())):
        installation.drain()
    shown = learned.view(round_id)
    assert (shown["state"], shown["reason"]) == ("failed", logged_model.CHANGED)
    assert version(learned) == before
    with Session(installation.services.engine) as session:
        assert session.exec(select(Model)).one().state == "ready"
    set_config(installation.services, kept)
    learned.round(*FOUR, add=False)
    assert state(installation, request_id) == "certified"
    installation.check()
