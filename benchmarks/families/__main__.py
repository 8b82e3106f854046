"""`python -m benchmarks.families`: see the package."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.families.data import data_sets
from benchmarks.families.measure import FAMILIES, Figures, fits_family, measure
from benchmarks.families.page import page
from workers.errors import ModelError


@click.command()
@click.option(
    "--quick", is_flag=True, help="Breast cancer, diabetes and two folds: for a look."
)
@click.option(
    "--data",
    "files",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="An .npz with features and labels, or a table such as Parquet; repeatable.",
)
@click.option(
    "--label", default="label", show_default=True, help="Column of a table's classes."
)
@click.option(
    "--features",
    multiple=True,
    metavar="COLUMN|GLOB",
    help="Columns of a table's features; repeatable. Default: all others.",
)
@click.option(
    "--family",
    "wanted",
    type=click.Choice(list(FAMILIES)),
    multiple=True,
    help="Only this one; repeatable.",
)
@click.option(
    "--continue",
    "resumed",
    is_flag=True,
    help="Keep the figures that --json has of an interrupted run, and measure the others.",
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write results here.")
@click.option("--page", "text", type=click.Path(path_type=Path), help="Write a page here.")
def main(
    quick: bool,
    files: tuple[Path, ...],
    label: str,
    features: tuple[str, ...],
    wanted: tuple[str, ...],
    resumed: bool,
    file: Path | None,
    text: Path | None,
) -> None:
    """Measure each family beside scikit-learn. FILE is written after each measurement."""
    if resumed and file is None:
        raise click.UsageError("--continue needs --json: the figures to keep are there")
    head = {"processor": platform.machine(), "quick": quick}
    found = kept(file, head) if resumed and file is not None else {}
    sets = data_sets(files, quick=quick, label=label, features=features)
    for name in wanted or FAMILIES:
        for data, read in sets.items():
            if data in found.get(name, {}):
                click.echo(f"{name:15} {data:14} measured before")
                continue
            try:
                rows, labels = read()
            except ModelError as error:
                raise click.ClickException(str(error)) from None
            if not fits_family(name, rows, labels):
                continue
            measure(FAMILIES[name], rows[:200], labels[:200], 2)  # compiles
            folds = 2 if quick or data == "made" else 5
            figures = measure(FAMILIES[name], rows, labels, folds)
            found.setdefault(name, {})[data] = asdict(figures)
            click.echo(f"{name:15} {data:14} {line(figures)}")
            if file is not None:
                write(file, {**head, "families": found})
    if text is not None:
        text.write_text(page({**head, "families": found}))


def line(figures: Figures) -> str:
    """Return the figures as one line."""
    return (
        f"accuracy {figures.accuracy:.4f} ({figures.accuracy_reference:.4f})  "
        f"fit {figures.fit_seconds_ratio:6.2f} x  "
        f"deletion {figures.delete_speedup:7.1f} x faster, "
        f"verified {figures.verified_delete_speedup:5.2f} x"
    )


def kept(file: Path, head: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures of an interrupted run, none if there is no file.

    Raises click.ClickException for those of another run, whose ratios do not compare.
    """
    if not file.exists():
        return {}
    past = json.loads(file.read_text())
    if {name: past.get(name) for name in head} != head:
        raise click.ClickException(
            f"{file} is of another processor, or of a run with or without --quick: leave out "
            "--continue to replace it"
        )
    families: dict[str, dict[str, Any]] = past["families"]
    return families


def write(file: Path, document: Mapping[str, Any]) -> None:
    """Replace a file at once: what an interruption leaves is whole."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_text(json.dumps(document, indent=2) + "\n")
    unfinished.replace(file)


if __name__ == "__main__":
    main()
