"""`lethe token`: bearer tokens of operators, officers, auditors and agents."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlmodel import Session, col, select

from app.ledger.key_rows import key_rows
from app.ledger.startup import open_ledger, require_schema
from app.service.access.roles import SCOPES
from app.service.access.tokens import mint, revoke_named
from app.settings import Settings
from lethe.cli.options import as_json, each_as_json, plain, print_answer, print_json
from models import BearerToken
from models.database.session import opened_engine


@click.group()
def token() -> None:
    """Create, list and revoke bearer tokens."""


@token.command()
@click.option("--scope", required=True, type=click.Choice(SCOPES))
@click.option("--name", required=True, help="Name of the holder, as shown by `list`.")
@as_json
def new(scope: str, name: str, as_json: bool) -> None:
    """Print a new token, once: the database keeps only its hash."""
    with _session() as session:
        made = mint(session, scope, name)
    print_answer({"name": name, "scope": scope, "token": made}, as_json, made)


@token.command()
@click.argument("name")
@as_json
def revoke(name: str, as_json: bool) -> None:
    """Revoke the token NAME."""
    with _session() as session:
        revoke_named(session, name)
    print_answer({"name": name, "revoked": True}, as_json, f"revoked {name}")


@token.command("list")
@each_as_json
def list_(as_json: bool) -> None:
    """List tokens: name, scope, when made, when revoked."""
    with _session() as session:
        rows = session.exec(select(BearerToken).order_by(col(BearerToken.created_at)))
        for row in rows:
            state = "live" if row.revoked_at is None else f"revoked {row.revoked_at:%FT%TZ}"
            if not key_rows(session).is_believed(row):
                state = "unknown: not as `lethe token` wrote it"
            if as_json:
                made = f"{row.created_at:%FT%TZ}"
                print_json(
                    {"name": row.name, "scope": row.scope, "created_at": made, "state": state}
                )
                continue
            made = f"{row.created_at:%FT%TZ}"
            # Anybody may have written a row that is not believed.
            click.echo("\t".join(map(plain, (row.name, row.scope, made, state))))


@contextmanager
def _session() -> Iterator[Session]:
    settings = Settings()
    with opened_engine(settings.resolved_database_url, settings.stall_seconds) as engine:
        require_schema(engine)
        open_ledger(settings, engine)  # registers the key that authenticates rows
        with Session(engine) as session:
            yield session
            session.commit()
