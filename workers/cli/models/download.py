"""`lethe model download` and `lethe model push`: versions, for programs without Lethe."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lethe.cli.options import plain, service_url
from workers.cli import service

if TYPE_CHECKING:
    from lethe.client import Client


NATIVE, TENSORS = "native", "safetensors"
OWN = "lethe"  # suffix of native files in Lethe's own layout (docs/download.md)
FORMATS = {
    NATIVE: OWN,
    TENSORS: "safetensors",
    "onnx": "onnx",
    "skops": "skops",
    "torch": "pt2",
    "faiss": "faiss",
}


class Wanted(click.ParamType[tuple[str, int | Literal["current"]]]):
    """REF, REF@current or REF@N."""

    name = "REF[@N]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | Literal["current"]]:
        """Return (ref, number)."""
        if isinstance(value, tuple):
            return value
        ref, _, number = value.partition("@")
        if not ref or not re.fullmatch(r"|current|[1-9][0-9]{0,8}", number):
            self.fail("write REF, REF@current or REF@N, such as digits@3", param, ctx)
        return ref, int(number) if number.isdigit() else "current"


@click.command()
@service_url
@click.argument("model", type=Wanted())
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(FORMATS)),
    default=NATIVE,
    show_default=True,
    help="native: the certified file; safetensors: the same, where it has this format. The "
    "others are converted from it locally, in a process with limits.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Output file. Default: REF-N with the format's suffix, in this directory.",
)
def download(
    url: str, model: tuple[str, int | Literal["current"]], form: str, out: Path | None
) -> None:
    """Download MODEL: REF, REF@current or REF@N, such as digits@3.

    With a native file it also writes FILE.sig, an OpenSSF Model Signing signature. Versions
    that an erasure withdrew cannot be downloaded.
    """
    from lethe.files import write_durably
    from workers.cli.errors import UnusableError, shown
    from workers.cli.models.conversion import convert
    from workers.families.base import configured

    ref, named = model
    with service.connect(url) as operator:
        registered = operator.model(ref)
        version, file, signature = fetch(operator, ref, named)
    number, data = version["number"], file
    if form == TENSORS and not is_tensors(file):
        raise UnusableError(f"the file of {ref} is not a safetensors file: use --format native")
    native = form in (NATIVE, TENSORS)
    if not native:
        with shown():
            family = configured(registered["config"])
            if form not in family.formats:
                known = ", ".join((NATIVE, *family.formats))
                raise UnusableError(f"{ref} has no format {form}: choose one of {known}")
        data = convert(file, form, registered["classes"], registered["config"])
    suffix = native_suffix(registered["config"], file) if native else FORMATS[form]
    out = out or Path(f"{ref}-{number}.{suffix}")
    write_durably(out, data, mode=0o644)
    click.echo(f"{out}  version {number} of {ref}, {len(data):,} bytes")
    if registered["state"] != "ready":
        state = plain(registered["state"])
        click.echo(f"Warning: the model is {state}, not ready.", err=True)
    if not native:
        for suffix, table in family.beside(file).items():
            other = out.with_name(f"{out.name}.{suffix}")
            write_durably(other, table, mode=0o644)
            click.echo(f"{other}  the record id of each label, a line each, from 0")
        from_file = "It is" if data == file else "Converted from"
        click.echo(plain(f"{from_file} the certified file, sha256 {version['head']}."))
        return
    beside = out.with_name(f"{out.name}.sig")
    write_durably(beside, signature, mode=0o644)
    click.echo(f"{beside}  signature; verify it with the issuer's key, issuer.pem:")
    click.echo(f"  model_signing verify key --public_key issuer.pem --signature {beside} {out}")


def native_suffix(config: Mapping[str, Any], file: bytes) -> str:
    """Return the suffix of a version's file, by its content or its program's declared format.

    config: of the model's registration. Raises UnusableError if it names no suffix: the service
    must not choose another folder or file.
    """
    from workers.cli.errors import UnusableError

    if is_tensors(file):
        return TENSORS
    written = str(config.get("script", {}).get("output", OWN))
    if not written.isascii() or not written.isalnum():
        raise UnusableError(
            "the service's answer names an invalid file format: is the service of this version?"
        )
    return written


def is_tensors(file: bytes) -> bool:
    """Return whether a file starts like safetensors: with the length of a JSON object."""
    header = file[8 : 8 + int.from_bytes(file[:8], "little")]
    try:
        return isinstance(json.loads(header), dict)
    except (ValueError, RecursionError):
        return False


def fetch(
    operator: "Client", ref: str, named: int | Literal["current"]
) -> tuple[Mapping[str, Any], bytes, bytes]:
    """Return a version as the service shows it, its file and the file's signature.

    Raises:
        UnusableError: It is another version, or the file does not have its digest.
        ProblemError: There is no such version, or it was withdrawn.
    """
    from workers.cli.errors import UnusableError

    version = operator.version(ref, named)
    number = version["number"]
    if type(number) is not int or named not in ("current", number):
        raise UnusableError(f"the service's answer is about another version of {ref}")
    file = operator.artifact(ref, number)
    if hashlib.sha256(file).hexdigest() != version["head"]:
        raise UnusableError(
            "the file does not have the digest that the service names: download it again"
        )
    return version, file, operator.model_signature(ref, number)


@click.command()
@service_url
@click.argument("ref")
@click.option(
    "--mlflow",
    "tracking",
    required=True,
    help="MLflow's tracking URI, such as http://mlflow:5000 or sqlite:///mlflow.db.",
)
@click.option("--name", help="Name of the registered model in MLflow. Default: REF.")
def push(url: str, ref: str, tracking: str, name: str | None) -> None:
    """Push the current version of REF to MLflow; delete withdrawn versions there.

    MLflow's alias `current` names the pushed version; its tag `lethe.certificate` is the
    digest of the certified statement. Fails if files of a withdrawn version are still stored.
    """
    from workers.cli.errors import UnusableError, shown
    from workers.mlflow_store import MlflowStore

    with service.connect(url) as operator, shown():
        version, file, signature = fetch(operator, ref, "current")
        model = operator.model(ref)
        if (state := model["state"]) != "ready":
            raise UnusableError(
                f"{ref} is {state}, and only a ready model can be pushed: wait until "
                "`lethe model show` says ready"
            )
        store = MlflowStore(tracking, name or ref)
        native = f"model.{native_suffix(model['config'], file)}"
        files = {native: file, f"{native}.sig": signature}
        made = store.push(ref, version, files)
        number = version["number"]
        if made is None:
            click.echo(f"{store.name} already has version {number} of {ref}")
        else:
            click.echo(f"{store.name} version {made} is version {number} of {ref}")
        # Only now: an erasure may have withdrawn the version since it was fetched.
        withdrawn = [one["number"] for one in operator.versions(ref) if one["withdrawn_at"]]
        for gone in store.delete_withdrawn(ref, withdrawn):
            click.echo(f"{store.name} version {gone} was withdrawn: deleted with its files")
        if number in withdrawn:
            raise UnusableError(
                f"version {number} of {ref} was withdrawn while it was pushed: push again"
            )
