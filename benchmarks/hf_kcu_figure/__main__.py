"""Measure, write the JSON, draw the figures, renew the page."""

from pathlib import Path

import click
import torch

from benchmarks.hf_kcu_figure.measure import CONDITIONS, measure
from benchmarks.hf_kcu_figure.page import (
    FILE,
    SHOWN_SETTINGS,
    format_runs,
    parse_runs,
    write_page,
)
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.sources import load_or_skip
from benchmarks.unlearning.task import make_task


@click.command()
@click.option("--setting", "names", multiple=True, type=click.Choice(SHOWN_SETTINGS))
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="An .npz of images, or a folder with it.",
)
@click.option("--seed", default=0, show_default=True)
@click.option("--report", is_flag=True, help="Measure nothing: renew the page.")
@click.option(
    "--out",
    default=Path("build") / "benchmarks",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the JSON, the figures and the page go.",
)
def main(
    names: tuple[str, ...], data: tuple[Path, ...], seed: int, report: bool, out: Path
) -> None:
    """Measure HF-KCU's figure 2: a setting that is measured again replaces itself."""
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    file = out / FILE
    runs = parse_runs(file.read_text()) if file.exists() else []
    for name in () if report else names or SHOWN_SETTINGS:
        setting = SETTINGS[name]
        images = load_or_skip(name, setting.data, data, asked=bool(names))
        if images is None:
            continue

        def tell(said: str, name: str = name) -> None:
            click.echo(f"{name}, {said}", err=True)

        task = make_task(setting, images, seed)
        found = list(measure(task, CONDITIONS, tell))
        runs = [run for run in runs if run.setting != name] + found
        file.write_text(format_runs(runs))
    file.write_text(format_runs(runs))
    click.echo(f"{', '.join(write_page(runs, out))} and {FILE} in {out}")


if __name__ == "__main__":
    main()
