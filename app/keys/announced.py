"""The proofs that each key of the log led to the next, beside the keys.

The database has them too, until it is restored from a backup and a mirror: a mirror keeps the
latest checkpoint alone, which the newer key signed.
"""

from pathlib import Path

from app.ledger.entry_macs import KeyMissingError
from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.certificates import shape
from lethe.certificates.trust_root import AnnouncementPart
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.log_keys import LogKey


def keep_announcement(settings: Settings, ledger: Ledger, key: LogKey) -> None:
    """Write the checkpoint that the key before signed over the entry of `key`, and its proof.

    Raises:
        UnpublishedError: There is none yet.
    """
    write_durably(_path(settings, key), shape.encode(_proof(ledger, key)), mode=0o644)


def announcement(settings: Settings, ledger: Ledger, key: LogKey) -> AnnouncementPart | None:
    """Return what `keep_announcement` wrote, or would write now; None for the first key.

    Raises:
        KeyMissingError: The file holds something else.
        UnpublishedError: Nothing was written, and there is no such checkpoint yet.
    """
    if not key.start:
        return None
    path = _path(settings, key)
    try:
        return shape.decode(AnnouncementPart, path.read_bytes())
    except FileNotFoundError:  # a rotation that was interrupted
        return _proof(ledger, key)
    except LetheError as error:
        raise KeyMissingError(f"{path}: {error.detail}: restore it") from None


def _proof(ledger: Ledger, key: LogKey) -> AnnouncementPart:
    receipt = ledger.receipt(key.start)
    return AnnouncementPart(receipt.checkpoint, tuple(receipt.hashes))


def _path(settings: Settings, key: LogKey) -> Path:
    return settings.keys_dir / f"log.{key.verifier.key_id.hex()}.announced.json"
