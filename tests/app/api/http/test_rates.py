"""A key or token that calls too often is told when to come back; others are not slowed down."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from httpx2 import Response
from hypothesis import given
from hypothesis import strategies as st

from app.api.http import rates
from app.api.http.rates import Rates
from app.ledger.sequencer import Ledger
from app.problems import RateLimitError
from app.settings import Settings
from tests.app.api.test_requests import problem
from tests.installation import Installation, install, make_token
from tests.small import MODEL


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def taken(limits: Rates, caller: str = "a") -> bool:
    try:
        limits.take(caller)
    except RateLimitError:
        return False
    return True


def test_a_minutes_calls_may_come_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    limits = Rates(3, clock)
    assert [taken(limits) for _ in range(4)] == [True, True, True, False]
    assert taken(limits, "b")
    with pytest.raises(RateLimitError) as refused:
        limits.take("a")
    assert refused.value.retry_after == 20
    clock.now += 20
    assert [taken(limits), taken(limits)] == [True, False]
    clock.now += 3600
    assert [taken(limits) for _ in range(4)] == [True, True, True, False]


@given(
    st.integers(1, 50),
    st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=200),
)
def test_no_minute_has_more_than_twice_the_rate(most: int, pauses: list[float]) -> None:
    """A burst and what comes back in a minute; told to wait, the caller is let in then."""
    clock = Clock()
    limits, times = Rates(most, clock), []
    for pause in pauses:
        clock.now += pause
        try:
            limits.take("a")
        except RateLimitError as error:
            clock.now += error.retry_after or 0
            limits.take("a")
        times.append(clock.now)
    for begin in times:
        assert sum(begin <= one < begin + rates.MINUTE for one in times) <= 2 * most


def test_no_limit_and_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(taken(Rates(0)) for _ in range(100))
    monkeypatch.setattr(rates, "MOST_CALLERS", 2)
    limits = Rates(1, Clock())
    assert [taken(limits, name) for name in "abca"] == [True] * 4  # a was forgotten
    assert not taken(limits, "c")


def told(limits: Rates, caller: str = "a") -> list[str]:
    fields = limits.fields(caller)
    assert [name for name, _ in fields] == [b"ratelimit-policy", b"ratelimit"][: len(fields)]
    return [value.decode() for _, value in fields]


def test_a_caller_is_told_the_policy_and_what_is_left_of_it() -> None:
    clock = Clock()
    limits, policy = Rates(3, clock), '"default";q=3;w=60'
    assert told(limits) == [policy, '"default";r=3']
    for left in ('"default";r=2', '"default";r=1', '"default";r=0;t=20'):
        limits.take("a")
        assert told(limits) == [policy, left]
    assert not taken(limits)
    assert told(limits) == [policy, '"default";r=0;t=20']
    assert told(limits, "b") == [policy, '"default";r=3']
    clock.now += 19.5
    assert told(limits) == [policy, '"default";r=0;t=1']
    clock.now += 3600
    assert told(limits) == [policy, '"default";r=3']
    assert told(Rates(0)) == []


PAUSES = st.lists(st.integers(0, 30_000), min_size=1, max_size=100)  # milliseconds


@given(st.integers(1, 50), PAUSES)
def test_what_is_said_to_be_left_is_taken_and_no_more(most: int, pauses: list[int]) -> None:
    clock = Clock()
    limits = Rates(most, clock)
    for pause in pauses:
        clock.now += pause / 1000
        taken(limits)
    _, left = told(limits)
    calls, _, wait = left.removeprefix('"default";r=').partition(";t=")
    assert [taken(limits) for _ in range(int(calls) + 1)] == [True] * int(calls) + [False]
    if int(calls) == 0:
        clock.now += int(wait)
        assert taken(limits)


@given(st.integers(1, 20), PAUSES, st.randoms(use_true_random=False))
def test_who_keeps_to_the_policy_is_never_refused(
    most: int, pauses: list[int], random: Random
) -> None:
    """Whichever process answers: at most q calls in any w seconds."""
    clock = Clock()
    processes = [Rates(most, clock) for _ in range(random.choice((1, 2)))]
    times: list[float] = []
    for pause in pauses:
        clock.now += pause / 1000 / most
        if len(times) >= most and clock.now - times[-most] < rates.MINUTE:
            clock.now = times[-most] + rates.MINUTE
        times.append(clock.now)
        random.choice(processes).take("a")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: nothing here is stored."""
    return sqlite_url


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slow(settings: Settings, ledger: Ledger, clock: Clock) -> Iterator[Installation]:
    """A fitted model, at a service that then takes three calls a minute of each caller."""
    with install(settings) as made:
        made.ready()
        made.caller.http.app.state.rates = Rates(3, clock)  # type: ignore[attr-defined]
        yield made


def test_a_key_is_told_when_to_come_back(slow: Installation, clock: Clock) -> None:
    caller = slow.caller
    for record in ("r1", "r2", "r3"):
        assert caller.erase_records(record).status_code == 202
    size = slow.services.ledger.guard.read().size
    refused = caller.erase_records("r4", nonce="the-same-nonce-again")
    problem(refused, 429, "rate-limit")
    assert refused.headers["retry-after"] == "20"
    assert slow.services.ledger.guard.read().size == size
    # Strangers use up nobody's rate, and who operates the service is another caller.
    assert caller.http.get(f"/v1/models/{MODEL}").status_code == 401
    assert caller.operator("GET", f"/v1/models/{MODEL}").status_code == 200
    clock.now += 20
    # Its nonce was not spent: it may be sent again as it is.
    assert caller.erase_records("r4", nonce="the-same-nonce-again").status_code == 202


def test_who_repeats_a_call_that_they_saw_uses_up_nobodys_rate(slow: Installation) -> None:
    caller = slow.caller
    assert caller.erase_records("r1", nonce="seen-by-somebody-else").status_code == 202
    for _ in range(9):
        problem(
            caller.erase_records("r1", nonce="seen-by-somebody-else"), 401, "signature-replayed"
        )
    assert caller.erase_records("r2").status_code == 202
    asked = [
        caller.signed("GET", f"/v1/models/{MODEL}/manifest", nonce="seen-once-more-and-again")
    ]
    asked += [
        caller.signed("GET", f"/v1/models/{MODEL}/manifest", nonce="seen-once-more-and-again")
        for _ in range(9)
    ]
    assert {one.json()["type"].rpartition(":")[2] for one in asked[1:]} == {
        "signature-replayed"
    }
    # That was two calls and one of a key without the right; they count, and no other.
    problem(caller.erase_records("r3"), 429, "rate-limit")


def test_a_token_is_counted_by_its_name(slow: Installation) -> None:
    path = f"/v1/models/{MODEL}"
    answers = [slow.caller.operator("GET", path).status_code for _ in range(4)]
    assert answers == [200, 200, 200, 429]
    other = {"authorization": f"Bearer {make_token(slow.services)}"}
    assert slow.caller.http.get(path, headers=other).status_code == 200


def test_a_token_without_the_right_is_counted_as_a_key_without_it_is(
    slow: Installation,
) -> None:
    auditor = replace(slow.caller, token=make_token(slow.services, "auditor"))
    asked = [auditor.operator("POST", "/v1/cases/search", json={}) for _ in range(4)]
    assert [one.status_code for one in asked] == [403, 403, 403, 429]


def test_a_call_of_two_rights_is_counted_once(slow: Installation) -> None:
    """Officers may call some routes of keys, and this one is for operators alone."""
    asked = [slow.caller.operator("DELETE", "/v1/keys/nobody") for _ in range(4)]
    assert [one.status_code for one in asked] == [404, 404, 404, 429]


def test_each_answer_to_a_counted_call_says_what_is_left(
    slow: Installation, clock: Clock
) -> None:
    caller, policy = slow.caller, '"default";q=3;w=60'

    def said(answer: Response, status: int) -> str | None:
        assert answer.status_code == status
        assert answer.headers.get("ratelimit-policy") in (None, policy)
        left: str | None = answer.headers.get("ratelimit")
        assert (left is None) == ("ratelimit-policy" not in answer.headers)
        return left

    first = caller.erase_records("r1", nonce="seen-by-somebody-else")
    assert said(first, 202) == '"default";r=2'
    # Who repeats a call that they saw is not told how often its sender calls.
    assert said(caller.erase_records("r1", nonce="seen-by-somebody-else"), 401) is None
    assert said(caller.erase_records("no such record"), 404) == '"default";r=1'
    manifest = f"/v1/models/{MODEL}/manifest"
    assert said(caller.signed("GET", manifest), 403) == '"default";r=0;t=20'
    for refused in (caller.erase_records("r2"), caller.signed("GET", manifest)):
        assert said(refused, 429) == '"default";r=0;t=20'
        assert refused.headers["retry-after"] == "20"
    assert said(caller.operator("GET", f"/v1/models/{MODEL}"), 200) == '"default";r=2'
    assert said(caller.http.get(f"/v1/models/{MODEL}"), 401) is None
    assert said(caller.http.get("/v1/log/checkpoint"), 200) is None
    caller.http.app.state.rates = Rates(0, clock)  # type: ignore[attr-defined]
    assert said(caller.operator("GET", f"/v1/models/{MODEL}"), 200) is None
