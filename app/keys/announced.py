"""The proofs, stored beside the keys, that each key of the log announced the next.

The database has them too, until it is restored from a backup and a mirror: a mirror keeps only
the latest checkpoint, which the newer key signed.
"""

from app.ledger.entry_macs import KeyMissingError
from app.ledger.log_files import KINDS
from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.certificates import shape
from lethe.certificates.trust_root import AnnouncementPart
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.log_keys import LogKey, LogKeys
from lethe.log.note import NoteError

Announced = list[tuple[LogKey, AnnouncementPart | None]]


def keep_announcement(settings: Settings, ledger: Ledger, keys: LogKeys) -> None:
    """Write the previous key's checkpoint over the newest key's entry, with its proof.

    Raises UnpublishedError: there is no such checkpoint yet.
    """
    proof = _proof(ledger, keys, len(keys.keys) - 1)
    name = _name(keys, len(keys.keys) - 1)
    write_durably(settings.keys_dir / name, shape.encode(proof), mode=0o644)


def announcements(settings: Settings, ledger: Ledger, keys: LogKeys) -> Announced:
    """Return for each key the announcement that was written, or that could be written now.

    The first key has None.

    Raises KeyMissingError: a file is malformed; UnpublishedError: nothing was written, and
    there is no such checkpoint yet.
    """
    found: Announced = [(keys.keys[0], None)]
    for at, key in list(enumerate(keys.keys))[1:]:
        path = settings.keys_dir / _name(keys, at)
        try:
            part = shape.decode(AnnouncementPart, path.read_bytes())
        except FileNotFoundError:  # an interrupted rotation
            part = _proof(ledger, keys, at)
        except LetheError as error:
            raise KeyMissingError(f"{path}: {error.detail}: restore it") from None
        found.append((key, part))
    return found


def _proof(ledger: Ledger, keys: LogKeys, at: int) -> AnnouncementPart:
    """Return the announcement of the first checkpoint over the entry, or of the latest one.

    The first checkpoint may lack an ML-DSA-44 signature, if a process that started before
    `lethe log ml-dsa` signed it.
    """
    start, before = keys.keys[at].start, LogKeys((keys.keys[at - 1],), keys.kind)
    receipt, latest = ledger.receipt(start), ledger.latest()
    for note, size in ((receipt.checkpoint, receipt.tree_size), (latest.note, latest.size)):
        try:
            before.open(note)
        except NoteError:
            continue
        return AnnouncementPart(note, tuple(ledger.inclusion(start, size)))
    raise UnpublishedError(
        "no checkpoint over the new key has the old one's signature: restart the processes "
        "that started before `lethe log ml-dsa`, and run it again after the next entry"
    )


def _name(keys: LogKeys, at: int) -> str:
    role = next(role for role, kind in KINDS.items() if kind == keys.kind)
    return f"{role}.{keys.keys[at].verifier.key_id.hex()}.announced.json"
