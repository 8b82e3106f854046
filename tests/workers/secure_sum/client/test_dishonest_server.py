"""A server that wants one member's sums: its claims are checked against the member's record."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.rounds import steps
from tests.installation import Installation, head
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.secure_sum.client.test_masked_model import FOUR, erase_records
from tests.workers.secure_sum.rounds import Play, plan_of, random_inputs
from workers.errors import RefusedError
from workers.secure_sum.client.join import Joining
from workers.secure_sum.client.record import KEPT, Least, Record, open_record
from workers.secure_sum.errors import (
    MalformedMessageError,
    PlanError,
    SecrecyError,
    TooFewContributorsError,
)
from workers.secure_sum.messages import Statement, open_message, opposite
from workers.secure_sum.vector import without_sign

FIVE = (*FOUR, "c4")
STRICT = {"contributors": 3, "rows": 10}


class Lying:
    """A service whose answers about a round are changed on their way to one member."""

    def __init__(self, joining: Joining, change: Callable[[dict[str, Any]], Any]) -> None:
        self._honest, self._change = joining.service, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def work(self, round_id: str) -> dict[str, Any]:
        work = dict(self._honest.work(round_id))
        self._change(work)
        return work


def deceive(joining: Joining, change: Callable[[dict[str, Any]], Any]) -> None:
    joining.service = Lying(joining, change)  # type: ignore[assignment]


def strict(installation: Installation) -> Masked:
    return Masked(installation, masked=STRICT)


def started(masked: Masked, *clients: str, **changes: Any) -> tuple[str, list[Joining]]:
    opened = masked.open(*clients)
    assert opened.status_code == 201, opened.text
    round_id = opened.json()["id"]
    return round_id, [masked.joining(round_id, client, **changes) for client in clients]


def say_held(records: list[str], work: dict[str, Any]) -> None:
    if work.get("held") is not None:
        work["held"] = records


def test_rows_that_are_said_to_be_held_are_not_believed(fresh: Masked) -> None:
    """Four of five would add nothing, and the sum would be the fifth's input."""
    _, joining = started(fresh, *FIVE)
    for one in joining[:4]:
        deceive(one, partial(say_held, one.rows.records))
    fresh.take(joining, 2)
    for one in joining[:4]:
        with pytest.raises(
            SecrecyError, match="holds 8 records that this member has no record"
        ):
            one.step()


def another_model(masked: Masked) -> None:
    other = json.dumps({**masked.manifest, "ref": "other"})
    files = {"manifest": (None, other)}
    answer = masked.installation.caller.operator("POST", "/v1/models", files=files)
    assert answer.status_code == 201, answer.text


def test_rows_are_added_to_a_second_model_only_if_its_member_names_it(fresh: Masked) -> None:
    """The sum of five in one model, less that of four in the other, is the fifth's input."""
    fresh.round(*FIVE)
    another_model(fresh)
    opened = fresh.open(*FOUR, model="other")
    assert opened.status_code == 201, opened.text
    round_id = opened.json()["id"]
    for client in FOUR:
        with pytest.raises(SecrecyError, match="sent inputs to 1 other model"):
            fresh.joining(round_id, client).step()
    assert fresh.view(round_id)["sent"]["advertise"] == 0
    fresh.take([fresh.joining(round_id, client, model="other") for client in FOUR], 4)
    again = fresh.open(*FIVE).json()["id"]
    fresh.joining(again, "c0").step()  # the record has inputs of this model


def test_a_round_of_another_model_than_the_member_names(fresh: Masked) -> None:
    """The list of rounds, or an id, may name any round."""
    _, joining = started(fresh, *FOUR, model="other")
    for one in joining:
        with pytest.raises(PlanError, match="the round is of the model small, not of other"):
            one.step()


class Coarse(Lying):
    """Shows the model as the plan has it, and then with steps that make every feature zero."""

    def __init__(self, joining: Joining) -> None:
        super().__init__(joining, lambda work: None)
        self._shown = 0

    def manifest(self, ref: str) -> dict[str, Any]:
        self._shown += 1
        found = dict(self._honest.manifest(ref))
        if self._shown > 1:
            found["exponents"] = [100] * len(found["exponents"])
        return found


def test_each_member_uses_the_description_that_it_compared_with_the_plan(
    fresh: Masked,
) -> None:
    """With coarser steps for four of five, the sum of the features would be the fifth's."""
    round_id, joining = started(fresh, *FIVE)
    for one in joining[:4]:
        one.service = Coarse(one)  # type: ignore[assignment]
    fresh.take(joining)
    fresh.installation.drain()
    assert fresh.view(round_id)["state"] == "done"
    assert head(fresh.installation) == fresh.head_without(set())


@pytest.mark.parametrize("lying", [False, True], ids=["honest", "lying"])
def test_a_sum_of_one_contributor_stays_closed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, lying: bool
) -> None:
    """An honest service ends the round; were it not to, the members would refuse."""
    masked = strict(installation)
    round_id, joining = started(masked, *FIVE, least=Least())
    for one in joining[:4]:
        one.add = False
    if lying:
        monkeypatch.setattr(steps, "too_few", lambda row, sent: None)
    masked.take(joining, 3)
    if not lying:
        shown = masked.view(round_id)
        assert shown["state"] == "failed"
        assert shown["reason"].startswith("contributions-too-few: 1 members move 8 records")
        return
    for one in joining:
        with pytest.raises(TooFewContributorsError, match="1 members move 8 records"):
            one.step()
    assert masked.view(round_id)["sent"]["confirm"] == 0


def test_enough_contributors_are_summed_and_counted_to_each(installation: Installation) -> None:
    masked = strict(installation)
    round_id = masked.round(*FIVE, least=Least())
    assert masked.view(round_id)["state"] == "done"
    assert "5 of 5 members contribute: 40 records added, 0 released" in masked.say
    assert all(len(one.held("small")) == 8 for one in masked.records.values())


def test_a_model_of_smaller_sums_than_a_member_accepts(fresh: Masked) -> None:
    _, joining = started(fresh, *FOUR, least=Least())
    with pytest.raises(PlanError, match="sums of 1 contributors and 1 records, and you ask"):
        joining[0].step()


def test_a_release_of_what_was_never_added(learned: Masked) -> None:
    _, joining = started(learned, *FOUR)
    learned.take(joining, 2)
    joining[0].record.models["small"]["held"].clear()
    deceive(joining[0], lambda work: work.update(held=[], release=joining[0].rows.records[:1]))
    with pytest.raises(SecrecyError, match="asks to release 1 records"):
        joining[0].step()


def test_a_lost_record_is_begun_from_the_service_only_when_asked(learned: Masked) -> None:
    erase_records(learned.installation, learned.owned("c0")[0])
    learned.records["c0"] = Record()
    _, joining = started(learned, *FOUR)
    learned.take(joining, 2)
    with pytest.raises(SecrecyError, match="--adopt-held"):
        joining[0].step()
    joining[0].adopt = True
    joining[0].step()
    assert len(learned.records["c0"].held("small")) == 8
    joining[1].adopt = True
    with pytest.raises(RefusedError, match="has a record"):
        joining[1].step()


def test_a_process_that_went_learns_how_its_round_ended(learned: Masked) -> None:
    wanted = learned.owned("c0")[0]
    erase_records(learned.installation, wanted)
    round_id, joining = started(learned, *FOUR)
    learned.take(joining)
    learned.installation.drain()
    record = learned.records["c0"]
    assert record.unsettled("small") == [round_id]
    again, _ = started(learned, *FOUR)
    learned.joining(again, "c0").step()
    assert record.unsettled("small") == []
    assert wanted not in record.held("small")


PLAN = plan_of(6, 4, least=(3, 3))


def statements(**contents: int) -> dict[str, Statement]:
    """The statements of members that contribute vectors of these numbers; 0: nothing."""
    return {
        name.replace("_", "-"): Statement(min(value, 1), 0, bytes(32), bytes([value]) * 32, b"")
        for name, value in contents.items()
    }


def another(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


ALL = {f"member_{i}": i + 1 for i in range(6)}


@pytest.mark.parametrize(
    ("later", "refused"),
    [
        (ALL, False),  # the same sum again
        ({**ALL, "member_5": 0}, True),
        ({**ALL, "member_5": 40}, True),  # its difference to what it sent before
        ({**ALL, "member_4": 0, "member_5": 0}, True),
        ({"member_0": 1, "member_1": 2, "member_2": 3}, False),
        ({name: value + 10 for name, value in ALL.items()}, False),
    ],
    ids=["same", "one-left", "one-changed", "two-left", "three-left", "all-new"],
)
def test_sums_that_differ_by_too_few_members(later: dict[str, int], refused: bool) -> None:
    record = Record()
    record.begin(PLAN)
    record.sent(PLAN, ["r"], [])
    record.confirm(PLAN, statements(**ALL), [])
    record.ended("demo", {"id": PLAN.round_id, "counted": False})  # "it failed", after all
    assert record.held("demo") == set()
    second = replace(PLAN, round_id=another(2))
    record.begin(second)
    if refused:
        with pytest.raises(SecrecyError, match="differ by what"):
            record.confirm(second, statements(**later), [])
    else:
        record.confirm(second, statements(**later), [])


@pytest.mark.parametrize(
    ("released", "refused"), [(4, True), (3, False), (5, False)], ids=["one", "three", "none"]
)
@pytest.mark.parametrize("both", [False, True], ids=["released", "exchanged"])
def test_sums_that_together_are_of_too_few_members(
    released: int, refused: bool, both: bool
) -> None:
    """Some take back what they sent in the first round; one, three or none of five are left."""
    record = Record()
    record.begin(PLAN)
    first = {name: one for name, one in statements(**ALL).items() if name != "member-5"}
    if both:  # as many added as released, so that the counts do not tell the sign
        first = {name: replace(one, released=1) for name, one in first.items()}
    record.confirm(PLAN, first, [])
    second = replace(PLAN, round_id=another(2))
    record.begin(second)
    later = {
        name: replace(one, added=one.released, released=1, content=opposite(one.content))
        for name, one in list(first.items())[:released]
    }
    if released == 3:
        later |= {"member-5": replace(first["member-0"], content=bytes([99]) * 32)}
    if refused:
        with pytest.raises(SecrecyError, match="add up to what 1 members sent"):
            record.confirm(second, later, [])
    else:
        record.confirm(second, later, [])


def test_a_sum_repeated_but_for_one_member_that_took_back_its_own() -> None:
    """Their difference is twice what that member sent."""
    record = Record()
    record.begin(PLAN)
    first = {name: replace(one, released=1) for name, one in statements(**ALL).items()}
    record.confirm(PLAN, first, [])
    second = replace(PLAN, round_id=another(2))
    record.begin(second)
    changed = replace(first["member-5"], content=opposite(first["member-5"].content))
    with pytest.raises(SecrecyError, match="differ by what 1 members sent"):
        record.confirm(second, {**first, "member-5": changed}, [])


def test_others_do_not_release_all_so_that_one_members_rows_are_left(
    installation: Installation,
) -> None:
    """The service says that it was asked to erase what four of five added."""
    masked = strict(installation)
    masked.round(*FIVE, least=Least())
    for client in FOUR:
        erase_records(installation, *masked.owned(client))
    refused, joining = started(masked, *FIVE, least=Least())
    masked.take(joining, 3)
    for one in joining:
        with pytest.raises(SecrecyError, match=r"add up to what 1 members sent.*few-left"):
            one.step()
    aborted = installation.caller.operator("POST", f"/v1/rounds/{refused}/abort")
    assert aborted.status_code == 200
    agreed, joining = started(masked, *FIVE, least=Least(), few_left=True)
    masked.take(joining)
    installation.drain()
    assert masked.view(agreed)["state"] == "done"


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "threshold-of-contributors": ({"round_id": another(2), "least_contributors": 2}, "minimum"),
    "threshold-of-rows": ({"round_id": another(2), "least_rows": 1}, "minimum"),
    "configuration": (
        {"round_id": another(2), "configuration": "cd" * 32},
        "configuration differs",
    ),
    "second-plan": ({"version": 9}, "another plan of a round"),
    "same-round-again": ({}, "already sent its input to this round"),
}


@pytest.mark.parametrize(("change", "said"), CHANGED.values(), ids=CHANGED.keys())
def test_a_plan_that_contradicts_what_was_shown_before(
    change: dict[str, Any], said: str
) -> None:
    record = Record()
    record.begin(PLAN)
    record.sent(PLAN, ["r"], [])
    with pytest.raises(PlanError, match=said):
        record.begin(replace(PLAN, **change))


def test_members_that_left_are_counted() -> None:
    record = Record()
    assert record.begin(PLAN) == []
    fewer = replace(PLAN, round_id=another(2), members=PLAN.members[:4], threshold=3)
    (told,) = record.begin(fewer)
    assert told.endswith("are not in this: 2")


@pytest.mark.parametrize(("added", "released"), [(3, 0), (0, 3), (2, 2)])
def test_a_vector_and_its_negative_are_the_same_but_for_the_sign(
    added: int, released: int
) -> None:
    for vector in random_inputs(PLAN, 2).values():
        one, own = without_sign(vector, added, released)
        other, its = without_sign(np.negative(vector), released, added)
        assert (one, own) == (other, not its)


def test_contents_are_equal_or_opposite_as_the_vectors_are_under_one_secret() -> None:
    inputs = random_inputs(PLAN, 1)
    negated = {name: np.negative(vector) for name, vector in inputs.items()}
    plays = [
        Play(replace(PLAN, round_id=another(i)), sent, secret=b"s" * 32)
        for i, sent in enumerate((inputs, inputs, negated), start=1)
    ]
    found = []
    for play in plays:
        play.advertise().share().mask()
        opened = (open_message(play.plan, one, play.roster) for one in play.stated())
        found.append({name: one for name, one in opened if isinstance(one, Statement)})
    contents = [{name: one.content for name, one in each.items()} for each in found]
    assert contents[0] == contents[1]
    assert contents[2] == {name: opposite(one) for name, one in contents[0].items()}
    assert len(set(contents[0].values())) == 6
    inputs_of = [{one.input for one in each.values()} for each in found]
    assert not inputs_of[0] & inputs_of[1]


def test_a_record_on_disk_is_its_owners_alone(tmp_path: Any) -> None:
    path = tmp_path / "key.pem.rounds.json"
    with open_record(path) as record:
        record.begin(PLAN)
        record.sent(PLAN, ["r1"], [])
        record.confirm(PLAN, statements(**ALL), [b"{}"])
        record.ended("demo", {"id": PLAN.round_id, "counted": True})
        with pytest.raises(RefusedError, match="another process"), open_record(path):
            pass
    assert path.stat().st_mode & 0o777 == 0o600
    with open_record(path) as again:
        assert again == record
        assert again.held("demo") == {"r1"}
    path.write_text("{}")
    with pytest.raises(RefusedError, match="cannot be read"), open_record(path):
        pass


def failed_with_a_sum() -> Record:
    """A record whose only round was confirmed and reported as failed by the service."""
    record = Record()
    record.begin(PLAN)
    record.sent(PLAN, ["r"], [])
    record.confirm(PLAN, statements(**ALL), [])
    record.ended("demo", {"id": PLAN.round_id, "counted": False})
    return record


def test_aborted_rounds_make_a_record_forget_nothing() -> None:
    """A server opens and aborts rounds until the round whose sum it has would be dropped."""
    record, waiting = failed_with_a_sum(), replace(PLAN, round_id=another(1000))
    record.begin(waiting)
    record.sent(waiting, ["r"], [])
    for number in range(2, KEPT + 4):
        aborted = replace(PLAN, round_id=another(number))
        record.begin(aborted)
        record.ended("demo", {"id": aborted.round_id, "counted": False})
    assert record.unsettled("demo") == [waiting.round_id]
    assert len(record.models["demo"]["rounds"]) == KEPT + 2
    last = replace(PLAN, round_id=another(1001))
    record.begin(last)
    with pytest.raises(SecrecyError, match="differ by what 1 members sent"):
        record.confirm(last, statements(**{**ALL, "member_5": 0}), [])


def test_an_old_round_that_is_done_keeps_its_contents_and_not_its_statements() -> None:
    record = Record()
    for number in range(2, KEPT + 4):
        plan = replace(PLAN, round_id=another(number))
        record.begin(plan)
        record.sent(plan, [], [])
        record.confirm(plan, statements(**ALL), [b"{}"])
        record.ended("demo", {"id": plan.round_id, "counted": True})
    record.begin(PLAN)
    kept = [one for one in record.models["demo"]["rounds"].values() if one["state"] == "done"]
    assert all(one["contents"] for one in kept)
    assert ["statements" in one for one in kept] == [False] * 2 + [True] * KEPT
    with pytest.raises(SecrecyError, match="differ by what 1 members sent"):
        record.confirm(PLAN, statements(**{**ALL, "member_5": 0}), [])


@pytest.mark.parametrize("end", [False, None], ids=["failed", "unknown"])
def test_a_record_that_sent_an_input_is_not_begun_anew(end: bool | None) -> None:
    record = Record()
    record.begin(PLAN)
    record.sent(PLAN, ["r"], [])
    if end is not None:
        record.ended("demo", {"id": PLAN.round_id, "counted": end})
    record.begin(replace(PLAN, round_id=another(2)))
    with pytest.raises(RefusedError, match="has a record"):
        record.adopt("demo", ["r"])
    assert record.held("demo") == set()


@pytest.mark.parametrize(
    ("taken", "name", "value"),
    [
        (0, "plan", None),
        (0, "state", 7),
        (0, "member", "yes"),
        (0, "counted", None),
        (1, "advertised", None),
        (1, "advertised", ["{}", 7]),
        (1, "advertised", ["\ud800"]),
        (2, "sealed", []),
        (2, "sealed", {"a": None}),
        (2, "held", "r1"),
        (2, "release", None),
        (3, "statements", {}),
        (4, "confirmed", [None]),
    ],
)
def test_a_view_of_another_shape_is_refused(
    fresh: Masked, taken: int, name: str, value: Any
) -> None:
    _, joining = started(fresh, *FOUR)
    if taken:
        fresh.take(joining, taken)
    deceive(joining[0], lambda work: work.update({name: value}))
    with pytest.raises(MalformedMessageError, match=f"no '{name}' of the documented shape"):
        joining[0].step()
