"""Entries of a log through both clients: proven, or refused with the reason."""

import asyncio
from typing import Any

import httpx2
import pytest

from lethe.canonical import format_base64
from lethe.client import AsyncClient, Client, EntryFilter, LogEntries
from lethe.client.errors import AnswerError
from lethe.errors import LetheError
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteError
from lethe.log.proofs import ProofError
from tests.lethe.client.log_service import LogService, history, ref_of
from tests.lethe.log.logs import STRANGER, VERIFIER

BASE = "https://erasure.example"
MODELS = EntryFilter(kind="model-event")


def read(service: LogService, *args: Any, **options: Any) -> LogEntries:
    with Client(BASE, transport=httpx2.MockTransport(service.respond)) as client:
        return client.log_entries(VERIFIER, *args, **options)


def indexes(found: LogEntries) -> list[int]:
    return [one.index for one in found.entries]


@pytest.mark.parametrize(
    ("first", "last", "start", "end"),
    [
        (0, None, 0, 23),
        (5, 9, 5, 10),
        (7, 7, 7, 8),
        (20, 99, 20, 23),
        (23, None, 23, 23),
        (99, 120, 23, 23),
    ],
)
@pytest.mark.parametrize("page", [3, 1000])
def test_a_range_is_read_page_by_page_and_complete(
    first: int, last: int | None, start: int, end: int, page: int
) -> None:
    service = LogService(history(23), page=page)
    found = read(service, first, last)
    assert (found.start, found.end, found.complete) == (start, end, True)
    assert indexes(found) == list(range(start, end))
    assert [one.leaf for one in found.entries] == history(23)[start:end]
    assert found.checkpoint.size == 23


def test_pages_of_a_growing_log_are_proven_against_one_checkpoint() -> None:
    service = LogService(history(23), page=5, grows=2)
    found = read(service)
    assert indexes(found) == list(range(23))
    assert found.checkpoint.size == 23
    assert len(service.seen) == 5
    assert all("size=23" in one for one in service.seen[1:])


def test_both_clients_ask_the_same() -> None:
    first, second = LogService(history(9), page=4), LogService(history(9), page=4)

    async def asynchronous() -> LogEntries:
        transport = httpx2.MockTransport(second.respond)
        async with AsyncClient(BASE, transport=transport) as client:
            return await client.log_entries(LogKeys.of(VERIFIER), 2, 7)

    assert read(first, 2, 7) == asyncio.run(asynchronous())
    assert first.seen == second.seen


def test_a_filters_answer_is_proven_entry_by_entry_and_not_complete() -> None:
    found = read(LogService(history(23), page=3), wanted=MODELS)
    assert indexes(found) == [2, 5, 8, 11, 14, 17, 20]
    assert not found.complete
    assert indexes(read(LogService(history(23), page=2), 4, 11, wanted=MODELS)) == [5, 8, 11]


def test_an_empty_page_that_has_a_next_one_is_not_the_end() -> None:
    """The service examines a number of entries for a page, and may find no match among them."""

    def examine_few(answer: dict[str, Any]) -> None:
        asked = httpx2.URL(service.seen[-1]).params
        end = int(asked.get("after", "-1")) + 3
        answer["items"] = [one for one in answer["items"] if one["log_index"] <= end]
        answer["next"] = str(end) if end < 22 else None

    rare = EntryFilter(ref="small", event="model.version")
    entries = [*history(2), *history(60)[:2] * 10, history(3)[2]]
    service = LogService(entries, change=examine_few)
    assert indexes(read(service, wanted=rare)) == [22]


@pytest.mark.parametrize("cursor", ["0", "22", "-1", "x", "9" * 5000, "²", 7, True])
def test_a_cursor_that_leads_nowhere_is_refused(cursor: Any) -> None:
    def stay(answer: dict[str, Any]) -> None:
        answer |= {"items": [], "next": cursor}

    service = LogService(history(23), change=stay)
    if cursor == "22":  # the last entry
        assert indexes(read(service, 5, wanted=MODELS)) == []
    else:
        with pytest.raises(AnswerError, match="cursor"):
            read(service, 5, wanted=MODELS)
    assert len(service.seen) == 1


def test_with_prove_the_range_is_read_whole_and_filtered_here() -> None:
    service = LogService(history(23), page=4)
    wanted = EntryFilter(ref=ref_of(1), event="request.received")
    found = read(service, 3, 20, wanted=wanted, prove=True)
    assert indexes(found) == [3, 7, 9, 13, 15, 19]
    assert found.complete
    assert not any("event=" in one for one in service.seen)


def test_a_filter_that_leaves_an_entry_out_is_found_out_only_by_prove() -> None:
    def hide(answer: dict[str, Any]) -> None:
        answer["items"] = [one for one in answer["items"] if one["log_index"] != 5]

    service = LogService(history(23), change=hide)
    found = read(service, wanted=MODELS)
    assert 5 not in indexes(found)
    assert not found.complete
    with pytest.raises(ProofError, match="left out or added"):
        read(service, wanted=MODELS, prove=True)


def drop(answer: dict[str, Any]) -> None:
    del answer["items"][1]


def drop_and_shorten(answer: dict[str, Any]) -> None:
    del answer["items"][1]
    answer["completeness"]["range"]["end"]["size"] -= 1


def insert(answer: dict[str, Any]) -> None:
    answer["items"].insert(1, answer["items"][0])


def swap(answer: dict[str, Any]) -> None:
    answer["items"][1]["leaf"], answer["items"][2]["leaf"] = (
        answer["items"][2]["leaf"],
        answer["items"][1]["leaf"],
    )


def forge(answer: dict[str, Any]) -> None:
    answer["items"][1]["leaf"] = format_base64(history(99)[98])


def renumber(answer: dict[str, Any]) -> None:
    for item in answer["items"]:
        item["log_index"] += 1


def another_range(answer: dict[str, Any]) -> None:
    other = LogService(history(23)).answer({"after": "3", "limit": "6"}, history(23))
    answer["completeness"] = other["completeness"]


def honest_but_another_range(answer: dict[str, Any]) -> None:
    answer |= LogService(history(23)).answer({"after": "3", "limit": "6"}, history(23))


def nothing(answer: dict[str, Any]) -> None:
    empty = LogService(history(23)).answer({"after": "4", "limit": "0"}, history(23))
    answer |= {**empty, "items": []}


def another_log(answer: dict[str, Any]) -> None:
    other = LogService([*history(22), b"{}"])
    answer["checkpoint"] = other.answer({"limit": "1"}, other.entries)["checkpoint"]


@pytest.mark.parametrize(
    "change",
    [
        drop,
        drop_and_shorten,
        insert,
        swap,
        forge,
        renumber,
        another_range,
        honest_but_another_range,
        nothing,
        another_log,
    ],
)
def test_a_range_with_a_defect_is_refused(change: Any) -> None:
    with pytest.raises(ProofError):
        read(LogService(history(23), change=change), 5, 10)


@pytest.mark.parametrize("change", [swap, forge, renumber, another_log])
def test_a_filters_answer_with_a_defect_is_refused(change: Any) -> None:
    with pytest.raises(ProofError):
        read(LogService(history(23), change=change), 0, 20, wanted=MODELS)


def test_an_entry_that_does_not_match_is_refused() -> None:
    def other(answer: dict[str, Any]) -> None:
        answer["items"] = LogService(history(23)).answer({"limit": "2"}, history(23))["items"]

    with pytest.raises(ProofError, match="not asked for"):
        read(LogService(history(23), change=other), wanted=MODELS)


def test_another_key_is_refused() -> None:
    with pytest.raises(NoteError):
        read(LogService(history(23), signer=STRANGER))


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint": None},
        {"checkpoint": 7},
        {"items": None},
        {"items": [{}]},
        {"items": [{"log_index": "5", "leaf": "", "hashes": []}]},
        {"items": [{"log_index": 5, "leaf": "?", "hashes": []}]},
        {"completeness": None},
        {"completeness": {"range": None}},
        {"completeness": {"range": {"start": {"size": True, "root": ""}}}},
    ],
)
def test_a_misshapen_answer_is_an_error_with_a_name(change: dict[str, Any]) -> None:
    service = LogService(history(23), change=lambda answer: answer.update(change))
    with pytest.raises((AnswerError, ProofError)) as caught:
        read(service, 5, 10)
    assert isinstance(caught.value, LetheError)
