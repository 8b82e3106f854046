"""Flame graphs: where a submission's time goes, a bare insert's beside it, and a certificate's.

py-spy samples a running process from outside, so what is measured runs as it would without.
It needs the right to trace other processes: root, or CAP_SYS_PTRACE.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from sqlalchemy import create_engine

from benchmarks.service.certification import count_certified
from benchmarks.service.installation import Installation, post
from benchmarks.service.load import drive
from benchmarks.service.servers import created_database
from benchmarks.service.startup import running, wait_for_answer
from tests.servers import free_port, postgres_server, redis_server

CONNECTIONS = 8
MODEL = "flames"
RATE = 200  # samples a second
AT_ONCE = 200  # requests prepared and sent together
CERTIFIED_S = 300.0  # until the first certificates: what waits is certified together
LEAST_SHARE = 0.5  # percent of the samples; narrower frames are left out, they have no text
_FRAME = re.compile(r"<g><title>[^<]*\([\d,]+ samples, ([\d.]+)%\)</title>.*?</g>", re.DOTALL)
_TITLE = re.compile(r"(?<=>)[^<>]*\bpy-spy record[^<]*")
_ABSOLUTE = re.compile(r"(?<=\()/[^():&]*/(?=[^/():&]+\.py)")


def record(folder: Path, out: Path, seconds: int) -> list[str]:
    """Write service-flame-*.svg to `out`, each over `seconds`; return their names.

    Raises:
        RuntimeError: py-spy failed; its own words went to standard error.
    """
    with postgres_server(durable=True) as server, redis_server() as broker:
        urls = [
            created_database(server, name) for name in ("lethe_flames", "lethe_bare_flames")
        ]
        environment = {"LETHE_DATABASE_URL": urls[0], "LETHE_BROKER_URL": broker}
        installation = Installation(folder / "flames", environment)
        with installation.serving(workers=1) as (port,):
            records = iter(installation.register(port, MODEL, 1000 * seconds))

        def submissions() -> list[bytes]:
            return [installation.submission(MODEL, one) for one in islice(records, AT_ONCE)]

        with installation.serving() as ports:
            pid = json.loads((installation.folder / "ready-0.json").read_text())["pid"]
            accepted = _sample(
                pid, seconds, out, "submission", lambda: _send(ports, submissions())
            )
        installation.environment["LETHE_BARE_URL"] = urls[1]
        port = free_port()
        command = ["-m", "benchmarks.service.bare", str(port)]
        with running(installation, command) as (process, _):
            wait_for_answer(f"http://127.0.0.1:{port}/rows", process)
            bare = _sample(process.pid, seconds, out, "bare", lambda: _send([port], _rows()))
        # What was accepted above waits. The sweep finds it once the worker is there.
        command = ["-m", "lethe.cli.main", "worker", "--beat"]
        with running(installation, command) as (process, _):
            _wait_for_certificate(urls[0])  # its start is not the picture's subject
            certified = _sample(process.pid, seconds, out, "certificate", lambda: None)
    return [accepted, bare, certified]


def _wait_for_certificate(url: str) -> None:
    engine = create_engine(url)
    try:
        before, deadline = count_certified(engine), time.monotonic() + CERTIFIED_S
        while count_certified(engine) == before:
            if time.monotonic() > deadline:
                raise RuntimeError("no certificate was issued: see startup.log")
            time.sleep(0.1)
    finally:
        engine.dispose()


def _send(ports: Sequence[int], requests: list[bytes]) -> None:
    drive(ports, requests, CONNECTIONS)


def _rows() -> list[bytes]:
    headers = {"content-type": "application/json"}
    return [post("/rows", headers, b'{"model":"load","record":"r"}')] * AT_ONCE


def _sample(pid: int, seconds: int, out: Path, name: str, load: Callable[[], None]) -> str:
    """Sample a process, under `load` again and again, into service-flame-NAME.svg."""
    load()  # what is loaded with the first calls is no part of the picture
    file = out / f"service-flame-{name}.svg"
    # With the interpreter's lock only: threads that wait for work are no part of it.
    options = ["--gil", "--duration", str(seconds), "--rate", str(RATE), "--output", str(file)]
    command = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid)]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as sampler:
        while sampler.poll() is None:
            load()
            if sampler.poll() is None:
                _pause(sampler)
    if sampler.returncode:
        raise RuntimeError(f"py-spy ended with {sampler.returncode}")
    wide = _FRAME.sub(
        lambda frame: frame[0] if float(frame[1]) >= LEAST_SHARE else "", file.read_text()
    )
    # Paths of this machine are nobody's business; py-spy's command line is the title.
    file.write_text(_TITLE.sub(f"{name}, {RATE} samples a second", _ABSOLUTE.sub("", wide)))
    return file.name


def _pause(sampler: subprocess.Popen[bytes]) -> None:
    try:
        sampler.wait(0.01)
    except subprocess.TimeoutExpired:
        return
