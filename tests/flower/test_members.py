"""Which client is at which node: one node per client, pinned nodes answer as their client."""

from dataclasses import replace
from pathlib import Path

import pytest

from lethe_flower.exchange import Reply
from lethe_flower.members import PAUSE, Member, format_member, meet, parse_member
from tests.flower.nodes import FIRST, Nodes, write
from tests.workers.training.fedavg.small import ROWS
from workers.errors import RefusedError

MEMBER = Member("anna", 7, "0" * 64, "{}")
ANNA, BERT, CLEO = FIRST, FIRST + 1, FIRST + 2


class Clock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_clients_are_found_at_their_nodes(tmp_path: Path) -> None:
    nodes = Nodes(write(tmp_path))
    members = meet(nodes, 3, wait=10)
    assert members.nodes == {"anna": ANNA, "bert": BERT, "cleo": CLEO}
    assert members.rows() == ROWS
    assert members.rows(without=frozenset(["bert"])) == {"anna": 7, "cleo": 5}
    assert len(members.environments()) == 1
    assert nodes.asked == [("query", frozenset([ANNA, BERT, CLEO]))]


def test_the_digest_depends_on_who_stays_and_on_their_rows(tmp_path: Path) -> None:
    members = meet(Nodes(write(tmp_path)), 3, wait=10)
    changed = dict(members.members)
    changed["anna"] = replace(changed["anna"], digest="f" * 64)
    other = replace(members, members=changed)
    without = frozenset(["anna"])
    assert len({members.digest(), members.digest(without), other.digest()}) == 3
    assert members.digest(without) == other.digest(without)


def test_nodes_that_are_still_starting_are_waited_for(tmp_path: Path) -> None:
    clock, configs = Clock(), write(tmp_path)
    nodes = Nodes({ANNA: configs[ANNA]})

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        nodes.configs = configs

    members = meet(nodes, 3, wait=10, clock=clock, sleep=sleep)
    assert len(members.nodes) == 3
    assert clock.now == PAUSE
    assert nodes.asked[1] == ("query", frozenset([BERT, CLEO]))  # nobody is asked twice


def test_too_few_are_refused_in_the_end(tmp_path: Path) -> None:
    clock = Clock()
    trouble = {BERT: lambda *_: None, CLEO: lambda *_: Reply(b"{}")}
    nodes = Nodes(write(tmp_path), trouble)
    with pytest.raises(RefusedError, match="1 of 3 SuperNodes answered in time"):
        meet(nodes, 3, wait=10, clock=clock, sleep=clock.sleep)
    assert clock.now == 10


def test_a_silent_node_more_than_needed_stops_nobody(tmp_path: Path) -> None:
    clock = Clock()
    nodes = Nodes(write(tmp_path), {CLEO: lambda *_: None})
    members = meet(nodes, 2, wait=10, clock=clock, sleep=clock.sleep)
    assert members.nodes == {"anna": ANNA, "bert": BERT}


def test_two_nodes_cannot_be_one_client(tmp_path: Path) -> None:
    configs = write(tmp_path)
    configs[BERT] = {**configs[BERT], "client": "anna"}
    with pytest.raises(RefusedError, match="two SuperNodes answer as one client"):
        meet(Nodes(configs), 3, wait=10)


def test_a_pinned_node_cannot_be_another_client(tmp_path: Path) -> None:
    pinned = {"anna": BERT, "bert": ANNA, "cleo": CLEO}
    with pytest.raises(RefusedError, match="its key does not belong to") as caught:
        meet(Nodes(write(tmp_path)), 3, wait=10, pinned=pinned)
    assert "anna" not in str(caught.value)


def test_nodes_that_are_not_pinned_are_not_asked(tmp_path: Path) -> None:
    nodes = Nodes(write(tmp_path))
    members = meet(nodes, 2, wait=10, pinned={"anna": ANNA, "cleo": CLEO})
    assert members.nodes == {"anna": ANNA, "cleo": CLEO}
    assert nodes.asked == [("query", frozenset([ANNA, CLEO]))]


def test_a_description_is_read_back() -> None:
    assert parse_member(format_member(MEMBER)) == MEMBER


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        format_member(MEMBER) + b" ",
        format_member(MEMBER).replace(b"member/1", b"member/2"),
        format_member(replace(MEMBER, rows=0)),
        format_member(replace(MEMBER, rows=True)),
        format_member(replace(MEMBER, client="")),
        format_member(replace(MEMBER, client=None)),  # type: ignore[arg-type]
    ],
)
def test_other_bytes_are_no_description(data: bytes) -> None:
    assert parse_member(data) is None
