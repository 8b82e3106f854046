"""What a sketched message saves, and what it costs: bytes against deviation and bounds.

    python -m benchmarks.ridge_sketches [--data FILE.npz] [--penalty 10] [--plot FILE.png]

One batch is deleted from a model of exact statistics by sketches of each kind and rank. The
deviation is the distance to the head of a refit; beside it stand the bound that is claimed,
proven from the exact statistics, and the two of theorem A2.1, known without them. All four
are relative to the norm of that head. `reset` marks what the default budget would not keep.
Source: the ridge paper's appendix A2.
"""

from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path

import click
import numpy as np

from workers.arrays import Matrix, Rows
from workers.data.digits import load_digits
from workers.data.extractors.random_relu import RandomRelu
from workers.data.npz import load_npz
from workers.errors import PenaltyError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_sketched import TOLERANCE
from workers.methods.ridge.ridge_system import solve_float
from workers.methods.ridge.sketch_bounds import (
    least_eigenvalue,
    moment_norm,
    norm_above,
    prior_bound,
    resolvent_bound,
)
from workers.methods.ridge.sketches.kinds import known, sketch
from workers.methods.ridge.sketches.sketch import expand
from workers.methods.ridge.statistics.gram import RidgeStatistics, accumulate
from workers.methods.ridge.statistics.message import subtract_statistics
from workers.methods.ridge.statistics.quantiser import calibrate
from workers.methods.ridge.upkeep import prove_head, restart

RANKS = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True, eq=False)
class Deletion:
    """A batch to delete: its rows, the statistics with it, of it and without it."""

    config: RidgeConfig
    batch: Rows
    before: RidgeStatistics
    change: RidgeStatistics
    after: RidgeStatistics
    head: Matrix  # of a refit without the batch, to within 1e-12 of it
    tests: Rows


@dataclass(frozen=True, slots=True)
class SketchLine:
    """One sketch: bytes sent, and distances relative to the norm of the refitted head."""

    kind: str
    rank: int
    size: int
    residual: float  # over the penalty
    deviation: float
    proven: float
    resolvent: float
    prior: float
    accuracy: float


def make_deletion(
    data: Path | None, rows: int, width: int, penalty: float, seed: int = 0
) -> Deletion:
    """Return the deletion of `rows` training rows drawn at random, from digits by default."""
    federation = load_digits() if data is None else load_npz(data)
    raw = federation.features.astype(np.float64)
    scale = 1 / max(float(np.sqrt(np.square(raw[federation.is_test]).mean())), 1e-30)
    features = RandomRelu(raw.shape[1], width, seed, scale).extract(raw)
    quantiser = calibrate(features[federation.is_test])
    codes, _ = quantiser.quantise(features)
    kept = np.flatnonzero(~federation.is_test)
    gone = np.random.default_rng(seed).choice(kept, min(rows, len(kept)), replace=False)
    classes = int(federation.labels.max()) + 1
    config = RidgeConfig(width, classes, quantiser.exponents, quantiser.bits, penalty)
    batch = Rows(codes[gone], federation.labels[gone])
    before = accumulate([Rows(codes[kept], federation.labels[kept])], width, classes)
    change = accumulate([batch], width, classes)
    after = subtract_statistics(before, change)
    tests = Rows(codes[federation.is_test], federation.labels[federation.is_test])
    head = restart(after, config)[1].head
    return Deletion(config, batch, before, change, after, head, tests)


def measure(of: Deletion, kind: str, rank: int) -> SketchLine:
    """Return what one sketch of the batch does. inf: the sketched matrix is not definite."""
    config, norm = of.config, norm_above(of.head)
    small = sketch(of.change.gram, rank, kind, codes=of.batch.codes, exponents=config.exponents)
    gram = of.before.gram - expand(small.factor, small.shift)
    drift, penalty = small.residual, config.penalty
    least = least_eigenvalue(-1, 0.0, drift, penalty, config.exponents)
    prior = prior_bound(drift, penalty, least, moment_norm(of.after.moment, config.exponents))
    try:
        head = solve_float(RidgeStatistics(gram, of.after.moment, of.after.rows), config)
        deviation = float(np.linalg.norm(head - of.head)) / norm
        proven = prove_head(head, of.after, config).bound / norm
        resolvent = resolvent_bound(drift, penalty, norm_above(head)) / norm
        accuracy = score(head, of)
    except PenaltyError:
        deviation = proven = resolvent = float("inf")
        accuracy = float("nan")
    return SketchLine(
        kind,
        rank,
        small.payload_bytes,
        drift / penalty,
        deviation,
        proven,
        resolvent,
        prior / norm,
        accuracy,
    )


def score(head: Matrix, of: Deletion) -> float:
    """Return the accuracy of a head on the held-out rows."""
    features = of.tests.codes * np.ldexp(1.0, np.array(of.config.exponents))
    return float(((features @ head).argmax(axis=1) == of.tests.labels).mean())


def plot(lines: list[SketchLine], triangle: int, file: Path) -> None:
    """Write bytes against deviation and bounds. Needs matplotlib."""
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, len(known()), sharey=True)
    for panel, kind in zip(panels, known(), strict=True):
        mine = [line for line in lines if line.kind == kind]
        size = [line.size / triangle for line in mine]
        panel.loglog(size, [line.prior for line in mine], "v:", label="a priori, (b)")
        panel.loglog(size, [line.resolvent for line in mine], "^:", label="resolvent, (a)")
        panel.loglog(size, [line.proven for line in mine], "s-", label="proven")
        panel.loglog(size, [line.deviation for line in mine], "o-", label="deviation")
        panel.axhline(TOLERANCE, color="grey", linewidth=0.8)
        panel.set(title=kind, xlabel="bytes / exact triangle")
        panel.set_xticks(size, [f"{share:.2f}" for share in size])
        panel.minorticks_off()
    panels[0].set_ylabel("relative to ‖W*‖")
    panels[0].legend()
    figure.savefig(file)


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="An .npz to use.")
@click.option("--rows", default=150, type=click.IntRange(1), help="Rows of the deleted batch.")
@click.option("--width", default=256, help="Random ReLU features.")
@click.option("--penalty", default=10.0, help="λ of the ridge.")
@click.option(
    "--plot", "file", type=click.Path(path_type=Path), help="Where the plot goes (matplotlib)."
)
def main(data: Path | None, rows: int, width: int, penalty: float, file: Path | None) -> None:
    """Compare sketches of one deleted batch with its exact statistics."""
    if file is not None and util.find_spec("matplotlib") is None:
        raise click.ClickException("the plot needs matplotlib: install it, or leave out --plot")
    of = make_deletion(data, rows, width, penalty)
    triangle = 8 * width * (width + 1) // 2
    click.echo(
        f"n {of.before.rows}, d {width}, penalty {penalty:g}, a batch of {len(of.batch)} rows; "
        f"exact triangle {triangle} bytes, accuracy {score(of.head, of):.4f}"
    )
    click.echo(
        f"{'sketch':20} rank    bytes  /exact  resid/λ  deviation    proven  resolvent"
        "    a priori  accuracy"
    )
    lines = [measure(of, kind, rank) for kind in known() for rank in RANKS if rank <= width]
    for line in lines:
        note = "" if line.proven <= TOLERANCE else "  reset"
        click.echo(
            f"{line.kind:20} {line.rank:4} {line.size:8} {line.size / triangle:7.3f} "
            f"{line.residual:8.2g} {line.deviation:10.2e} {line.proven:9.2e} "
            f"{line.resolvent:10.2e} {line.prior:11.2e} {line.accuracy:9.4f}{note}"
        )
    if file is not None:
        plot(lines, triangle, file)


if __name__ == "__main__":
    main()
