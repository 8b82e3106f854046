"""Measure, write the JSON, draw the figures, renew the page."""

from pathlib import Path

import click
import torch

from benchmarks.puf_figures.curves import ROUNDS, configurations, measure
from benchmarks.puf_figures.report import FIGURES, FILE, format_curves, parse_curves, write_page
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.sources import load_or_skip
from benchmarks.unlearning.task import make_task


@click.command()
@click.option("--setting", "names", multiple=True, type=click.Choice(list(FIGURES)))
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="An .npz of images, or a folder with it.",
)
@click.option("--seeds", default=5, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--rounds", default=ROUNDS, show_default=True, help="Of recovery.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--report", is_flag=True, help="Measure nothing: merge and renew the page.")
@click.option(
    "--merge",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The JSON of another run.",
)
@click.option(
    "--out",
    default=Path("build") / "benchmarks",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the JSON, the figures and the page go.",
)
def main(
    names: tuple[str, ...],
    data: tuple[Path, ...],
    seeds: int,
    first_seed: int,
    rounds: int,
    device: str,
    report: bool,
    merge: tuple[Path, ...],
    out: Path,
) -> None:
    """Measure PUF's figures 4 to 6: a seed that is measured again replaces itself."""
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    known = {}
    for file in (out / FILE, *merge):
        if file.exists():
            for curve in parse_curves(file.read_text()):
                known[curve.setting, curve.seed, curve.label] = curve
    chosen = () if report else names or tuple(FIGURES)
    for name in chosen:
        setting = SETTINGS[name]
        images = load_or_skip(name, setting.data, data, asked=bool(names))
        if images is None:
            continue
        wanted = configurations(setting.data == "digit-masks")
        for seed in range(first_seed, first_seed + seeds):
            task = make_task(setting, images, seed, device)

            def tell(label: str, name: str = name, seed: int = seed) -> None:
                click.echo(f"{name}, seed {seed}, {label}", err=True)

            for curve in measure(task, wanted, rounds, tell):
                known[curve.setting, curve.seed, curve.label] = curve
            (out / FILE).write_text(format_curves(list(known.values())))
    (out / FILE).write_text(format_curves(list(known.values())))
    click.echo(f"{', '.join(write_page(list(known.values()), out))} and {FILE} in {out}")


if __name__ == "__main__":
    main()
