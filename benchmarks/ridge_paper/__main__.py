"""Measure, write the JSON, draw the figures, renew the page."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from benchmarks.ridge_paper import (
    chunks,
    continual,
    cost,
    messages,
    plots,
    report,
    skips,
    stream,
    table3,
    table4,
    width,
)
from benchmarks.ridge_paper.contenders import Start
from benchmarks.ridge_paper.data import load
from benchmarks.ridge_paper.linear_heads import QUICK, Rounds
from benchmarks.ridge_paper.results import (
    PARTS,
    Results,
    format_results,
    load_or_new,
    machine,
)
from benchmarks.ridge_paper.task import HeadTask

CACHE = Path("build") / "benchmarks"
PAGE, FILE = "ridge.md", "ridge.json"
LEARNING = {
    "table3",
    "stream",
    "skips",
    "chunks",
    "continual",
}  # parts that begin with trained contenders
REQUESTS, QUICK_REQUESTS = (25, 50), (25,)


@click.command()
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="An .npz file, or a directory of them; without it scikit-learn's digits.",
)
@click.option("--quick", is_flag=True, help="Small sizes: for a look, not for the claims.")
@click.option("--only", help=f"Parts to measure, of {','.join(PARTS)}; the others stay.")
@click.option(
    "--out",
    default=CACHE,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the JSON, the figures and the page go.",
)
def main(data: tuple[Path, ...], quick: bool, only: str | None, out: Path) -> None:
    """Measure the tables and figures of the ridge paper and of ACU."""
    wanted = PARTS if only is None else tuple(only.split(","))
    if unknown := set(wanted) - set(PARTS):
        raise click.BadParameter(f"{min(unknown)}: choose of {', '.join(PARTS)}")
    out.mkdir(parents=True, exist_ok=True)
    results = load_or_new(out / FILE, quick)
    results.machine = machine()
    for part in wanted:
        setattr(results, part, [])
        results.seconds[part] = 0.0
    if LEARNING & set(wanted):
        results.seconds["start"] = 0.0
    tasks = load(list(data), quick, CACHE) if set(wanted) - {"cost"} else []
    for task in tasks:
        _measure(task, wanted, results, quick)
    if "width" in wanted:
        # Colour images if there are any: ACU's data; their features are a backbone's.
        widest = min(tasks, key=lambda task: len(task.rows))
        _timed(results, "width", lambda: results.width.extend(width.measure(widest, quick)))
    if "cost" in wanted:
        _timed(results, "cost", lambda: results.cost.append(cost.measure(quick)))
    (out / FILE).write_text(format_results(results))
    pictures = plots.draw_all(results, out)
    report.write_page(results, pictures, out / PAGE)
    click.echo(report.render(results, ()))
    click.echo(f"{out / PAGE}, {out / FILE} and {len(pictures)} figures")
    if any(results.exact_bits()):
        raise click.ClickException("an exact ledger differs from its retraining")


def _measure(task: HeadTask, wanted: tuple[str, ...], results: Results, quick: bool) -> None:
    """Measure the parts that run on every data set."""
    click.echo(f"{task.name}: {len(task.rows):,} rows, {task.about}", err=True)
    if "table4" in wanted:
        _timed(results, "table4", lambda: results.table4.append(table4.measure(task, quick)))
    if "messages" in wanted:
        _timed(results, "messages", lambda: results.messages.append(messages.measure(task)))
    if not LEARNING & set(wanted):
        return
    started = time.perf_counter()
    start = Start(task, QUICK if quick else Rounds())
    results.seconds["start"] += time.perf_counter() - started
    if "table3" in wanted:
        _timed(results, "table3", lambda: results.table3.append(table3.measure(start)))
    if "stream" in wanted:
        _timed(results, "stream", lambda: results.stream.append(stream.measure(start, quick)))
    if "skips" in wanted:
        _timed(results, "skips", lambda: results.skips.extend(skips.measure(start, quick)))
    if "chunks" in wanted:
        for count in QUICK_REQUESTS if quick else REQUESTS:
            _timed(
                results,
                "chunks",
                partial(_chunks, results, start, count),
            )
    if "continual" in wanted and len(task.rows) <= continual.MOST_ROWS:
        for count in continual.QUICK_REQUESTS if quick else continual.REQUESTS:
            _timed(results, "continual", partial(_continual, results, start, count))


def _chunks(results: Results, start: Start, requests: int) -> None:
    results.chunks.append(chunks.measure(start, requests))


def _continual(results: Results, start: Start, requests: int) -> None:
    results.continual.append(continual.measure(start, requests, results.quick))


def _timed(results: Results, part: str, work: Callable[[], None]) -> None:
    started = time.perf_counter()
    work()
    taken = time.perf_counter() - started
    results.seconds[part] += taken
    click.echo(f"  {part}: {taken:.1f} s", err=True)


if __name__ == "__main__":
    main()
