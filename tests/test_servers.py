"""The servers that the other tests rest on are real, fresh and private to this run."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from redis import Redis
from sqlalchemy import make_url, text

from models.database.session import make_engine
from tests import servers
from tests.servers import NoServerError, postgres_server, redis_server


def test_redis_is_real_and_empty(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        assert client.info("server")["redis_version"]
        assert client.dbsize() == 0
        client.set("left", "behind")


def test_redis_is_emptied_for_each_test(redis_url: str) -> None:
    with Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("_", range(2))
def test_each_test_has_its_own_migrated_postgresql_database(postgres_url: str, _: int) -> None:
    engine = make_engine(postgres_url)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM bearer_tokens")).scalar() == 0
        connection.execute(
            text("INSERT INTO bearer_tokens VALUES ('d', 'operator', 'n', now(), NULL, 'm')")
        )
    engine.dispose()


def test_a_server_given_by_url_is_used_and_left_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with postgres_server() as url:
        monkeypatch.setenv("LETHE_TEST_POSTGRES_URL", url)
        with postgres_server() as same:
            assert same == url
        assert _answers(url)
        directory = Path(str(make_url(url).query["host"]))
        monkeypatch.delenv("LETHE_TEST_POSTGRES_URL")
    assert not directory.exists()
    monkeypatch.setenv("LETHE_TEST_REDIS_URL", "redis://elsewhere/3")
    with redis_server() as given:
        assert given == "redis://elsewhere/3"


def test_data_lie_in_memory_only_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "MEMORY", tmp_path)
    assert servers.in_memory(1) == tmp_path
    assert servers.in_memory(2**62) is None
    monkeypatch.setattr(servers, "MEMORY", tmp_path / "absent")
    assert servers.in_memory(1) is None


def test_programs_are_not_put_where_none_may_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "MEMORY", tmp_path)
    here = os.statvfs(tmp_path)
    named = {name: getattr(here, name) for name in dir(here) if name.startswith("f_")}
    for flag, place in ((0, tmp_path), (os.ST_NOEXEC, None)):
        mounted = SimpleNamespace(**{**named, "f_flag": flag})
        monkeypatch.setattr(os, "statvfs", lambda _, mounted=mounted: mounted)
        assert servers.in_memory(1, programs=True) == place
        assert servers.in_memory(1) == tmp_path


def test_binaries_on_the_path_serve_where_no_wheel_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = servers.postgres_binaries()
    redis = servers.redis_binary()
    monkeypatch.setattr(servers, "find_spec", lambda package: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for find in (servers.postgres_binaries, servers.redis_binary):
        with pytest.raises(NoServerError, match="dev extra"):
            find()
    (tmp_path / "postgres").symlink_to(folder / "postgres")  # as Debian's alternatives do
    (tmp_path / "redis-server").symlink_to(redis)
    assert servers.postgres_binaries() == folder
    assert servers.redis_binary().resolve() == redis


def test_a_server_that_does_not_start_shows_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "redis_binary", lambda: Path("/bin/false"))
    with pytest.raises(NoServerError, match="/bin/false did not start"), redis_server():
        pytest.fail("nothing serves here")


def test_where_the_binaries_are_closed_to_others_a_copy_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As root PostgreSQL runs as another user, who may not see a checkout below /root."""
    if servers.unprivileged_user() is None:
        return  # nobody else needs to see it
    installed = servers.postgres_binaries().parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = installed.parent.name
    for name in (package, f"{package}.libs"):
        (closed / name).symlink_to(installed.parent.with_name(name))
    binaries = closed / package / installed.name / "bin"
    monkeypatch.setattr(servers, "postgres_binaries", lambda: binaries)
    before = os.umask(0o077)  # as it is once something in this process has dispatched
    try:
        with postgres_server() as url:
            directory = Path(str(make_url(url).query["host"]))
            assert list(directory.glob("install/*/*/bin/postgres"))
            assert _answers(url)
    finally:
        os.umask(before)


def _answers(url: str) -> bool:
    engine = make_engine(url)
    with engine.connect() as connection:
        answer = connection.execute(text("SELECT 1")).scalar()
    engine.dispose()
    return answer == 1


def test_a_stopped_server_is_gone() -> None:
    with redis_server() as url:
        port = make_url(url).port
    listening = subprocess.run(
        ["/bin/sh", "-c", f"cat /proc/net/tcp | grep -i ':{port:04X} .* 0A '"],
        check=False,
        capture_output=True,
    )
    assert listening.stdout == b""
