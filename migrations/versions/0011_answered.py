"""Whether a case is answered is stored, so that the queue reads those cases alone.

Revision ID: 0011
Revises: 0010

Triggers store it, in the transaction that ends or reopens a request, because many parts of the
service and its workers change requests' states, some many at once. Changes that concern one
case are serialised, because each appends to the log.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

ENDED = "('certified', 'failed', 'refused', 'withdrawn')"
STORE = (
    "UPDATE cases SET answered = NOT EXISTS (SELECT 1 FROM erasure_requests "  # noqa: S608
    f"WHERE case_ref = cases.ref AND state NOT IN {ENDED})"
)
# Requests may be stored before or after their case.
TRIGGERS = {
    "cases_answered_begins": ("INSERT ON cases", "", "NEW.ref"),
    "cases_answered_asked": (
        "INSERT ON erasure_requests",
        "NEW.case_ref IS NOT NULL",
        "NEW.case_ref",
    ),
    "cases_answered_moved": (
        "UPDATE OF state ON erasure_requests",
        f"NEW.case_ref IS NOT NULL AND (OLD.state IN {ENDED}) <> (NEW.state IN {ENDED})",
        "NEW.case_ref",
    ),
}
BEFORE = "ix_cases_closed_at_due_at_ref"
INDEX = "ix_cases_answered"


def upgrade() -> None:
    added: sa.Column[bool] = sa.Column(
        "answered", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("cases", added)
    op.execute(STORE)
    op.drop_index(BEFORE, "cases")
    listed = sa.column("closed_at").is_(None) & sa.column("answered").is_(sa.true())
    op.create_index(
        INDEX, "cases", ["due_at", "ref"], sqlite_where=listed, postgresql_where=listed
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for name, (event, condition, case) in TRIGGERS.items():
        when = f"WHEN ({condition}) " if condition else ""
        head = f"CREATE TRIGGER {name} AFTER {event} FOR EACH ROW {when}"
        store = f"{STORE} WHERE ref = {case};"
        if sqlite:
            op.execute(f"{head} BEGIN {store} END")
        else:
            op.execute(
                f"CREATE FUNCTION lethe_{name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {store} RETURN NULL; END $$"
            )
            op.execute(f"{head} EXECUTE FUNCTION lethe_{name}()")


def downgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    for name, (event, _, _) in TRIGGERS.items():
        if sqlite:
            op.execute(f"DROP TRIGGER {name}")
        else:
            op.execute(f"DROP TRIGGER {name} ON {event.rpartition(' ')[2]}")
            op.execute(f"DROP FUNCTION lethe_{name}")
    op.drop_index(INDEX, "cases")
    op.drop_column("cases", "answered")
    op.create_index(BEFORE, "cases", ["closed_at", "due_at", "ref"])
