"""Measure the service: start-up, load, certificates.

    python -m benchmarks.service [--quick] [--json FILE] [--page FILE]

Each figure stands beside a floor of the same run, for machines differ and are noisy: compare
ratios. Servers are started here, with every commit synced to the disk. A name that ends in
`_rounds` has one value for each round of the ratio before it: `benchmarks.service.report` takes
the noise from them.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.service import (
    certification,
    flames,
    log,
    report,
    scale,
    sizes,
    startup,
    submissions,
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests and rounds")
    parser.add_argument("--json", type=Path, help="write every value, for `report check`")
    parser.add_argument(
        "--page",
        type=Path,
        help="write the report there, with figures and flame graphs beside it; a full run adds "
        "a quick one, which `make bench-check` compares with",
    )
    arguments = parser.parse_args()
    found = measure(quick=arguments.quick)
    if arguments.page is not None and not arguments.quick:
        found["quick_run"] = measure(quick=True)
    show(found)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if arguments.page is not None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                seconds = 5 if arguments.quick else 20
                flames.record(Path(folder), arguments.page.parent, seconds)
            except (OSError, RuntimeError) as error:
                print(f"no new flame graphs: {error}", file=sys.stderr)
        report.write_page(found, arguments.page)


def measure(*, quick: bool) -> dict[str, Any]:
    """Return everything measured in one run, by name."""
    requests, rounds = (200, 2) if quick else (600, 5)
    waiting = (600, 20.0) if quick else (1000, 60.0)
    rows = [sizes.SMALL, sizes.LARGE, *([] if quick else [500_000])]
    found: dict[str, Any] = {"quick": quick, "machine": report.machine()}
    with tempfile.TemporaryDirectory() as folder:
        found |= startup.measure(Path(folder), 3 if quick else 10)
        found |= submissions.measure(Path(folder), requests, rounds)
        found |= certification.measure(Path(folder), *waiting)
        found |= scale.measure(Path(folder), 200 if quick else 1000)
        found |= sizes.register(Path(folder), sizes.LARGE if quick else sizes.REGISTERED)
        found |= sizes.measure(Path(folder), rows)
        found |= log.measure(Path(folder) / "log", 1_000_000 if quick else 10_000_000)
    return found


def show(found: dict[str, Any]) -> None:
    """Print the values, a line each."""
    for name, value in found.items():
        if isinstance(value, float):
            print(f"{name:40} {value:10.3f}")


if __name__ == "__main__":
    main()
