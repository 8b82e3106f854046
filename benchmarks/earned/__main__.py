r"""Approximate erasures that pass, beside a control that does not.

    python -m benchmarks.earned --seed 0 --seed 1 --out docs/benchmarks
    python -m benchmarks.earned --certificate CIFAR-10=demo-out/certificates/ID.sigstore.json \
        --seconds 300 --out docs/benchmarks

The first trains and judges without a service, half a minute for each seed; with
--images also the federation that `lethe demo --data` makes of them, for minutes. The second
adds the verdict of a certificate of the class `empirical-approximate`, or of its first attempt
if that was refuted.
Lines of the same setting, run, method and seed are replaced, others are kept.
"""

import json
from dataclasses import asdict
from pathlib import Path

import click
import torch

from benchmarks.earned import page
from benchmarks.earned.images import images_world
from benchmarks.earned.measure import TrainedFederation, judged, make_world, unlearned
from benchmarks.earned.page import Area, VerdictLine, line_of
from benchmarks.earned.task import GONE, manifest, rows
from benchmarks.soundness.report import BEGIN, END
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import CheckPart, parse_statement
from workers.judge.samples.empirical import VERIFIER

METHODS = ("no step", "natural", "puf-special", "hf-kcu", "retrain")
PAGE, FILE = "earned.md", "earned.json"
SETTING = "generated columns"


@click.command()
@click.option("--seed", "seeds", type=int, multiple=True, help="Of generated rows; repeatable.")
@click.option(
    "--images", help="NAME=FILE.npz: the setting's name and the images of a demonstration."
)
@click.option("--certificate", help="NAME=FILE: the setting's name and the certificate.")
@click.option("--seconds", default=0.0, help="From the request to that certificate.")
@click.option(
    "--out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help=f"Where {PAGE}, {FILE} and the figure are renewed.",
)
def main(
    seeds: tuple[int, ...],
    images: str | None,
    certificate: str | None,
    seconds: float,
    out: Path,
) -> None:
    """Renew the page of approximate erasures that pass."""
    torch.set_num_threads(1)
    file = out / FILE
    lines = parse_lines(file.read_text()) if file.exists() else []
    for seed in seeds:
        world = make_world(manifest("puf-special", "learned", seed), rows(seed), GONE)
        lines = together(lines, measured(world, SETTING, seed))
    if images is not None:
        setting, _, path = images.partition("=")
        lines = together(lines, measured(images_world(Path(path)), setting, 0))
    if certificate is not None:
        setting, _, path = certificate.partition("=")
        lines = together(lines, [certified(Path(path).read_bytes(), setting, seconds)])
    file.write_text(format_lines(lines))
    text = (out / PAGE).read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    (out / PAGE).write_text(f"{before}{BEGIN}\n\n{page.render(lines)}\n{END}{after}")
    page.draw(out / page.FIGURE)


def measured(world: TrainedFederation, setting: str, seed: int) -> list[VerdictLine]:
    """Return the verdict on each method. seed: of the verifier, and of generated rows."""
    found = []
    for method in METHODS:
        after, seconds = unlearned(world, method)
        report = judged(world, after, seed)
        line = line_of(
            report.checks,
            report.result,
            setting=setting,
            run="verifier",
            method=method,
            seed=seed,
            seconds=seconds,
            training=world.seconds,
        )
        click.echo(
            f"{setting}, seed {seed}, {method}: {line.result}, {line.before} → {line.after}"
        )
        found.append(line)
    return found


def certified(bundle: bytes, setting: str, seconds: float) -> VerdictLine:
    """Return the line of a certificate: its verdict, or that of the first refuted attempt."""
    said = parse_statement(parse_bundle(bundle).payload).predicate
    method, result, checks = said.method.id, "PASS", list(said.checks)
    if said.guarantee.class_ != VERIFIER.id:
        first = json.loads(said.method.parameters["escalation.attempts"])["attempts"][0]
        method, result = first["method"], first["result"]
        checks = [
            CheckPart(
                int(one["number"]),
                one["name"],
                one["quantity"],
                one["value"],
                None if one["interval"] is None else (one["interval"][0], one["interval"][1]),
                one["threshold"],
                one["passed"],
            )
            for one in first["checks"]
        ]
    return line_of(
        checks,
        result,
        setting=setting,
        run="service",
        method=method,
        seed=0,
        seconds=seconds,
        training=None,
    )


def together(lines: list[VerdictLine], more: list[VerdictLine]) -> list[VerdictLine]:
    """Return all lines, the later one of each setting, run, method and seed."""
    found = {(one.setting, one.run, one.method, one.seed): one for one in [*lines, *more]}
    return [found[key] for key in sorted(found, key=_place)]


def _place(key: tuple[str, str, str, int]) -> tuple[str, str, int, int]:
    setting, run, method, seed = key
    return run, setting, METHODS.index(method), seed


def format_lines(lines: list[VerdictLine]) -> str:
    """Return lines as JSON."""
    return json.dumps([asdict(line) for line in lines], indent=1) + "\n"


def parse_lines(text: str) -> list[VerdictLine]:
    """Read what `format_lines` wrote."""
    found = []
    for one in json.loads(text):
        before, after = (Area(**one.pop(name)) for name in ("before", "after"))
        low, high = one.pop("lost")
        found.append(VerdictLine(**one, before=before, after=after, lost=(low, high)))
    return found


if __name__ == "__main__":
    main()
