"""`lethe intake`: codes for people whose identity an operator checked."""

import click
from sqlmodel import Session

from app.intake.fields import kinds_of
from app.ledger.startup import open_ledger, require_schema
from app.service.access.keys import authorise
from app.service.access.roles import DECIDING
from app.service.intake.codes import LIFE_DAYS, MAX_CHECKED, issue
from app.service.intake.request import EMAIL
from app.settings import Settings
from app.vault.master import RootSecret
from lethe.cli import saved
from lethe.errors import LetheError
from models.database.session import opened_engine


class CheckedError(LetheError):
    """The description of how an identity was checked is invalid."""

    slug, title, status = "checked-invalid", "Not a description", 422


def _token(_: click.Context, __: click.Parameter, given: str | None) -> str:
    login = saved.read()
    found = given or (None if login is None else login.token)
    if found is None:
        raise click.UsageError("a token is needed: set LETHE_TOKEN, or run `lethe login`")
    return found


@click.group()
def intake() -> None:
    """Create codes for the intake page, where people ask for the erasure of their data."""


@intake.command()
@click.option("--kind", required=True, help="Kind of the identity: email, customer, phone, …")
@click.option(
    "--value",
    prompt="Address or number",
    hide_input=True,
    help="Default: a prompt without echo, which keeps it out of the shell history.",
)
@click.option("--checked", required=True, help="How you checked the person's identity.")
@click.option(
    "--token",
    envvar="LETHE_TOKEN",
    callback=_token,
    help="Your own bearer token, of an operator or officer; better in LETHE_TOKEN, where `ps` "
    "does not show it, or from `lethe login`.",
)
def code(kind: str, value: str, checked: str, token: str) -> None:
    """Print a code for one person, once. It proves this identity on /intake for 14 days.

    The database keeps neither the code nor the identity. The log has the name of your token:
    who issued the code cannot approve what is asked for with it.
    """
    if not 0 < len(checked) <= MAX_CHECKED or not checked.isprintable():
        raise CheckedError(f"--checked: 1 to {MAX_CHECKED} printable characters")
    settings = Settings()
    root_secret = RootSecret.load(settings)
    with opened_engine(settings.resolved_database_url, settings.stall_seconds) as engine:
        require_schema(engine)
        open_ledger(settings, engine)  # registers the key that seals columns
        with Session(engine) as session:
            by = authorise(session, f"Bearer {token}", DECIDING).name
            text = issue(session, root_secret, kind, value, checked, by)
            session.commit()
    if kind not in (EMAIL, *kinds_of(settings)):
        click.echo(
            f"the page does not ask for {kind}: correct --kind, or serve with "
            f"LETHE_INTAKE_KINDS={','.join((*kinds_of(settings), kind))}",
            err=True,
        )
    click.echo(text)
    click.echo(f"valid once, for {LIFE_DAYS} days: give it to that person only", err=True)
