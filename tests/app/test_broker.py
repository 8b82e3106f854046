"""What is no message of Lethe's is dropped and counted, on both brokers, and the next is read."""

import base64
import errno
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from app.broker import REFUSED
from app.dispatch import Dispatcher, make_celery
from app.nudges import LONGEST, MessageRefusedError, rebuild
from app.settings import Settings

NOTHING = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def body(content: object) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def message(**changes: Any) -> dict[str, Any]:
    """A message as Celery sends it, with other headers or parts."""
    headers = {"task": "lethe.execute", "id": "1-2", "eta": None, "expires": None}
    headers |= changes.pop("headers", {})
    whole = {
        "body": body([["job-1"], {}, NOTHING]),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": {
            "delivery_tag": "tag",
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": "cpu"},
        },
    }
    return whole | changes


def raw(**changes: Any) -> bytes:
    return json.dumps(message(**changes)).encode()


def without(name: str) -> bytes:
    whole = message()
    del whole[name]
    return json.dumps(whole).encode()


POISON: dict[str, bytes] = {
    "no JSON": b"\x80\x04not json",
    "no UTF-8": b'{"body": "\xff\xfe"}',
    "empty": b"",
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 12_000,
    "long number": b"1" * 12_000,
    "huge": b'"' + b"x" * LONGEST + b'"',
    "no headers": without("headers"),
    "no body": without("body"),
    "headers of another type": json.dumps(message() | {"headers": 7}).encode(),
    "no base64": raw(body="%%%"),
    "body of a number": raw(body=7),
    "body no JSON": raw(body=base64.b64encode(b"\x80").decode()),
    "body too short": raw(body=body([["job-1"]])),
    "pickle": raw(**{"content-type": "application/x-python-serialize"}),
    "unknown task": raw(headers={"task": "os.system"}),
    "task of a silo": raw(headers={"task": "lethe.answer"}),
    "task of a list": raw(headers={"task": ["lethe.execute"]}),
    "two ids": raw(body=body([["job-1", "job-2"], {}, NOTHING])),
    "keywords": raw(body=body([["job-1"], {"a": 1}, NOTHING])),
    "id of a number": raw(body=body([[7], {}, NOTHING])),
    "id of a path": raw(body=body([["../../x"], {}, NOTHING])),
    "task id of a list": raw(headers={"id": []}),
    "a time to come": raw(headers={"eta": "2999-01-01T00:00:00"}),
    "expires never": raw(headers={"expires": "soon"}),
    "expires of a list": raw(headers={"expires": [1]}),
}


@pytest.fixture(params=["files", "redis"])
def place(
    request: pytest.FixtureRequest, data_dir: Path
) -> tuple[Celery, Callable[[bytes], None]]:
    """A broker, and how a stranger puts bytes into it."""
    if request.param == "files":
        celery = make_celery(Settings(data_dir=data_dir))

        def write(content: bytes) -> None:
            (data_dir / "broker" / "!x.cpu.msg").write_bytes(content)

        return celery, write
    url = request.getfixturevalue("redis_url")
    celery = make_celery(Settings(data_dir=data_dir, broker_url=url))

    def push(content: bytes) -> None:
        with Redis.from_url(url) as client:
            client.lpush("cpu", content)

    return celery, push


def read_one(celery: Celery) -> Any:
    with celery.connection_for_read() as connection:
        waiting = connection.SimpleQueue("cpu")
        try:
            found = waiting.get(timeout=10)
            found.ack()
            return found.headers["argsrepr"], found.payload
        finally:
            waiting.close()


@pytest.mark.parametrize("name", POISON)
def test_poison_is_dropped_and_counted_and_the_next_message_is_read(
    place: tuple[Celery, Callable[[bytes], None]], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    celery, put = place
    dispatcher = Dispatcher(lambda: celery)
    before = dispatcher.check()
    put(POISON[name])
    dispatcher.nudge("job-1")
    dispatcher.close()
    assert read_one(celery) == ("('job-1',)", [["job-1"], {}, NOTHING])
    assert dispatcher.check() == before + 1
    assert "dropped" in caplog.text
    for told in ("os.system", "../../x", "soon", "job-2"):
        assert told not in caplog.text


@pytest.mark.parametrize("task", ["lethe.sweep", "lethe.retention"])
def test_what_the_schedule_sends_has_no_id_and_no_end(task: str) -> None:
    """A worker whose clock is ahead of the sender's would drop each of them."""
    headers = {"task": task, "expires": "2026-01-01T00:00:00+00:00"}
    built = rebuild(raw(headers=headers, body=body([[], {}, NOTHING])), "cpu")
    assert (built["headers"]["task"], built["headers"]["expires"]) == (task, None)
    with pytest.raises(MessageRefusedError):
        rebuild(raw(headers=headers), "cpu")  # with the id of a job
    with pytest.raises(MessageRefusedError):
        rebuild(raw(headers=headers, body=body([[], {}, NOTHING])), "silo-0")


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_what_is_no_file_is_dropped(data_dir: Path, kind: str) -> None:
    celery = make_celery(Settings(data_dir=data_dir))
    folder, elsewhere = data_dir / "broker", data_dir / "elsewhere"
    elsewhere.write_bytes(raw())
    path = folder / "!x.cpu.msg"
    if kind == "directory":
        (path / "more").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere)
    dispatcher = Dispatcher(lambda: celery)
    dispatcher.nudge("job-1")
    dispatcher.close()
    assert read_one(celery)[0] == "('job-1',)"
    assert dispatcher.check() == 1
    assert list(folder.iterdir()) == []
    assert elsewhere.exists()


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "directory"])
def test_what_has_the_counts_name_and_is_no_file_is_neither_written_nor_waited_for(
    data_dir: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    celery = make_celery(Settings(data_dir=data_dir))
    path, key = data_dir / "broker-control" / REFUSED, data_dir / "log.key"
    key.write_bytes(b"-----BEGIN PRIVATE KEY-----")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(key if kind == "link" else data_dir / "restored")
    (data_dir / "broker" / "!x.cpu.msg").write_bytes(b"poison")
    dispatcher = Dispatcher(lambda: celery)
    dispatcher.nudge("job-1")
    dispatcher.close()
    assert read_one(celery)[0] == "('job-1',)"
    assert dispatcher.check() == 0
    assert key.read_bytes() == b"-----BEGIN PRIVATE KEY-----"
    assert not (data_dir / "restored").exists()
    assert "remove it" in caplog.text


@pytest.mark.parametrize("name", ["no JSON", "unknown task", "no headers"])
def test_poison_among_what_nobody_acknowledged_is_not_put_back(
    data_dir: Path, redis_url: str, name: str
) -> None:
    celery = make_celery(Settings(data_dir=data_dir, broker_url=redis_url))
    kept = json.dumps([message(), "", "cpu"]).encode()
    planted = POISON[name]
    if name != "no JSON":
        planted = json.dumps([json.loads(planted), "", "cpu"]).encode()
    with Redis.from_url(redis_url) as client:
        for tag, content in (("1", planted), ("2", kept)):
            client.hset("unacked", tag, content)
            client.zadd("unacked_index", {tag: 1})
        with celery.connection_for_read() as connection:
            connection.default_channel.qos.restore_visible()
        assert client.hlen("unacked") == 0
        (restored,) = client.lrange("cpu", 0, -1)
    assert rebuild(restored, "cpu")["headers"]["task"] == "lethe.execute"
    assert Dispatcher(lambda: celery).check() == 1


def test_nothing_of_a_message_survives_but_task_id_and_argument() -> None:
    more = {"callbacks": [{"task": "os.system"}], "errbacks": None, "chain": [1], "chord": None}
    whole = message(
        body=body([["job-1"], {}, more]),
        headers={"timelimit": "x", "retries": "y", "shadow": "z", "stamps": 7, "group": []},
        properties={"reply_to": "x", "delivery_info": 7},
    )
    assert "os.system" not in str(base64.b64decode(rebuild(json.dumps(whole), "cpu")["body"]))
    plain = rebuild(json.dumps(message()), "cpu")
    built = rebuild(json.dumps(whole), "cpu")
    for one in (plain, built):
        del one["properties"]["delivery_tag"]
    assert plain == built


def test_a_silos_queue_holds_questions_only() -> None:
    asked = raw(headers={"task": "lethe.answer"})
    assert rebuild(asked, "silo-3")["headers"]["task"] == "lethe.answer"
    with pytest.raises(MessageRefusedError, match="not a task"):
        rebuild(raw(), "silo-3")


def test_a_model_that_had_its_turn_comes_after_all_others(
    place: tuple[Celery, Callable[[bytes], None]],
) -> None:
    celery, _ = place
    dispatcher = Dispatcher(lambda: celery)
    dispatcher.nudge("backlog-1", last=True)
    dispatcher.nudge("other-1")
    dispatcher.nudge("backlog-2", last=True)
    dispatcher.nudge("other-2")
    dispatcher.close()
    found = [read_one(celery)[1][0][0] for _ in range(4)]
    assert found == ["other-1", "other-2", "backlog-1", "backlog-2"]


def test_a_full_disk_leaves_no_parts_of_messages(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    celery = make_celery(Settings(data_dir=data_dir))

    def full(path: Path, *_: Any) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    dispatcher = Dispatcher(lambda: celery)
    for number in range(3):
        dispatcher.nudge(f"job-{number}")
    dispatcher.close()
    assert caplog.text.count("nudge not sent") == 3
    assert list((data_dir / "broker").iterdir()) == []


def test_an_empty_queue_is_empty(place: tuple[Celery, Callable[[bytes], None]]) -> None:
    celery, put = place
    put(b"{}")
    with celery.connection_for_read() as connection:
        waiting = connection.SimpleQueue("cpu")
        with pytest.raises(queue.Empty):
            waiting.get(timeout=0.2)
        waiting.close()


WRONG_KEYS = [
    "cpu",
    "cpu\x06\x169",
    "unacked",
    "unacked_index",
    "_kombu.binding.cpu",
    "_kombu.binding_permanent.cpu",
]


@pytest.mark.parametrize("key", WRONG_KEYS)
def test_a_key_of_another_type_is_deleted_as_a_worker_starts(
    data_dir: Path, redis_url: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    celery = make_celery(Settings(data_dir=data_dir, broker_url=redis_url))
    with Redis.from_url(redis_url) as client:
        if key in ("cpu", "cpu\x06\x169"):
            client.sadd(key, "os.system")
        else:
            client.set(key, "os.system")
        with celery.connection_for_read() as connection:
            queue = celery.amqp.queues["cpu"](connection.default_channel)
            queue.declare()
        assert client.type(key) == (b"set" if key.startswith("_kombu") else b"none")
    dispatcher = Dispatcher(lambda: celery)
    dispatcher.nudge("job-1")
    dispatcher.close()
    assert read_one(celery)[0] == "('job-1',)"
    assert "was deleted" in caplog.text
    assert "os.system" not in caplog.text


@pytest.mark.parametrize("planted", ["x", "1e3", str(2**63 - 1), ["x"]])
def test_a_count_that_is_not_lethes_neither_ends_a_worker_nor_the_check(
    data_dir: Path, redis_url: str, planted: str | list[str]
) -> None:
    celery = make_celery(Settings(data_dir=data_dir, broker_url=redis_url))
    dispatcher = Dispatcher(lambda: celery)
    with Redis.from_url(redis_url) as client:
        if isinstance(planted, str):
            client.set("lethe.refused", planted)
        else:
            client.lpush("lethe.refused", *planted)
        dispatcher.check()
        client.lpush("cpu", b"poison")
        dispatcher.nudge("job-1")
        dispatcher.close()
        assert read_one(celery)[0] == "('job-1',)"
    assert dispatcher.check() == 1


WORKER = """
import sys
from app.dispatch import make_celery
from app.settings import Settings
app = make_celery(Settings())
@app.task(name="lethe.execute")
def execute(job): print("ran", job, flush=True, file=sys.__stdout__)
options = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
app.worker_main(["--quiet", "worker", "--pool", "solo", "--loglevel", "WARNING", "-Q", "cpu", *options])
"""


def test_a_key_of_another_type_does_not_end_a_worker(data_dir: Path, redis_url: str) -> None:
    """One SET by whoever writes the broker ended every worker, with status 0."""
    celery = make_celery(Settings(data_dir=data_dir, broker_url=redis_url))
    dispatcher = Dispatcher(lambda: celery)
    environment = {**os.environ, "LETHE_BROKER_URL": redis_url, "LETHE_DATA_DIR": str(data_dir)}
    command = [sys.executable, "-c", WORKER]
    with (
        Redis.from_url(redis_url) as client,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            dispatcher.nudge("job-1")
            assert process.stdout.readline() == "ran job-1\n"
            client.set("cpu", "x")
            until = time.monotonic() + 60  # the waiting BRPOP ends after 10 s at most
            while client.exists("cpu") and process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            dispatcher.nudge("job-2")
            assert process.stdout.readline() == "ran job-2\n"
        finally:
            process.terminate()
            dispatcher.close()
        said = process.stderr.read()
    assert "ResponseError" in said
    assert "was deleted" in said
