"""Try every provider before every verifier, print the table, write the JSON and the page."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import torch

from benchmarks.soundness import costs, empirical, exact, methods, report, retrained, worlds
from benchmarks.soundness.empirical import Facts
from benchmarks.soundness.journal import Block, Journal
from benchmarks.soundness.rates import Tally, rates
from benchmarks.soundness.results import SoundnessResults, format_results, lines

CACHE = Path("build") / "benchmarks" / "soundness"
PAGE, FILE = "soundness.md", "soundness.json"
FEW_RUNS = 4  # in each of the worlds where only honest retrain and no-op are tried
FIRST_OF_MORE = 1000  # seed of the first of those


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured: problems, worlds (each with models of its own), runs in each.

    more: worlds of the memorising setting for honest retrain and no-op alone.
    """

    ridge: int
    tiny: int
    memorising: int
    runs: int
    more: int
    faint: int
    faint_runs: int
    digits: int
    given: int
    given_runs: int
    methods: int
    methods_runs: int


FULL = Amount(1000, 1000, 20, 40, 150, 6, 20, 10, 3, 100, 10, 20)
QUICK = Amount(150, 60, 6, 20, 20, 1, 8, 3, 1, 40, 1, 8)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer trials: for a look, under ten minutes.")
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz file: train_images (n, 32, 32, 3) or (n, 28, 28), train_labels.",
)
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--cache", default=CACHE, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Where {PAGE} and {FILE} are renewed.",
)
def main(
    quick: bool, data: tuple[Path, ...], file: Path | None, cache: Path, out: Path | None
) -> None:
    """Measure how often cheats are accepted and honest providers refused."""
    torch.set_num_threads(1)
    results = measure(QUICK if quick else FULL, data, Journal(cache), quick=quick)
    click.echo(report.render(results))
    targets = [(path, format_results(results)) for path in ([file] if file else [])]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        report.write_page(results, out / PAGE)
        targets.append((out / FILE, format_results(results)))
    for path, text in targets:
        path.write_text(text)
    if missed := [line.name for line in lines(results) if not line.met]:
        click.echo(f"NOT MET: {'; '.join(missed)}", err=True)


def measure(
    amount: Amount, data: tuple[Path, ...], journal: Journal, *, quick: bool
) -> SoundnessResults:
    """Return the results of all trials, those that the journal knows included."""
    tallies: list[Tally] = []
    facts: list[Facts] = []

    def add(name: str, work: Callable[[], Block]) -> None:
        found, seen = journal.block(name, work)
        tallies.extend(found)
        facts.extend(seen)
        click.echo(f"  {name}", err=True)

    for start in range(0, amount.ridge, exact.BLOCK):
        add(f"exact {start}", partial(_plain, exact.measure, start))
    for start in range(0, amount.tiny, retrained.BLOCK):
        add(f"retrained {start}", partial(_plain, retrained.measure, start))
    memorising, faint, digits, *given = worlds.settings(data)
    plan = [(memorising, seed, amount.runs, True) for seed in range(amount.memorising)]
    more = range(FIRST_OF_MORE, FIRST_OF_MORE + amount.more)
    plan += [(memorising, seed, FEW_RUNS, False) for seed in more]
    plan += [(faint, seed, amount.faint_runs, True) for seed in range(amount.faint)]
    plan += [(digits, seed, amount.runs, True) for seed in range(amount.digits)]
    for setting in given:
        plan += [(setting, seed, amount.given_runs, True) for seed in range(amount.given)]
    for setting, seed, runs, everyone in plan:
        name = f"{setting.name} {seed} {runs}"
        add(name, partial(_world, setting, seed, runs, everyone=everyone))
    for seed in range(amount.methods):
        add(f"methods {seed}", partial(methods.measure, seed, amount.methods_runs))
    sizes = costs.QUICK if quick else costs.FULL
    return SoundnessResults(
        quick,
        machine(),
        rates(tallies),
        facts,
        [
            *(cost for size in sizes for cost in costs.exact(size)),
            *costs.empirical(facts),
        ],
        [
            *(setting.name for setting in (memorising, digits, *given) if setting.powerful),
            *([methods.SETTING] if amount.methods else []),
        ],
        [faint.name],
    )


def machine() -> dict[str, str]:
    """Return what times and the last bits depend on."""
    return {
        "processor": f"{platform.machine()} with {os.cpu_count()} cores",
        "python": f"Python {platform.python_version()}",
        "numpy": f"NumPy {np.__version__}",
        "torch": f"torch {torch.__version__.partition('+')[0]}, one thread",
    }


def _plain(work: Callable[[int], list[Tally]], start: int) -> Block:
    return work(start), []


def _world(setting: worlds.WorldSetting, seed: int, runs: int, *, everyone: bool) -> Block:
    tallies, facts = empirical.measure(setting, seed, runs, everyone=everyone)
    return tallies, [facts]


if __name__ == "__main__":
    main()
