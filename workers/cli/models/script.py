"""`lethe model register script`: the operator's training program over labelled rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import FILE
from workers.cli import service
from workers.cli.models.fitting import (
    ABOUT_DATA,
    FIT_MEMORY_BYTES,
    FIT_SECONDS,
    SAMPLE_WEIGHT,
    check_categories,
    check_manifest,
    measured,
    read_rows,
    registration_options,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.registration.recipe import RecipeRegistration


@click.command(epilog=ABOUT_DATA)
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="SCRIPT")
@registration_options
@SAMPLE_WEIGHT
@click.option(
    "--weights",
    type=FILE,
    help="A model trained elsewhere; prints its distance from the program's result.",
)
@click.option(
    "--shards",
    type=click.IntRange(2, 256),
    help="Number of shards of the rows; each has a model of its own (docs/shards.md).",
)
def script(
    url: str,
    ref: str,
    path: Path,
    data: Path | None,
    weights: Path | None,
    shards: int | None,
    **columns: Any,
) -> None:
    """Register your own training program.

    SCRIPT is a folder with script.json, or that file (docs/scripts.md). The program is run
    twice over the rows in DATA.
    """
    from app.uploads.rows import UNMEASURED
    from workers.cli.errors import shown
    from workers.registration.script import prepare_script, read_script
    from workers.registration.shards import in_shards

    if shards is not None and weights is not None:
        raise click.UsageError("--weights: shards are compared with no other model")
    with shown():
        document, numbers = read_script(path)
        theirs = None if weights is None else weights.read_bytes()
        check_categories(document)
        known = document.get("categories")
        rows = read_rows(data, columns, numbers=numbers, categories=known)
        prepared = prepare_script(rows, document, ref=ref, weights=theirs)
        if shards is not None:
            prepared = in_shards(prepared, {"count": shards, "aggregate": "apart"})
        config = _checked(prepared)
        form = config["script"]["output"]
        if prepared.sends_held_out and form != "onnx" and "predict" not in document:
            raise click.UsageError(f"--send-holdout: {UNMEASURED}")
        if theirs is not None:
            _tensors(theirs, form)
    with service.connect(url) as operator:
        operator.register_model(service.decided(prepared.manifest), prepared.npz)
        click.echo(f"registered {prepared.summary()}; running the program twice …")
        service.wait_until_ready(operator, ref, FIT_SECONDS)
        version = int(operator.model(ref)["current_version"])
        file = operator.artifact(ref, version)
    claim = "retrained" if "tolerance" in document else "exact-retrained"
    click.echo(f"erasures will claim {claim}")
    if theirs is not None:
        with shown():
            click.echo(_compared(theirs, file, form))
    if shards is None and len(prepared.labels):
        for line in _on_held_out(config, prepared, file, theirs):
            click.echo(line)


def _on_held_out(
    config: Mapping[str, Any], prepared: "RecipeRegistration", ours: bytes, theirs: bytes | None
) -> list[str]:
    """Return, as text, scores on held-out rows of the first version, and of given weights."""
    from lethe.errors import LetheError
    from workers.errors import ModelError

    if config["script"]["predict"] is None and config["script"]["output"] != "onnx":
        return ["not measured: the script names no file to predict by (docs/scripts.md)"]
    numbers = not prepared.manifest["classes"]
    try:
        mine = _answers(config, ours, prepared.features)
        said = measured(mine, prepared.labels, numbers=numbers)
        if theirs is None:
            return [said]
        other = _answers(config, theirs, prepared.features)
    # Possibly specific to this machine; the result is informative only.
    except (LetheError, ModelError) as error:
        return [f"not measured on held-out rows: {error}"]
    given = measured(other, prepared.labels, numbers=numbers)
    if numbers:
        apart = f"their answers differ by at most {float(abs(mine - other).max()):.3g}"
    else:
        apart = f"their answers differ on {int((mine != other).sum())} rows"
    return [f"the program's run: {said}", f"the given weights: {given}", apart]


def _answers(
    config: Mapping[str, Any], file: bytes, features: "NDArray[Any]"
) -> "NDArray[Any]":
    from workers.training.programs import run
    from workers.training.recipes.process import Limits

    return run.predict(config, file, features, Limits(FIT_SECONDS, FIT_MEMORY_BYTES))


def _checked(prepared: "RecipeRegistration") -> dict[str, Any]:
    """Return the configuration that the service would pin.

    Raises:
        click.ClickException: The service would refuse the manifest.
        RefusedError: A line of the lock file has no version.
    """
    from workers.training.programs.program import Program

    config: dict[str, Any] = check_manifest(prepared.manifest).pinned()["config"]
    _ = Program.parse(config).locked
    return config


def _tensors(file: bytes, form: str) -> Mapping[str, Any]:
    from workers.errors import RefusedError
    from workers.training.programs import outputs

    try:
        return outputs.numbers(file, form)
    except outputs.OutputError as error:
        raise RefusedError(f"--weights: {error}") from None


def _compared(theirs: bytes, ours: bytes, form: str) -> str:
    """Return, as text, the distance of given weights from those of the first version."""
    from workers.training.programs import outputs

    if theirs == ours:
        return "the given weights are, byte for byte, those of the program's run"
    try:
        found = outputs.difference(_tensors(theirs, form), _tensors(ours, form))
    except outputs.OutputError:
        return (
            "the given weights have tensors of other names, types or shapes than the program's "
            "run: it is not the program that made them. Version 1 is the program's run"
        )
    return (
        f"the given weights differ from the program's run by {found:.3g}, the largest relative "
        "difference of a tensor. Version 1 is the program's run"
    )
