"""Measure, keep each result as one line, draw the figures, renew the page."""

import fnmatch
from pathlib import Path

import click
import torch

from benchmarks.unlearning.campaign import SettingCampaign
from benchmarks.unlearning.contenders import FIRST, Contender, planned, shadowed
from benchmarks.unlearning.records import current, format_results, joined, parse_results, read
from benchmarks.unlearning.report import write_page
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.shadow import ATTACKED
from benchmarks.unlearning.sources import load_or_skip
from benchmarks.unlearning.task import make_task
from workers.demo.federated import Teller
from workers.errors import RefusedError

CACHE = Path("build") / "benchmarks" / "unlearning"
FILE = "unlearning.json"


@click.command()
@click.option("--setting", "names", multiple=True, type=click.Choice(list(SETTINGS)))
@click.option(
    "--data",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="mnist.npz, cifar10.npz, or a folder with MNIST's IDX files.",
)
@click.option("--seeds", default=5, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--methods", help="Labels of the plan by commas, * as in file names.")
@click.option("--quick", is_flag=True, help="2 seeds of a short training; into the cache only.")
@click.option("--large", is_flag=True, help="Settings too large for an hour of a CPU, too.")
@click.option("--shadow", is_flag=True, help="Attack with shadow models, measure nothing else.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--report", is_flag=True, help="Measure nothing: merge and renew the page.")
@click.option("--merge", multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option("--cache", default=CACHE, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the JSON, the figures and the page go; without it into the cache.",
)
def main(
    names: tuple[str, ...],
    data: tuple[Path, ...],
    seeds: int,
    first_seed: int,
    methods: str | None,
    quick: bool,
    large: bool,
    shadow: bool,
    device: str,
    report: bool,
    merge: tuple[Path, ...],
    cache: Path,
    out: Path | None,
) -> None:
    """Measure the tables of PUF and HF-KCU, and every method of the registry.

    Results are lines in the cache, one file for each setting: a run that was stopped goes
    on, and --merge adds the lines of other caches to the page.
    """
    if quick:
        cache, names, seeds = cache / "quick", names or ("quick",), min(seeds, 2)
    cache.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if not report:
        chosen = names or tuple(
            name
            for name, part in SETTINGS.items()
            if name != "quick"
            and (large or not part.large)
            and (name in ATTACKED or not shadow)
        )
        for seed in range(first_seed, first_seed + seeds):
            for name in chosen:
                _measure(
                    name, seed, data, methods, cache, device, shadow=shadow, named=bool(names)
                )
    out = cache if quick or out is None else out
    out.mkdir(parents=True, exist_ok=True)
    files = [file for folder in (*merge, cache) for file in sorted(folder.glob("*.jsonl"))]
    records = read(files)
    published = parse_results((out / FILE).read_text()) if (out / FILE).exists() else {}
    valid = joined(current(published), current(records))
    if stale := len({**published, **records}) - len(valid):
        click.echo(f"{stale} lines are of other settings or versions", err=True)
    records = valid
    (out / FILE).write_text(format_results(records))
    click.echo(f"{', '.join(write_page(records, out))} and {FILE} in {out}")


def _measure(
    name: str,
    seed: int,
    data: tuple[Path, ...],
    methods: str | None,
    cache: Path,
    device: str,
    *,
    shadow: bool,
    named: bool,
) -> None:
    setting = SETTINGS[name]
    images = load_or_skip(name, setting.data, data, asked=named)
    if images is None:
        return
    contenders: tuple[Contender, ...] = (shadowed if shadow else planned)(setting.plan)
    if methods is not None:
        contenders = wanted(contenders, methods.split(","), name)
    known = read([cache / f"{name}.jsonl"])
    task = make_task(setting, images, seed, device)
    try:
        SettingCampaign(cache, Teller(), known, shadow).seed(task, contenders)
    except RefusedError as error:
        raise click.ClickException(str(error)) from None


def wanted(
    contenders: tuple[Contender, ...], patterns: list[str], setting: str
) -> tuple[Contender, ...]:
    """Return the contenders whose label a pattern fits, in their order.

    The original and the retrained model are in every plan: they may be named, alone too.
    Raises BadParameter for a pattern that fits none; `setting` is for the message.
    """
    labels = {part.label for part in (*FIRST, *contenders)}
    for pattern in patterns:
        if not fnmatch.filter(labels, pattern):
            raise click.BadParameter(f"{pattern} is not in the plan of {setting}")
    found = {label for pattern in patterns for label in fnmatch.filter(labels, pattern)}
    return tuple(part for part in contenders if part.label in found)


if __name__ == "__main__":
    main()
