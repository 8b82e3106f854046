"""Time from submission to certificate, and of one offline verification as a process.

    python -m benchmarks.submission [--requests N] [--json FILE]

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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), arguments.requests)
    for name, value in measured.items():
        print(f"{name:44} {value:8.3f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")


def measure(folder: Path, requests: int) -> dict[str, float]:
    """Return seconds: medians and 95th percentile of submissions, medians of processes."""
    service = LocalService(folder / "data", folder / "service.log")
    (folder / "data").mkdir()
    service.run_cli("migrate")
    service.run_cli("log", "init")
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
            seconds = [submit(client, record) for record in prepared.records[:requests]]
            status = next(iter(client.requests(state="certified")))
            bundle = folder / "certificate.sigstore.json"
            bundle.write_bytes(client.certificate(str(status.id)))
    finally:
        service.stop()
    keys = str(folder / "data" / "keys")
    lethe = [sys.executable, "-m", "lethe.cli.main"]
    verify = [*lethe, "certificate", "verify", str(bundle), "--keys", keys]
    ordered = sorted(seconds)
    return {
        "submission to certificate, median s": statistics.median(seconds),
        "submission to certificate, 95th percentile s": ordered[int(0.95 * len(ordered))],
        "lethe certificate verify, whole process s": process(verify),
        "python -c pass, whole process s": process([sys.executable, "-c", "pass"]),
    }


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
