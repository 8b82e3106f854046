"""Creates root.sealed in an upgrade, with the master key as the root secret.

Databases filled at a revision up to 0011 need it (`tests/migrations/test_then.py`): their keys
and tags were made with the master key itself, and stay valid.
"""

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.ledger.log_files import LOG_KEY
from app.settings import Settings
from app.vault import root
from app.vault.errors import SealError
from app.vault.master import RootSecret, given, open_tombstone_key
from models import Model
from models.database.session import reading


def adopt_root(settings: Settings, engine: Engine) -> bool:
    """Write root.sealed if the installation predates it; return whether it was written.

    A lost file is not recreated: its secret was not the master key, so the master key does not
    open the models' keys. Without a model this cannot be tested, and nothing is written. Raises
    MasterKeyError: The master key is missing or malformed.
    """
    folder = settings.keys_dir
    if not (folder / LOG_KEY).exists() or (folder / root.FILE).exists():
        return False
    key = given(settings)
    with Session(reading(engine)) as session:
        sealed = select(Model).where(col(Model.tombstone_key) != b"")  # empty once deleted
        model = session.exec(sealed.limit(1)).first()
        if model is None:
            return False
        try:
            open_tombstone_key(RootSecret(key), model)
        except SealError:
            return False
    root.create_root(folder, key, key)
    return True
