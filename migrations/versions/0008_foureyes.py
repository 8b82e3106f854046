"""Who registered and confirmed a key, and who issued a code of the intake page.

Revision ID: 0008
Revises: 0007

`key_events` opens the log's entries about keys, and is append-only like them. A database with
earlier keys or codes is refused: the log has no registration of these keys, so that each would
be unknown, and does not know who issued the codes.
"""

import sqlalchemy as sa
from alembic import op

from migrations.refusal import CannotCarryError, count_rows

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TABLE = "key_events"
NEW = ("ref", "registered_by", "confirmed_by", "salt")
KEYS = (
    "{} keys in requester_keys, which no entry of the log registers: nobody could sign with "
    "them. Go on with the version that made this database, or begin a log that names this "
    "one, with this version, an empty database and a new data directory: `lethe log init "
    "--succeeds KEYS`. Register the keys there again"
)
CODES = (
    "{} codes in intake_codes, of which nothing says who issued them. Have them used, or wait "
    "until they expire, with the version that issued them; or delete these rows, and issue "
    "the codes again after the upgrade: `lethe intake code`"
)


def upgrade() -> None:
    kept = {KEYS: count_rows("requester_keys"), CODES: count_rows("intake_codes")}
    if any(kept.values()):
        raise CannotCarryError(
            ". ".join(why.format(rows) for why, rows in kept.items() if rows)
        )
    with op.batch_alter_table("intake_codes") as table:
        table.add_column(sa.Column("issued_by", sa.LargeBinary(), nullable=False))
    op.add_column("intake_proofs", sa.Column("issued_by", sa.LargeBinary(), nullable=True))
    for column in (
        sa.Column("ref", sa.String(length=36), nullable=True),
        sa.Column("registered_by", sa.String(length=80), nullable=True),
        sa.Column("confirmed_by", sa.String(length=80), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
    ):
        op.add_column("requester_keys", column)
    op.create_table(
        TABLE,
        sa.Column(
            "log_index",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("ref", sa.String(length=36), nullable=False),
        sa.Column("event", sa.String(length=60), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("log_index", name=op.f("pk_key_events")),
    )
    op.create_index(op.f("ix_key_events_ref"), TABLE, ["ref"])
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {TABLE}_no_{verb.lower()} BEFORE {verb} ON {TABLE} "
                f"BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END"
            )
        # INSERT OR REPLACE deletes the old row without firing DELETE triggers.
        op.execute(
            f"CREATE TRIGGER {TABLE}_no_replace BEFORE INSERT ON {TABLE} "  # noqa: S608
            f"WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE log_index = NEW.log_index) "
            f"BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END"
        )
    else:
        op.execute(
            f"CREATE TRIGGER {TABLE}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
            f"ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION lethe_refuse_change()"
        )
        op.execute(f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {TABLE}_append_only")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for what in ("update", "delete", "replace"):
            op.execute(f"DROP TRIGGER {TABLE}_no_{what}")
    else:
        op.execute(f"DROP TRIGGER {TABLE}_append_only ON {TABLE}")
    op.drop_table(TABLE)
    # No batch: it would drop the table, to which requests refer.
    for name in NEW:
        op.drop_column("requester_keys", name)
    op.drop_column("intake_proofs", "issued_by")
    op.drop_column("intake_codes", "issued_by")
