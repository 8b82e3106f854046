"""`lethe token`: bearer tokens of operators, officers, auditors and agents."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlmodel import Session, col, select

from app.ledger.key_rows import key_rows
from app.ledger.startup import open_ledger, require_schema
from app.reconcile.approval import FROM_OIDC
from app.reconcile.fsck.intake import REQUESTER
from app.service.roles import SCOPES
from app.settings import Settings
from lethe.errors import LetheError
from models import BearerToken
from models.database.session import opened_engine
from models.database.types import utcnow

SECRET_BYTES = 32  # 43 characters of base64url; too many to guess, so a plain hash will do


class TokenNameError(LetheError):
    """A name that is taken, or that no living token has."""

    slug = "token-name"
    title = "Token name not available"
    status = 409


@click.group()
def token() -> None:
    """Create, list and revoke bearer tokens."""


@token.command()
@click.option("--scope", required=True, type=click.Choice(SCOPES))
@click.option("--name", required=True, help="Name of the holder, as shown by `list`.")
def new(scope: str, name: str) -> None:
    """Print a new token, once: the database keeps only its hash."""
    with _session() as session:
        click.echo(mint(session, scope, name))


@token.command()
@click.argument("name")
def revoke(name: str) -> None:
    """Revoke the token NAME."""
    with _session() as session:
        revoke_named(session, name)
    click.echo(f"revoked {name}")


@token.command("list")
def list_() -> None:
    """List tokens: name, scope, when made, when revoked."""
    with _session() as session:
        rows = session.exec(select(BearerToken).order_by(col(BearerToken.created_at)))
        for row in rows:
            state = "live" if row.revoked_at is None else f"revoked {row.revoked_at:%FT%TZ}"
            if not key_rows(session).is_believed(row):
                state = "unknown: not as `lethe token` wrote it"
            click.echo(f"{row.name}\t{row.scope}\t{row.created_at:%FT%TZ}\t{state}")


def mint(session: Session, scope: str, name: str) -> str:
    """Store the hash of a fresh token and return the token, `lethe_<scope>_<43 characters>`.

    Raises:
        TokenNameError: A living token or the intake page has this name, or the name is empty
            or too long.
    """
    if not 0 < len(name) <= 80 or not name.isprintable():
        raise TokenNameError("a token's name has 1 to 80 printable characters")
    if name.casefold() == REQUESTER:
        raise TokenNameError("cases of the intake page have this name: choose another")
    if name.casefold().startswith(FROM_OIDC):
        raise TokenNameError(
            f"names that begin with {FROM_OIDC} are of people who sign in by OIDC"
        )
    if _living(session, name) is not None:
        raise TokenNameError("a living token has this name: revoke it or choose another")
    secret = f"lethe_{scope}_{secrets.token_urlsafe(SECRET_BYTES)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    row = BearerToken(digest=digest, scope=scope, name=name)
    key_rows(session).seal(row)
    session.add(row)
    session.flush()
    return secret


def revoke_named(session: Session, name: str) -> None:
    """Revoke the living token of this name.

    Raises:
        TokenNameError: There is none.
    """
    row = _living(session, name)
    if row is None:
        raise TokenNameError("no living token has this name: `lethe token list` shows them")
    rows = key_rows(session)
    rows.revoke(row)  # first: what is lost of it now can be done again
    row.revoked_at = utcnow()
    rows.seal(row)
    session.add(row)
    session.flush()


def _living(session: Session, name: str) -> BearerToken | None:
    query = select(BearerToken).where(
        BearerToken.name == name, col(BearerToken.revoked_at).is_(None)
    )
    rows = key_rows(session)
    return next((row for row in session.exec(query).all() if rows.is_written_here(row)), None)


@contextmanager
def _session() -> Iterator[Session]:
    settings = Settings()
    with opened_engine(settings.resolved_database_url) as engine:
        require_schema(engine)
        open_ledger(settings, engine)  # whose key authenticates the rows
        with Session(engine) as session:
            yield session
            session.commit()
