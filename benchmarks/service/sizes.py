"""Models of different sizes: their registration, and one erasure from each.

Registration is measured on a fresh installation with one worker, of REGISTERED rows, or of
LARGE in a quick run: seconds from the first byte to the first version, seconds until the API's
answer, and by how much the peaks of the API's and of the worker's resident memory rise (VmHWM
of proc(5), reset before). The body is made before.

    python -m benchmarks.service.sizes 5000000

registers a model of so many rows and erases one of them with a worker that did nothing before:
what both take at most, in mebibytes, and the seconds.

Of an erasure it is the whole, and what execution alone takes. Times are the log's own, between
the events of one request: `request.received` to `request.certified`, and `request.executing`
to `request.executed`. The worker's peak rises by what grows with n, if anything does.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.service.installation import Installation
from lethe.client import Client

COLUMNS = 64
REPEATED = 5  # erasures of each model, one after the other
SMALL, LARGE = 1_000, 100_000
REGISTERED = 500_000  # rows


def register(folder: Path, rows: int) -> dict[str, float]:
    """Return seconds and mebibytes of the registration of a model of so many rows on SQLite."""
    installation = Installation(folder / "registered", {"LETHE_PUBLIC_URL": ""})
    small = installation.prepare("small", SMALL, COLUMNS)
    made = installation.prepare("registered", rows, COLUMNS)
    with installation.serving(workers=1) as (port,), installation.client(port) as client:
        # What a first registration imports in either process is no part of it.
        client.register_model(small.manifest, small.npz)
        while client.model("small")["state"] == "registered":
            time.sleep(0.2)
        before = _begin_peaks(installation)
        start = time.perf_counter()
        client.register_model(made.manifest, made.npz)
        answered = time.perf_counter() - start
        while client.model("registered")["state"] == "registered":
            time.sleep(0.2)
        fitted = time.perf_counter() - start
        api, worker = _peaks(before)
        name = f"{rows // 1000}k"
        return {
            f"register_seconds_{name}": fitted,
            f"register_answer_seconds_{name}": answered,
            "register_peak_mib": api,
            "register_worker_peak_mib": worker,
        }


def _begin_peaks(installation: Installation) -> dict[Path, float]:
    """Reset the peaks of the installation's processes; return what each has resident now."""
    processes = [Path(f"/proc/{pid}") for pid in installation.pids]
    for process in processes:
        (process / "clear_refs").write_text("5")
    return {process: _memory(process, "VmRSS") for process in processes}


def _peaks(before: Mapping[Path, float]) -> list[float]:
    """Return by how many mebibytes each process has risen at most since then."""
    return [_memory(process, "VmHWM") - resident for process, resident in before.items()]


def _memory(process: Path, field: str) -> float:
    lines = (process / "status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def measure(folder: Path, sizes: Sequence[int]) -> dict[str, float | list[float]]:
    """Return seconds for models of so many rows on SQLite, SMALL and LARGE among them."""
    # The client signs for the address that it calls.
    installation = Installation(folder / "sizes", {"LETHE_PUBLIC_URL": ""})
    whole: dict[int, float] = {}
    execute: dict[int, list[float]] = {}
    peaks: dict[int, float] = {}
    with installation.serving(workers=1) as (port,):
        for rows in sizes:
            records = installation.register(port, f"rows-{rows}", rows, COLUMNS)
            with installation.client(port) as client:
                before = _begin_peaks(installation)
                timed = [
                    _erase(installation, client, f"rows-{rows}", record)
                    for record in records[:REPEATED]
                ]
                _, peaks[rows] = _peaks(before)
            whole[rows] = median(seconds for seconds, _ in timed)
            execute[rows] = [seconds for _, seconds in timed]
    pairs = zip(execute[LARGE], execute[SMALL], strict=True)
    return {
        **{f"erasure_seconds_{rows // 1000}k": seconds for rows, seconds in whole.items()},
        **{f"erasure_worker_peak_mib_{rows // 1000}k": mib for rows, mib in peaks.items()},
        "execute_growth_100k_over_1k": median(execute[LARGE]) / median(execute[SMALL]),
        "execute_growth_100k_over_1k_rounds": [large / small for large, small in pairs],
    }


def _erase(
    installation: Installation, client: Client, ref: str, record: str
) -> tuple[float, float]:
    """Return the seconds from submission to certificate, and of execution."""
    accepted = client.submit_erasure(ref, records=[record])
    client.wait(accepted.id, timeout=600)
    at = installation.event_times(accepted.id)
    return (
        (at["request.certified"] - at["request.received"]).total_seconds(),
        (at["request.executed"] - at["request.executing"]).total_seconds(),
    )


def once(folder: Path, rows: int) -> dict[str, float]:
    """Return seconds and the worker's largest memory of a registration and of one erasure."""
    size = 8 * COLUMNS * rows
    limits = {"LETHE_MAX_UPLOAD_BYTES": str(size), "LETHE_MAX_HELD_BYTES": str(2 * size)}
    patient = {"LETHE_BODY_TIMEOUT_SECONDS": "3600", "LETHE_PUBLIC_URL": ""}
    installation = Installation(folder / "once", {**limits, **patient})
    with installation.serving(workers=1) as (port,):
        start = time.perf_counter()
        record = installation.register(port, "rows", rows, COLUMNS)[0]
        registered = time.perf_counter() - start
        _, learning = (_memory(Path(f"/proc/{pid}"), "VmHWM") for pid in installation.pids)
    with installation.serving(workers=1) as (port,), installation.client(port) as client:
        whole, execute = _erase(installation, client, "rows", record)
        _, erasing = (_memory(Path(f"/proc/{pid}"), "VmHWM") for pid in installation.pids)
    return {
        "register_seconds": registered,
        "register_worker_mib": learning,
        "erasure_seconds": whole,
        "execute_seconds": execute,
        "erasure_worker_mib": erasing,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for name, value in once(Path(made), int(sys.argv[1])).items():
            print(f"{name:24} {value:10.1f}")
