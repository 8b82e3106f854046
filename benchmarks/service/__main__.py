"""Measure the service: start-up, load, certificates.

    python -m benchmarks.service [--quick] [--json FILE] [--page FILE]

Each figure stands beside a floor of the same run, for machines differ and are noisy: compare
ratios. Servers are started here, with every commit synced to the disk. A name that ends in
`_rounds` has one value for each round of the ratio before it: `benchmarks.service.report` takes
the noise from them.

A run that was interrupted continues with the part it was in: each part's values are kept in
build/bench until the run ends, for the same source, machine and sizes. A ratio and its floor
are measured within one part.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
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

ROOT = Path(__file__).parents[2]
KEPT = Path("build", "bench")
ROOMS = ("app", "benchmarks", "lethe", "migrations", "models", "workers")
Part = Callable[[Path], Mapping[str, Any]]


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
    registered = sizes.LARGE if quick else sizes.REGISTERED
    parts: dict[str, Part] = {
        "startup": lambda folder: startup.measure(folder, 3 if quick else 10),
        "submissions": lambda folder: submissions.measure(folder, requests, rounds),
        "certification": lambda folder: certification.measure(folder, *waiting),
        "scale": lambda folder: scale.measure(folder, 200 if quick else 1000),
        "register": lambda folder: sizes.register(folder, registered),
        "sizes": lambda folder: sizes.measure(folder, rows),
        "log": lambda folder: log.measure(folder / "log", 1_000_000 if quick else 10_000_000),
    }
    found = {"quick": quick, "machine": report.machine()}
    return resumed(found, parts, KEPT / ("quick.json" if quick else "full.json"))


def resumed(found: Mapping[str, Any], parts: Mapping[str, Part], kept: Path) -> dict[str, Any]:
    """Return `found` and what each part measures in an empty folder.

    kept: holds the values of finished parts while the others run. Of another source or other
    values in `found` it is not read.
    """
    head = {"source": source_digest(ROOT), **found}
    try:
        past = json.loads(kept.read_text())
    except (OSError, ValueError):
        past = {}
    done: dict[str, Any] = past["parts"] if past.get("head") == head else {}
    for name, part in parts.items():
        if name in done:
            print(f"{name}: measured before the interruption", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            done[name] = dict(part(Path(folder)))
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"head": head, "parts": done}))
        unfinished.replace(kept)
    kept.unlink(missing_ok=True)
    return {**found, **{key: value for one in done.values() for key, value in one.items()}}


def source_digest(root: Path) -> str:
    """Return a digest of all source that is measured, by path and content."""
    digest = hashlib.sha256()
    for path in sorted(one for room in ROOMS for one in (root / room).rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root)} {content}\n".encode())
    return digest.hexdigest()


def show(found: dict[str, Any]) -> None:
    """Print the values, a line each."""
    for name, value in found.items():
        if isinstance(value, float):
            print(f"{name:40} {value:10.3f}")


if __name__ == "__main__":
    main()
