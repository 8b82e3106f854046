"""The root secret of an installation from before there was one: the master key itself.

Its tags were made with that key, and stay valid. Only the files are new.
"""

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.ledger.log_files import LOG_KEY
from app.settings import Settings
from app.vault import root
from app.vault.errors import SealError
from app.vault.master import RootSecret, given
from app.vault.model_key import open_tombstone_key
from models import Model
from models.database.session import reading


def adopt_root(settings: Settings, engine: Engine) -> bool:
    """Write root.sealed if the keys are older than it; return whether it was written.

    A file that was lost is not made anew: its secret is not the master key, which then does
    not open the models' keys. Without a model there is nothing to tell by, and nothing is made.

    Raises:
        MasterKeyError: The master key is missing, or it is malformed.
    """
    folder = settings.keys_dir
    if not (folder / LOG_KEY).exists() or (folder / root.FILE).exists():
        return False
    key = given(settings)
    with Session(reading(engine)) as session:
        sealed = select(Model).where(col(Model.tombstone_key) != b"")  # it is, once deleted
        model = session.exec(sealed.limit(1)).first()
        if model is None:
            return False
        try:
            open_tombstone_key(RootSecret(key), model)
        except SealError:
            return False
    root.create_root(folder, key, key)
    return True
