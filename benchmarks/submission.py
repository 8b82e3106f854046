"""Time from submission to certificate, and of one offline verification as a process.

    python -m benchmarks.submission [--ml-dsa] [--requests N] [--json FILE]

An idle embedded service on scikit-learn's digits; each request is sent after the one before
is certified, and asked for every 10 ms. Interpreter start is measured beside the
verification, as that is most of it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.client import Client
from lethe.signing.keys import generate_key
from workers.data.digits import load_digits
from workers.data.extractors.random_relu import RandomRelu
from workers.demo.service import LocalService
from workers.registration.ridge import prepare

POLL = 0.01  # seconds


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--ml-dsa",
        action="store_true",
        help="Compare a log with one key and one with both, request by request.",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = compare if arguments.ml_dsa else measure
        measured = run(Path(folder), arguments.requests)
    for name, value in measured.items():
        print(f"{name:44} {value:8.3f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[Client, list[str]]]:
    """Run a service with a fitted model; yield its client and the model's records.

    options: of `lethe log init`.
    """
    folder.mkdir()
    service = LocalService(folder / "data", folder / "service.log")
    (folder / "data").mkdir()
    service.run_cli("migrate")
    service.run_cli("log", "init", *options)
    created = service.run_cli("token", "new", "--scope", "operator", "--name", "benchmark")
    url = service.start()
    key = generate_key("ed25519")
    prepared = prepare(load_digits(), RandomRelu(64, 256, 0, 1 / 16), ref="digits")
    try:
        with Client(url, "requester", key, token=created.split()[-1]) as client:
            client.register_key(key, keyid="requester")
            client.register_model(prepared.manifest, prepared.npz)
            while client.model("digits")["state"] == "registered":
                time.sleep(POLL)
            yield client, list(prepared.records)
    finally:
        service.stop()


def measure(folder: Path, requests: int) -> dict[str, float]:
    """Return seconds: medians and 95th percentile of submissions, medians of processes."""
    with serving(folder / "service") as (client, records):
        seconds = [submit(client, record) for record in records[:requests]]
        bundle = folder / "certificate.sigstore.json"
        bundle.write_bytes(certificate(client))
    keys = str(folder / "service" / "data" / "keys")
    lethe = [sys.executable, "-m", "lethe.cli.main"]
    verify = [*lethe, "certificate", "verify", str(bundle), "--keys", keys]
    ordered = sorted(seconds)
    return {
        "submission to certificate, median s": statistics.median(seconds),
        "submission to certificate, 95th percentile s": ordered[int(0.95 * len(ordered))],
        "lethe certificate verify, whole process s": process(verify),
        "python -c pass, whole process s": process([sys.executable, "-c", "pass"]),
    }


def compare(folder: Path, requests: int) -> dict[str, float]:
    """Return what the ML-DSA-44 key costs: the same requests in turns, to two services."""
    one: list[float] = []
    both: list[float] = []
    with (
        serving(folder / "one", "--no-ml-dsa") as (first, records),
        serving(folder / "both") as (second, _),
    ):
        for record in records[:requests]:
            one.append(submit(first, record))
            both.append(submit(second, record))
        bytes_of = [len(certificate(client)) for client in (first, second)]
    return {
        "submission to certificate, one key, median s": statistics.median(one),
        "submission to certificate, both keys, median s": statistics.median(both),
        "ratio of the pairs, median": statistics.median(
            b / a for a, b in zip(one, both, strict=True)
        ),
        "certificate, bytes more": bytes_of[1] - bytes_of[0],
    }


def certificate(client: Client) -> bytes:
    """Return the first certificate."""
    status = next(iter(client.requests(state="certified")))
    return client.certificate(str(status.id))


def submit(client: Client, record: str) -> float:
    """Return the seconds from sending a request until its certificate is there."""
    start = time.perf_counter()
    request = client.submit_erasure("digits", records=[record])
    while client.status(request.id).certificate is None:
        time.sleep(POLL)
    return time.perf_counter() - start


def process(command: list[str], runs: int = 9) -> float:
    """Return the median wall-clock seconds of a command."""
    measured = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        measured.append(time.perf_counter() - start)
    return statistics.median(measured)


if __name__ == "__main__":
    main()
