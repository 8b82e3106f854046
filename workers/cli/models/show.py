"""`lethe model show` and `lethe model schema`: describe a model, print a manifest's schema."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from lethe.cli.options import plain, service_url
from workers.cli import service

DECIDED = {
    "review": "executed after review, by keys bound to what they erase at once",
    "at-once": "executed at once",
}
MOST_CLASSES = 12  # shown by name


@click.command()
@service_url
@click.argument("ref")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(url: str, ref: str, as_json: bool) -> None:
    """Show a model: its state, classes, extractor and quantiser, and its versions."""
    with service.connect(url) as operator:
        model = operator.model(ref)
        versions = list(operator.versions(ref))
    if as_json:
        click.echo(json.dumps({**model, "versions": versions}))
        return
    for line in described(model, versions):
        click.echo(plain(line))


@click.command()
@click.argument("family")
def schema(family: str) -> None:
    """Print the JSON schema of a FAMILY's manifest, such as ridge or recipe."""
    from app.schemas.families.manifests import MANIFESTS

    if family not in MANIFESTS:
        raise click.BadParameter(f"choose one of {', '.join(MANIFESTS)}", param_hint="FAMILY")
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **MANIFESTS[family].model_json_schema(),
    }
    click.echo(json.dumps(document, indent=2))


def described(model: Mapping[str, Any], versions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a description of a model for people, one line at a time."""
    config, classes = model["config"], model["classes"]
    number = model["current_version"]
    current = "no version yet" if number is None else f"version {number}"
    yield f"{model['ref']}: {model['state']}, {current}"
    if model["failure"]:
        yield f"failure     {model['failure']}"
    yield f"family      {config.get('family', 'ridge')}, method {model['method']}"
    if classes:
        more = f" and {len(classes) - MOST_CLASSES:,} more" * (len(classes) > MOST_CLASSES)
        yield f"classes     {len(classes):,}: {', '.join(classes[:MOST_CLASSES])}{more}"
    for version in versions:
        if version["number"] == number:
            yield f"rows        {version['retained_count']:,}"
    if model["extractor"]:
        extractor = model["extractor"]
        yield f"extractor   {extractor['id']}, sha256 {extractor['digest']}"
    if config.get("exponents"):
        least, most = min(config["exponents"]), max(config["exponents"])
        steps = f"2^{least}" if least == most else f"2^{least} to 2^{most}"
        yield (
            f"quantiser   {config['bits']} bits, {config['dimension']:,} columns in steps of "
            f"{steps}"
        )
        yield f"penalty     {float.fromhex(config['penalty']):g}"
        yield f"data        {config['data']}"
    if "network" in config:
        yield f"network     {config['network']['id']}, inputs {config['input_shape']}"
    wait = f", cooling off for {model['cooling_off']:,} s" * bool(model["cooling_off"])
    yield f"requests    {DECIDED.get(model['decide'], model['decide'])}{wait}"
    if versions:
        yield ""
        yield "version        rows  log entry  created               held-out rows        file"
    for version in versions:
        file = version["head"] if version["withdrawn_at"] is None else "withdrawn"
        yield (
            f"{version['number']:>7}  {version['retained_count']:>10,}  "
            f"{version['log_index']:>9}  {version['created_at'][:19]}Z  "
            f"{_figure(version['held_out']):<19}  {file}"
        )
    for version in versions:
        figure = version["held_out"] or {}
        if figure.get("withheld"):
            yield f"version {version['number']} not measured: {figure['withheld']}"
        for name, value in (figure.get("parts") or {}).items():
            yield f"version {version['number']} {name}: {value}"


def _figure(found: Mapping[str, Any] | None) -> str:
    """Return a version's figure on held-out rows as short text."""
    if found is None:
        return "-"
    value = "withheld" if found["withheld"] else f"{found['metric']} {found['value']}"
    return f"{value} ({found['rows']:,})"
