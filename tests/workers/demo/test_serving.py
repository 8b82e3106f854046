"""A running service keeps its directory; a process id reused by another program does not."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.demo import serving
from workers.demo.directory import make_directory
from workers.demo.service import DemoError

WAITS = "import sys; print(flush=True); sys.stdin.read()"


def record(out: Path, pid: int, base_url: str = "http://127.0.0.1:1") -> Path:
    ready = out / "data" / serving.READY
    ready.write_text(json.dumps({"base_url": base_url, "pid": pid}))
    return ready


@pytest.fixture
def out(tmp_path: Path) -> Path:
    make_directory(tmp_path / "out", None)
    (tmp_path / "out" / "certificates" / "kept").write_text("kept")
    return tmp_path / "out"


@pytest.fixture
def service(out: Path) -> Iterator[int]:
    """A process with the arguments of a service of `out`."""
    ready = (out / "data" / serving.READY).resolve()
    command = [sys.executable, "-c", WAITS, "serve", "--ready-file", str(ready)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # its arguments are readable from here on
        yield process.pid


def test_the_directory_of_a_running_service_is_left_alone(out: Path, service: int) -> None:
    record(out, service)
    with pytest.raises(DemoError, match=rf"out belongs to .* process {service}: .*kill"):
        make_directory(out, None)
    assert (out / "certificates" / "kept").exists()


def test_its_number_may_have_gone_to_another_program(out: Path) -> None:
    record(out, os.getpid())
    make_directory(out, None)
    assert not (out / "certificates" / "kept").exists()


def test_a_service_of_another_directory_is_another_program(
    out: Path, service: int, tmp_path: Path
) -> None:
    make_directory(tmp_path / "other", None)
    record(tmp_path / "other", service)
    make_directory(tmp_path / "other", None)


def test_where_no_arguments_are_shown_the_address_must_answer(
    out: Path, tmp_path: Path
) -> None:
    data, absent = out / "data", tmp_path / "no-proc"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        record(out, os.getpid(), address)
        assert serving.serving_pid(data, absent) == os.getpid()
        with subprocess.Popen([sys.executable, "-c", ""]) as ended:
            pass
        record(out, ended.pid, address)
        assert serving.serving_pid(data, absent) is None
    record(out, os.getpid(), address)
    assert serving.serving_pid(data, absent) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"pid": null, "base_url": ""}', '{"pid": -1, "base_url": ""}'],
)
def test_a_record_that_names_no_process_is_none(out: Path, text: str) -> None:
    (out / "data" / serving.READY).write_text(text)
    assert serving.serving_pid(out / "data") is None
