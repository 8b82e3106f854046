"""`lethe model register --vectors`: a vector index of the rows in DATA."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workers.cli import service
from workers.cli.models.recipe import FIT_SECONDS, refuse_others

if TYPE_CHECKING:
    from workers.registration.recipe import RecipeRegistration, RecipeRows


def register_vectors(
    url: str, ref: str, data: Path | None, file: Path, columns: Mapping[str, Any]
) -> None:
    """Register an index of the rows in DATA, wait until it is built, and measure it."""
    from workers.cli.errors import shown
    from workers.registration import vectors
    from workers.registration.recipe import read_recipe

    refuse_others(click.get_current_context())
    with shown():
        options = read_recipe(file)
        rows = _read(data, columns)
        prepared = vectors.prepare_vectors(rows, options, ref=ref, folder=file.parent)
        _check(prepared)
    with service.connect(url) as operator:
        operator.register_model(service.decided(prepared.manifest), prepared.npz)
        click.echo(f"registered {prepared.summary()}; building …")
        service.wait_until_ready(operator, ref, FIT_SECONDS)
        version = operator.model(ref)["current_version"]
        with shown():
            queries = prepared.features if len(prepared.features) else rows.features
            queries = queries[: vectors.QUERIES]
            found = vectors.recall(operator.artifact(ref, int(version)), queries)
    whose = "held-out" if len(prepared.features) else "own"
    click.echo(
        f"recall@{vectors.NEIGHBOURS} beside exhaustive search, {len(queries)} {whose} rows as "
        f"queries: {found:.3f}"
    )


def _read(data: Path | None, columns: Mapping[str, Any]) -> "RecipeRows":
    """Return the vectors of DATA, and say what was read. Raises RefusedError.

    No row is held out unless asked for, by --holdout or --send-holdout: an index is of all.
    """
    from workers.cli.data_options import reading, roles_of
    from workers.data.federation import HELD_OUT
    from workers.data.npz import load_npz, names_held_out
    from workers.data.opening import check_installed, is_table, read_labelled, refuse_roles
    from workers.errors import RefusedError
    from workers.registration.vectors import vectors_of_federation, vectors_of_table

    sent = bool(columns.get("send_holdout"))
    if data is None:
        raise RefusedError("an index needs DATA: a query's result cannot hold vectors")
    if not is_table(data):
        roles = roles_of(columns)
        refuse_roles(roles)
        share = None if roles is None or names_held_out(data) else roles.npz_share()
        share = (HELD_OUT if sent else 0.0) if share is None else share
        rows = vectors_of_federation(load_npz(data, share=share, labelled=False))
    else:
        check_installed()
        from workers.data.tables.labelled import Roles

        roles = roles_of(columns) or Roles()
        unasked = None if sent else "none"
        wanted = replace(roles, unlabelled=True, holdout=roles.holdout or unasked)
        with reading(f"reading {data.name}") as progress:
            table, unused = read_labelled(data, wanted, progress=progress)
            rows = vectors_of_table(table)
        if unused:
            click.echo(f"not used: {', '.join(unused[:8])}")
    count, width = rows.features.shape
    click.echo(f"{count:,} vectors of {width:,} float32 numbers")
    return replace(rows, send_held_out=sent)


def _check(prepared: "RecipeRegistration") -> None:
    """Raise click.ClickException where the service would refuse the manifest."""
    from pydantic import ValidationError

    from app.schemas.families.vectors import NewVectors
    from workers.cli.models.training import first_problem

    try:
        NewVectors.model_validate(prepared.manifest)
    except ValidationError as error:
        raise click.ClickException(first_problem(error)) from None
