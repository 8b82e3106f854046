"""Time, memory and file sizes of a case of a person whose identity is on very many rows.

    python -m benchmarks.large_case [--records 10000,100000]

One process for each size, on SQLite: a ridge head learns that many rows of one person and as
many of others, and the person's case is opened, executed, verified and certified. Times are
wall-clock seconds, processor seconds in brackets.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from app.ledger.startup import init_log
from app.settings import Settings
from lethe.identity import WIDTH, digests, pack
from migrations.runner import upgrade
from models.database.session import make_engine
from tests.installation import Installation, install
from tests.small import rows

PERSON = {"kind": "email", "value": "ann@example.org"}
GIB = 1 << 30


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", default="10000,100000", help="Sizes, comma-separated.")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only is not None:
        measure(arguments.only)
        return
    for size in map(int, arguments.records.split(",")):
        command = [sys.executable, "-m", "benchmarks.large_case", "--only", str(size)]
        subprocess.run(command, check=True)


def measure(size: int) -> None:
    """Print what a case of `size` records takes in this process."""
    print(f"{size:,} records of one person, of {2 * size:,} rows")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            data_dir=Path(folder) / "data", origin="localhost/large", decide="at-once",
            max_contribution_rows=2 * size,
        )  # fmt: skip
        begin(settings)
        with install(settings) as made:
            learn(made, size)
            with timed("opening the case"):
                request = open_case(made)
            with timed("execution to certificate"):
                made.drain()
            certificate = made.caller.http.get(f"/v1/requests/{request}/certificate")
            assert certificate.status_code == 200, certificate.text
            evidence = made.caller.http.get(f"/v1/requests/{request}/evidence").content
            print(f"  {'evidence':26} {len(evidence) / 1e6:8.1f} MB")
    print(f"  {'largest memory':26} {peak() / GIB:8.2f} GiB", flush=True)


def begin(settings: Settings) -> None:
    """Create the tables and an empty log."""
    settings.made_data_dir()
    engine = make_engine(settings.resolved_database_url)
    upgrade(engine)
    engine.dispose()
    init_log(settings)


def learn(made: Installation, size: int) -> None:
    """Register a model of 2 * size rows; every other one is the person's."""
    arrays = rows(count=2 * size)
    column = np.zeros((2 * size, WIDTH), np.uint8)
    column[::2] = np.frombuffer(pack(digests(**PERSON)), np.uint8)
    arrays["identity_email"] = column
    made.ready(arrays=arrays)


def open_case(made: Installation) -> str:
    """Open the person's case; return the request that it has."""
    person = {name: digest.hex() for name, digest in digests(**PERSON).items()}
    body = {
        "person": {"kind": PERSON["kind"], **person},
        "ticket": "T-1", "checked": "by telephone", "contact": "Ann",
    }  # fmt: skip
    answer = made.caller.operator("POST", "/v1/cases", json=body)
    assert answer.status_code == 201, answer.text
    [part] = answer.json()["parts"]
    return str(part["request"])


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long a block took."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"  {what:26} {wall:8.1f} s ({processor:.1f})", flush=True)


def peak() -> int:
    """Return the largest resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
