"""`lethe features`: compute features beside the data, with an extractor pinned by digest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lethe.cli.text.waiting import working
from workers.cli.data_options import DATA, read_raw, table_options, with_options

# As in workers.data.extractors.registry, which would load numerical libraries early.
EXTRACTORS = ("identity", "random-relu", "sentence-transformers", "timm", "torch-module")


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not sign for _, sign, _ in pairs):
        raise click.BadParameter("write NAME=VALUE, such as seed=0")
    return {name: value for name, _, value in pairs}


def extractor_options(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options that name an extractor: extractor, path, parameters, digest."""
    options = (
        click.option("--extractor", type=click.Choice(EXTRACTORS), required=required),
        click.option(
            "--path",
            type=click.Path(path_type=Path),
            help="The extractor's files: a .pt2 archive, a directory or a .safetensors file.",
        ),
        click.option(
            "--parameter",
            "parameters",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_pairs,
            help="random-relu: outputs, seed, scale; timm: model. Others follow.",
        ),
        click.option("--digest", help="Refuse an extractor with another digest."),
    )
    return with_options(options)


@click.group()
def features() -> None:
    """Compute features of records locally with a frozen extractor."""


@features.command()
@extractor_options(required=True)
@click.option(
    "--data",
    required=True,
    type=DATA,
    help="An .npz with inputs, features, texts or images; labels, clients … are kept. Or a "
    "table, with --label.",
)
@table_options(sql=False)
@click.option("--text", metavar="COLUMN", help="Column of a table that holds texts.")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Output file (.npz).",
)
def extract(
    extractor: str,
    path: Path | None,
    parameters: dict[str, str],
    digest: str | None,
    data: Path,
    out: Path,
    text: str | None,
    **columns: Any,
) -> None:
    """Compute the features of DATA and print the extractor.

    OUT names the extractor and its digest, and `lethe model register ridge` reads them there.
    """
    import numpy as np

    from workers.cli.errors import shown
    from workers.data.extractors import registry
    from workers.data.extractors.described import format_description
    from workers.errors import RefusedError

    with shown():
        raw = read_raw(data, columns, text)
        width = raw.inputs.shape[1] if raw.kind == "features" else None
        opened = registry.open_extractor(
            extractor, parameters, path=path, digest=digest, width=width
        )
        if opened.kind != raw.kind:
            raise RefusedError(f"{extractor} reads {opened.kind}: the file holds {raw.kind}")
        with working("extracting features"):
            found = opened.extract(raw.inputs)
        description = format_description(opened, found.shape[1])
        with out.open("wb") as file:
            np.savez(
                file,
                allow_pickle=False,
                features=found,
                extractor=np.array(description),
                **raw.beside,
            )
    click.echo(f"extractor {opened.id}")
    click.echo(f"digest    {opened.digest}")
    for name, value in sorted(opened.parameters.items()):
        click.echo(f"{name:9} {value}")
    click.echo(f"{len(found)} rows of {found.shape[1]} features in {out}")


@features.command()
@extractor_options(required=True)
def digest(
    extractor: str, path: Path | None, parameters: dict[str, str], digest: str | None
) -> None:
    """Print the digest of an extractor, for --digest."""
    from workers.cli.errors import shown
    from workers.data.extractors import registry

    with shown():
        opened = registry.open_extractor(extractor, parameters, path=path, digest=digest)
    click.echo(opened.digest)
