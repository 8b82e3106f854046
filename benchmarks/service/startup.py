"""How long the processes take to start, beside the least that their libraries take.

Ready means: the API answered its first call, and the worker took a message that waited for it.
The floors are the interpreter alone, and FastAPI with SQLModel and one route, in the same run.
Contenders take turns, files are in the page cache, and bytecode is compiled.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from app.dispatch import Dispatcher, make_celery
from app.settings import Settings
from benchmarks.service.installation import Installation
from tests.servers import free_port

LIMIT_S = 60.0
POLL_S = 0.005
TICKS = os.sysconf("SC_CLK_TCK")
Spent = tuple[float, float]  # seconds until ready, and of processor time until then


def measure(folder: Path, rounds: int) -> dict[str, float | list[float]]:
    """Return seconds until ready, processor seconds and ratios: medians of `rounds` starts.

    What is started first warms the caches and is not counted.
    """
    installation = Installation(folder / "startup", {"LETHE_PUBLIC_URL": ""})
    # Set, it would have each process compile every module again.
    installation.environment.pop("PYTHONDONTWRITEBYTECODE", None)
    certificate = _certificate(installation)
    starts: dict[str, Callable[[], Spent]] = {
        "pass": lambda: _process(installation, ["-c", "pass"]),
        "verify_process": lambda: _process(installation, certificate),
        "bare_ready": lambda: _bare(installation, folder / "startup-bare.sqlite"),
        "api_ready": lambda: _api(installation),
        "worker_ready": lambda: _worker(installation),
    }
    spent: dict[str, list[Spent]] = {name: [] for name in starts}
    for turn in range(rounds + 1):
        for name, start in starts.items():
            one = start()
            if turn:
                spent[name].append(one)
    found: dict[str, float | list[float]] = {}
    for name, values in spent.items():
        found[f"{name}_seconds"] = median(wall for wall, _ in values)
        found[f"{name}_cpu_seconds"] = median(cpu for _, cpu in values)
    for name, floor in (("api", "bare"), ("worker", "bare")):
        found |= _ratio(f"{name}_start_ratio", spent[f"{name}_ready"], spent[f"{floor}_ready"])
    return found | _ratio("verify_start_ratio", spent["verify_process"], spent["pass"])


def _ratio(
    name: str, ours: Sequence[Spent], floor: Sequence[Spent]
) -> dict[str, float | list[float]]:
    """Return the ratio of processor times: other processes disturb durations more."""
    rounds = [mine / least for (_, mine), (_, least) in zip(ours, floor, strict=True)]
    return {name: median(rounds), f"{name}_rounds": rounds}


def _certificate(installation: Installation) -> list[str]:
    """Have a certificate issued; return the command that verifies it."""
    with installation.serving(workers=1) as (port,):
        records = installation.register(port, "startup", 300)
        with installation.client(port) as client:
            accepted = client.submit_erasure("startup", records=records[:1])
            client.wait(accepted.id)
            file = installation.folder / "certificate.json"
            file.write_bytes(client.certificate(accepted.id))
        base = f"http://127.0.0.1:{port}"
        keys = {"log.vkey": "/v1/log/vkey", "issuer.pem": "/v1/certificates/issuer"}
        for name, path in keys.items():
            with urlopen(base + path, timeout=LIMIT_S) as answer:
                (installation.folder / name).write_bytes(answer.read())
    verify = ["-m", "lethe.cli.main", "certificate", "verify", str(file)]
    return [*verify, "--keys", str(installation.folder)]


def _process(installation: Installation, arguments: Sequence[str]) -> Spent:
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=installation.environment,
        stdout=subprocess.DEVNULL,
        cwd=installation.folder,
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments[:4]} ended with {process.returncode}")
    return took, used.ru_utime + used.ru_stime


def _api(installation: Installation) -> Spent:
    port = free_port()
    command = ["-m", "lethe.cli.main", "serve", "--port", str(port)]
    with running(installation, command) as (process, begun):
        return _until(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), process, begun)


def _bare(installation: Installation, database: Path) -> Spent:
    port = free_port()
    installation.environment["LETHE_BARE_URL"] = f"sqlite:///{database}"
    # From here, where `benchmarks` is.
    command = ["-m", "benchmarks.service.bare", str(port)]
    with running(installation, command) as (process, begun):
        return _until(lambda: _answers(f"http://127.0.0.1:{port}/rows"), process, begun)


def _worker(installation: Installation) -> Spent:
    data = installation.folder / "data"
    dispatcher = Dispatcher(lambda: make_celery(Settings(data_dir=data)))
    dispatcher.nudge("no-such-job")
    dispatcher.close()
    waiting = data / "broker"
    if not any(waiting.iterdir()):
        raise RuntimeError("no message waits for the worker")
    with running(installation, ["-m", "lethe.cli.main", "worker"]) as (process, begun):
        return _until(lambda: not any(waiting.iterdir()), process, begun)


@contextmanager
def running(
    installation: Installation, arguments: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Run Python with these arguments; yield the process and when it was started."""
    with (installation.folder / "startup.log").open("ab") as log:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], env=installation.environment, stdout=log, stderr=log
        )
        try:
            yield process, begun
        finally:
            process.terminate()
            process.wait()


def _until(ready: Callable[[], bool], process: subprocess.Popen[bytes], begun: float) -> Spent:
    while not ready():
        if process.poll() is not None or time.perf_counter() - begun > LIMIT_S:
            raise RuntimeError("a process did not start: see startup.log")
        time.sleep(POLL_S)
    took = time.perf_counter() - begun
    # utime and stime of proc(5); the name in parentheses may hold spaces.
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return took, (int(fields[11]) + int(fields[12])) / TICKS


def wait_for_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return once a started process answers there. Raises RuntimeError if it does not."""
    _until(lambda: _answers(url), process, time.perf_counter())


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=LIMIT_S):
            return True
    except HTTPError:  # 405: it routes
        return True
    except (URLError, ConnectionError):
        return False
