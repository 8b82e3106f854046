"""The same statistics on BLAS, on torch's processor path and on CUDA: bits, then times.

    python -m benchmarks.gpu_statistics [--quick] [--json FILE]

One fit of all rows and one removal of 2,000 of them, on each device that is here. The bits
are compared first; contenders take turns and ratios are of medians. Without a CUDA device
that passes its self-test the run says so and measures the others.
"""

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Literal

import click
import numpy as np

from benchmarks.common import Line, ProblemSize, seconds, tell
from workers.arrays import Rows
from workers.devices import open_device
from workers.methods.ridge.statistics.backend import Backend, BackendError, using
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    statistics_digest,
    subtract,
)
from workers.methods.ridge.statistics.quantiser import largest_code

FULL = ProblemSize(50_000, 768, 100, 7)
QUICK = ProblemSize(5_000, 256, 10, 3)
FORGOTTEN = 2000

Results = tuple[RidgeStatistics, RidgeStatistics]


def devices_here() -> dict[str, Backend | None]:
    """Return what can compete, by name; None is BLAS. Says plainly what is missing."""
    found: dict[str, Backend | None] = {"BLAS": None}
    kinds: dict[str, Literal["cpu", "cuda"]] = {"torch CPU": "cpu", "CUDA": "cuda"}
    for name, kind in kinds.items():
        try:
            device = open_device(kind)
            click.echo(f"{name}: {dict(device.environment)}, self-test passed")
            found[name] = device
        except BackendError as error:
            click.echo(f"{name}: NOT MEASURED: {error}")
    return found


def random_rows(size: ProblemSize) -> Rows:
    """Return rows over the whole range of 16 bits, the hardest case for the bits."""
    rng = np.random.default_rng(0)
    top = largest_code(16)
    codes = rng.integers(-top, top, (size.n, size.d), dtype=np.int16, endpoint=True)
    return Rows(codes, rng.integers(0, size.c, size.n))


def measure(size: ProblemSize) -> tuple[list[Line], dict[str, float]]:
    """Return the claims (equal bits, and the ratio to BLAS) and medians in seconds."""
    rows = random_rows(size)
    gone = Rows(rows.codes[:FORGOTTEN], rows.labels[:FORGOTTEN])
    rest = Rows(rows.codes[FORGOTTEN:], rows.labels[FORGOTTEN:])
    devices = devices_here()
    whole = accumulate([rows], size.d, size.c)
    expected = [_digest(whole), _digest(accumulate([rest], size.d, size.c))]

    def on(device: Backend | None, work: Callable[[], RidgeStatistics]) -> RidgeStatistics:
        with using(device):
            return work()

    jobs: dict[str, Callable[[], RidgeStatistics]] = {
        "fit": lambda: accumulate([rows], size.d, size.c),
        "removal": lambda: subtract(whole, gone),
    }
    lines = []
    for name, device in devices.items():
        got = [_digest(on(device, work)) for work in jobs.values()]
        equal = got == expected
        lines.append(Line(f"{name}: digests equal to BLAS's", float(equal), "1", equal))
    times: dict[str, list[float]] = {f"{name}: {job}": [] for name in devices for job in jobs}
    for _ in range(size.rounds):
        for name, device in devices.items():
            with using(device):
                for job, work in jobs.items():
                    times[f"{name}: {job}"].append(seconds(work))
    medians = {name: median(values) for name, values in times.items()}
    for name in devices:
        for job in jobs:
            ratio = medians[f"BLAS: {job}"] / medians[f"{name}: {job}"]
            if name != "BLAS":
                lines.append(Line(f"{job}: BLAS / {name}", ratio, "no target", True))
    return lines, medians


def _digest(statistics: RidgeStatistics) -> str:
    return statistics_digest(statistics, (0,) * statistics.dimension, 16, 1.0)


@click.command()
@click.option("--quick", is_flag=True, help="A small size: for a look, not for the claims.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
def main(quick: bool, file: Path | None) -> None:
    """Compare devices: the bits of the statistics first, then the time they take."""
    size = QUICK if quick else FULL
    click.echo(f"n {size.n}, d {size.d}, c {size.c}, {os.cpu_count()} cores")
    lines, medians = measure(size)
    tell(size, lines, medians, quick=quick, file=file)
    if not all(line.met for line in lines):
        raise click.ClickException("a device's statistics differ from the processor's")


if __name__ == "__main__":
    main()
