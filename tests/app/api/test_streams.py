"""Server-sent events: the whole history, resumed, bounded, and without a held connection."""

import asyncio
import json
import threading
from typing import Any

import pytest
from sqlmodel import Session, select

from app.api import streams as api
from app.main import create_app
from app.notices import stream
from app.problems import BusyError, UnauthorizedError
from app.service.access import keys
from lethe.client.events import EventParser, StreamEvent
from models import Job
from tests.app.api.test_requests import problem
from tests.installation import Installation, make_token
from tests.small import Caller


def events(text: str) -> list[StreamEvent]:
    return list(EventParser().feed(text))


def test_a_finished_request_is_told_whole_and_then_nothing_more(ready: Installation) -> None:
    request = ready.caller.erase_records("r5").json()["id"]
    ready.drain()
    history = ready.caller.http.get(f"/v1/requests/{request}").json()["history"]
    path = f"/v1/requests/{request}/events"
    answer = ready.caller.http.get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    *told, end = events(answer.text)
    assert [one.data for one in told] == history
    assert [one.log_index for one in told] == [item["log_index"] for item in history]
    assert (end.kind, end.data) == ("end", {"state": "certified"})
    last = history[-2]["log_index"]
    rest = ready.caller.http.get(path, headers={"Last-Event-ID": str(last)})
    assert [one.data for one in events(rest.text)][:-1] == history[-1:]
    last = history[-1]["log_index"]
    done = ready.caller.http.get(path, headers={"Last-Event-ID": str(last)})
    assert (done.status_code, done.text) == (204, "")
    odd = ready.caller.http.get(path, headers={"Last-Event-ID": "x"})
    assert len(events(odd.text)) == len(history) + 1


def test_events_arrive_while_the_request_is_executed(ready: Installation) -> None:
    request = ready.caller.erase_records("r5").json()["id"]
    services = ready.services
    with Session(services.engine) as session:
        job = session.exec(select(Job).where(Job.request_id == request)).one()
        job.phase, job.phase_done, job.phase_total = "training", 2, 5
        session.add(job)
        session.commit()
    seen: list[bytes] = []
    begun = threading.Event()

    async def watch() -> None:
        first = stream.of_request(services, request, -1)
        read = lambda after: stream.of_request(services, request, after)  # noqa: E731
        async for part in stream.follow(stream.Streams(), read, -1, first):
            seen.append(part)
            if b"progress" in part:
                begun.set()

    def work() -> None:
        begun.wait(60)
        ready.drain()

    worker = threading.Thread(target=work)
    worker.start()
    asyncio.run(watch())
    worker.join()
    told = events(b"".join(seen).decode())
    kinds = [one.kind for one in told]
    assert kinds[:2] == ["history", "progress"]
    assert told[1].data == {"phase": "training", "done": 2, "total": 5, "unit": "rounds"}
    assert [one.data["event"] for one in told if one.kind == "history"][
        -1
    ] == "request.certified"
    assert kinds[-1] == "end"


def test_silence_is_broken_by_comments_and_a_stream_has_an_end(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ready.caller.erase_records("r5").json()["id"]
    monkeypatch.setattr(stream, "FIRST_POLL_S", 0.001)
    monkeypatch.setattr(stream, "POLL_S", 0.001)
    monkeypatch.setattr(stream, "BEAT_S", 0.0)
    monkeypatch.setattr(stream, "LIFE_S", 0.2)
    text = ready.caller.http.get(f"/v1/requests/{request}/events").text
    assert ": still here\n\n" in text
    assert "event: end" not in text
    assert len(events(text)) == 1


def test_streams_are_bounded_and_end_with_their_process(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ready.caller.erase_records("r5").json()["id"]
    path = f"/v1/requests/{request}/events"
    streams = ready.caller.http.app.state.streams  # type: ignore[attr-defined]
    monkeypatch.setattr(stream, "MOST", 0)
    refused = ready.caller.http.get(path)
    problem(refused, 503, "busy")
    assert refused.headers["retry-after"] == "5"
    monkeypatch.setattr(stream, "MOST", 2)
    monkeypatch.setattr(stream, "MOST_EACH", 1)

    async def first() -> None:
        news = stream.of_request(ready.services, request, -1)
        read = lambda after: stream.of_request(ready.services, request, after)  # noqa: E731
        following = stream.follow(streams, read, -1, news)
        with streams.place(request):
            with pytest.raises(BusyError), streams.place(request):
                pass
            with streams.place("another"):
                assert streams.open.total() == 2
            streams.end()
            parts = [part async for part in following]
            assert parts[-1].startswith(b"event: history")

    asyncio.run(first())
    assert not streams.open
    problem(ready.caller.http.get(path), 503, "busy")


def test_requesters_do_not_keep_operators_out(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holders of twenty requests take all places, each for an hour."""
    request = ready.caller.erase_records("r5").json()["id"]
    streams = ready.caller.http.app.state.streams  # type: ignore[attr-defined]
    monkeypatch.setattr(stream, "MOST", 1)
    monkeypatch.setattr(stream, "LIFE_S", 0.2)
    with streams.place("another"):
        problem(ready.caller.http.get(f"/v1/requests/{request}/events"), 503, "busy")
        path = f"/v1/cases/{request}/events"
        assert ready.caller.operator("GET", path).status_code == 200
        with streams.place("a case", staff=True):
            problem(ready.caller.operator("GET", path), 503, "busy")
    assert not streams.of_staff


def test_a_key_with_many_requests_does_not_keep_other_keys_out(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_OF_KEY", 2)
    monkeypatch.setattr(stream, "LIFE_S", 0.2)
    first, second, third = (
        ready.caller.erase_records(one).json()["id"] for one in ("r4", "r5", "r6")
    )
    other = Caller(ready.caller.http, ready.caller.token, "bob")
    assert other.register_key().status_code == 201
    others = other.erase_records("r7").json()["id"]
    streams = ready.caller.http.app.state.streams  # type: ignore[attr-defined]
    keyid = stream.of_request(ready.services, first, -1).keyid
    path = "/v1/requests/{}/events"
    with streams.place(first, keyid), streams.place(second, keyid):
        problem(ready.caller.http.get(path.format(third)), 503, "busy")
        assert ready.caller.http.get(path.format(others)).status_code == 200
    assert ready.caller.http.get(path.format(third)).status_code == 200
    assert not streams.of_keys


@pytest.mark.parametrize("leaves_first", [False, True], ids=["in the midst", "at once"])
def test_of_many_opened_at_once_as_many_as_allowed_are_open(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, leaves_first: bool
) -> None:
    monkeypatch.setattr(stream, "MOST_EACH", 2)
    path = f"/v1/requests/{ready.caller.erase_records('r5').json()['id']}/events"
    app: Any = ready.caller.http.app
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"testserver")],
        "client": ("192.0.2.1", 1),
        "server": ("testserver", 80),
    }

    async def all_at_once() -> list[int]:
        statuses: list[int] = []
        answered, leave, looked = asyncio.Event(), asyncio.Event(), asyncio.Barrier(8)

        async def look(read: Any, after: int) -> Any:
            news = read(after)
            await looked.wait()  # then all go on in the same step of the loop
            return news

        monkeypatch.setattr(api, "run_in_threadpool", look)
        if leaves_first:
            leave.set()

        async def one() -> None:
            sent = False

            async def receive() -> dict[str, Any]:
                nonlocal sent
                if not sent:
                    sent = True
                    return {"type": "http.request", "body": b"", "more_body": False}
                await leave.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    if len(statuses) == 8:
                        answered.set()

            await app(dict(scope), receive, send)

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(one())
            if not leaves_first:
                await asyncio.wait_for(answered.wait(), 60)
                assert app.state.streams.open.total() == 2
            leave.set()
        return statuses

    statuses = asyncio.run(all_at_once())
    if not leaves_first:
        assert sorted(statuses) == [200] * 2 + [503] * 6
    assert not app.state.streams.open


def test_a_stream_of_a_case_ends_when_its_token_is_revoked(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = ready.caller.erase_records("r5").json()["ref"]
    original, reads = keys.authorise, []

    def revoked_later(*args: Any) -> Any:
        reads.append(1)
        if len(reads) == 4:
            raise UnauthorizedError("the token is revoked")
        return original(*args)

    monkeypatch.setattr(keys, "authorise", revoked_later)
    monkeypatch.setattr(stream, "FIRST_POLL_S", 0.001)
    monkeypatch.setattr(stream, "LIFE_S", 5.0)
    answer = ready.caller.operator("GET", f"/v1/cases/{ref}/events")
    assert answer.status_code == 200
    assert len(reads) == 4  # the route's, the first look, a poll, and the poll that ended it
    assert "event: end" not in answer.text


def test_nobody_follows_what_is_not_there_or_not_theirs(ready: Installation) -> None:
    problem(ready.caller.http.get("/v1/requests/none/events"), 404, "not-found")
    ref = ready.caller.erase_records("r5").json()["ref"]
    ready.drain()
    problem(ready.caller.http.get(f"/v1/cases/{ref}/events"), 401, "token-invalid")
    auditor = Caller(ready.caller.http, make_token(ready.services, "auditor"))
    assert auditor.operator("GET", f"/v1/cases/{ref}/events").status_code == 403
    officer = Caller(ready.caller.http, make_token(ready.services, "officer"))
    told = events(officer.operator("GET", f"/v1/cases/{ref}/events").text)
    assert told == events(ready.caller.operator("GET", f"/v1/cases/{ref}/events").text)
    timeline = ready.caller.operator("GET", f"/v1/cases/{ref}").json()["timeline"]
    assert [one.data for one in told[:-1]] == timeline
    assert told[-1].data == {"state": "answered"}


def test_an_application_has_no_open_stream(ready: Installation) -> None:
    made: Any = create_app(ready.services).state.streams
    assert (made.open.total(), made.ending) == (0, False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("data: {}\n\n", [("message", None, {})]),
        ("event: end\r\ndata: {}\r\n\r\n", [("end", None, {})]),
        (": hello\n\nid: 7\ndata: {\ndata: }\n\n", [("message", 7, {})]),
        ("event: end\n\nretry: 3\n\n", []),
        ("data: {}\n", []),
    ],
)
def test_the_format_is_read_in_any_pieces(text: str, found: list[Any]) -> None:
    parser = EventParser()
    read = [one for piece in text for one in parser.feed(piece)]
    assert [(one.kind, one.log_index, one.data) for one in read] == found
    assert json.dumps([one.data for one in events(text)]) == json.dumps(
        [one[2] for one in found]
    )
