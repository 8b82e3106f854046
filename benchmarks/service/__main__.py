"""Measure the service under load.

    python -m benchmarks.service [--quick] [--json FILE]

Each figure stands beside a floor of the same run, for machines differ and are noisy: compare
ratios. Servers are started here, with every commit synced to the disk.
"""

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.service import certification, log, submissions


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests and rounds")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    requests, rounds = (200, 2) if arguments.quick else (600, 5)
    waiting = (300, 15.0) if arguments.quick else (1000, 60.0)
    with tempfile.TemporaryDirectory() as folder:
        found = submissions.measure(Path(folder), requests, rounds)
        found |= certification.measure(Path(folder), *waiting)
        found |= log.measure(Path(folder) / "log", 1_000_000 if arguments.quick else 10_000_000)
    for name, value in found.items():
        print(f"{name:40} {value:10.3f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
