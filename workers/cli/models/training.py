"""A network's training: a file with the members of the manifest's `training`, and options.

The file overrides an option's default; a value given in both is refused, even if they agree:
one of them would become outdated unnoticed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lethe import canonical

if TYPE_CHECKING:
    from pydantic import ValidationError

# The path of each option's value in the manifest's `training`.
PLACES = {
    "rounds": ("rounds",),
    "seed": ("seed",),
    "epochs": ("local", "epochs"),
    "batch_size": ("local", "batch_size"),
    "learning_rate": ("local", "learning_rate"),
    "momentum": ("local", "momentum"),
    "weight_decay": ("local", "weight_decay"),
}
SEGMENTING = "res-unet"
# Most pixels are background: with cross-entropy alone, every pixel is classified as it.
SEGMENTING_LOSS = "cross-entropy+dice"


def read_object(file: Path | None) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one if there is no file.

    Raises ClickException for anything else.
    """
    if file is None:
        return {}
    try:
        read = canonical.loads(file.read_text(encoding="utf-8"))
    except canonical.DuplicateKeyError:
        raise click.ClickException(f"{file}: an object has a name twice") from None
    except (ValueError, RecursionError):
        raise click.ClickException(f"{file}: not JSON") from None
    if not isinstance(read, dict):
        raise click.ClickException(f"{file}: must be one JSON object")
    return read


def training_of(
    context: click.Context, file: Path | None, network: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the whole `training` of the manifest, every member spelled out.

    options: values of the options in PLACES. res-unet's loss includes Dice unless the file sets
    another. Raises ClickException, naming file and member, for values that the service's schema
    or a worker's ranges refuse, and for members that a command-line option sets too.
    """
    training = read_object(file)
    local = training.setdefault("local", {})
    for name, place in PLACES.items():
        holder = training if len(place) == 1 else local
        if not isinstance(holder, dict):
            continue  # the schema reports it below
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and place[-1] in holder:
            option = "--" + name.replace("_", "-")
            raise click.ClickException(
                f"{file}: {'.'.join(place)} is named by {option} too: leave one of them out"
            )
        holder.setdefault(place[-1], options[name])
    if network == SEGMENTING and isinstance(local, dict):
        local.setdefault("loss", SEGMENTING_LOSS)
    return _checked(training, file)


def _checked(training: dict[str, Any], file: Path | None) -> dict[str, Any]:
    from pydantic import ValidationError

    from app.schemas.families.networks import Training
    from workers.errors import RefusedError
    from workers.training.fedavg.config import LocalConfig, ServerConfig, TrainingConfig

    where = "training" if file is None else str(file)
    try:
        full = Training.model_validate(training).model_dump()
    except ValidationError as error:
        raise click.ClickException(f"{where}: {first_problem(error)}") from None
    rest = dict(full)
    try:
        local, server = LocalConfig(**rest.pop("local")), ServerConfig(**rest.pop("server"))
        TrainingConfig(local=local, server=server, **rest)
    except RefusedError as error:
        raise click.ClickException(f"{where}: {error}") from None
    return full


def first_problem(error: "ValidationError") -> str:
    """Return a schema's first error, without the values at fault."""
    first = error.errors(include_url=False, include_input=False)[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    return ": ".join([*filter(None, [".".join(map(str, first["loc"]))]), message])


def shape_of(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Parse the pairs of `--shape NAME=VALUE`. Raises BadParameter for anything else."""
    shape: dict[str, int] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (sign and name and value.isascii() and value.isdigit()) or name in shape:
            raise click.BadParameter("write NAME=VALUE with a whole number, and each NAME once")
        shape[name] = int(value)
    return shape
