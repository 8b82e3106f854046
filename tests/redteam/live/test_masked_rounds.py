"""A dishonest server between honest members, who want nothing but the sum to be seen."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lethe.client.errors import ProblemError
from lethe.signing.keys import generate_key, public_of
from tests.redteam.live.conftest import Target
from tests.redteam.live.proxy import Lie, lying
from tests.remote import local_rows
from tests.small import CLIENTS, manifest
from workers.demo.masked import rows_of
from workers.secure_sum.client.join import Joining
from workers.secure_sum.client.record import open_record
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.errors import RoundError

HIDDEN = "hidden"
NAMES = [f"c{number}" for number in range(CLIENTS)]
VICTIM = "c4"


class Members:
    """Five members with keys and records of their own, and an operator that opens a round."""

    def __init__(self, target: Target, directory: Path) -> None:
        self.target, self.directory = target, directory
        self.keys = {name: generate_key("ed25519") for name in NAMES}
        self.rows = local_rows()
        processes = target.processes
        self.operator = RoundClient(processes.base_url, token=processes.token)
        for name, key in self.keys.items():
            self.operator.register_key(key, "client", keyid=name, client=name)
        self.operator.register_model(manifest(ref=HIDDEN, data="masked"))

    def take(self, lie: Lie) -> tuple[str, dict[str, str]]:
        """Let all take part; return the round and how each ended: a state, or what it said."""
        round_id = str(self.operator.open_round(HIDDEN, NAMES, step_seconds=10)["id"])
        with (
            lying(self.target.processes.base_url, lie) as url,
            ThreadPoolExecutor(CLIENTS) as pool,
        ):
            ended = pool.map(lambda name: self._join(url, name, round_id), NAMES)
            return round_id, dict(zip(NAMES, ended, strict=True))

    def _join(self, url: str, name: str, round_id: str) -> str:
        key = self.keys[name]
        roster = {keyid: public_of(one) for keyid, one in self.keys.items()}
        with (
            open_record(self.directory / f"{name}.json") as record,
            RoundClient(url, name, key) as service,
        ):
            rows = rows_of(self.rows, name)
            joining = Joining(service, round_id, name, key, roster, rows, record)
            try:
                return str(joining.run(timeout=90, pause=0.2)["state"])
            except (RoundError, ProblemError) as error:
                return error.slug


@pytest.fixture
def members(target: Target, tmp_path: Path) -> Iterator[Members]:
    made = Members(target, tmp_path)
    yield made
    made.operator.close()


def test_members_that_are_told_their_rows_are_held_leave_nobody_alone(
    members: Members,
) -> None:
    def held(keyid: str, work: dict[str, Any]) -> None:
        if keyid != VICTIM and work.get("held") is not None:
            work["held"] = members.rows.owned(keyid, keyid)

    round_id, ended = members.take(held)
    others = [ended[name] for name in NAMES if name != VICTIM]
    assert others == ["secrecy-refused"] * 4
    shown = members.operator.round(round_id)
    assert (shown["state"], shown["sent"]["reveal"]) == ("failed", 0)


def test_members_that_are_shown_other_survivors_reveal_nothing(members: Members) -> None:
    """Each is shown a list without one of the others, so no two sign the same digest."""

    def hidden(keyid: str, work: dict[str, Any]) -> None:
        stated = work.get("statements")
        if stated is not None:
            gone = (NAMES.index(keyid) + 1) % CLIENTS
            work["statements"] = [one for place, one in enumerate(stated) if place != gone]

    round_id, ended = members.take(hidden)
    assert "done" not in ended.values()
    assert members.operator.round(round_id)["sent"]["reveal"] == 0


def test_an_honest_service_sums_them(members: Members) -> None:
    _, ended = members.take(lambda keyid, work: None)
    assert set(ended.values()) == {"done"}
    assert members.target.fsck() == 0
