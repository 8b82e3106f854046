"""`lethe migrate`: create the database or bring it to this version's schema."""

from contextlib import suppress

import click
from sqlalchemy.exc import OperationalError

from app.keys.adopt import adopt_root
from app.ledger.startup import UnreachableDatabaseError
from app.settings import Settings
from app.vault.errors import MasterKeyError
from app.vault.features import OWNERS, FeatureVault
from app.vault.master import RootSecret
from lethe.errors import LetheError
from lethe.files import keep_private
from migrations import HEAD
from migrations.grants import GrantError, check_role, grant
from migrations.runner import upgrade
from models.database.session import opened_engine

# For what `name_owners` finds after the upgrade that sealed all keys for their owners.
OLDER = (
    "the rows of {} subjects are sealed as an older version did, and open for nobody. If you "
    "restored a database of that version, remove {} and run this again; otherwise somebody put "
    "them there: run `lethe log fsck`, and restore the table subjects from a backup"
)


class RoleError(LetheError):
    """The named role cannot be granted privileges."""

    slug, title = "database-role", "No such database role"


@click.command()
@click.option(
    "--grant",
    "role",
    metavar="ROLE",
    help="PostgreSQL: also grant ROLE the service's privileges. It can append to the log, but "
    "not change or remove entries.",
)
def migrate(role: str | None) -> None:
    """Apply missing schema changes; several processes may run it at once."""
    keep_private()
    settings = Settings()
    settings.made_data_dir()
    try:
        with opened_engine(settings.resolved_database_url) as engine:
            if role is not None:
                check_role(engine, role)
            upgrade(engine)
            with suppress(MasterKeyError):  # missing or malformed: later uses report it
                adopt_root(settings, engine)
                vault = FeatureVault(RootSecret.load(settings))
                older = vault.name_owners(engine, settings.keys_dir)
                if older:
                    click.echo(OLDER.format(older, settings.keys_dir / OWNERS), err=True)
            if role is not None:
                grant(engine, role)
    except OperationalError:  # not chained: its text may repeat the URL's user and host
        raise UnreachableDatabaseError(
            "the database does not answer or refuses access: check LETHE_DATABASE_URL and the "
            "role's privileges"
        ) from None
    except GrantError as error:
        raise RoleError(str(error)) from None
    click.echo(f"the database is at revision {HEAD}")
