"""`python -m migrations MESSAGE`: generate the next revision from the current models.

Review the file before committing it, and set `HEAD` in `migrations/__init__.py`.
"""

import sys
import tempfile
from pathlib import Path

from alembic import command

from migrations import HEAD
from migrations.runner import alembic_config, upgrade
from models.database.session import make_engine

if len(sys.argv) != 2:
    sys.exit(__doc__)
with tempfile.TemporaryDirectory() as directory:
    engine = make_engine(f"sqlite:///{Path(directory, 'schema.db')}")
    upgrade(engine)
    with engine.begin() as connection:
        command.revision(
            alembic_config(connection),
            message=sys.argv[1],
            autogenerate=True,
            rev_id=f"{int(HEAD) + 1:04}",
        )
    engine.dispose()
