"""Rotates the master key, with an overlap in which both the old and the new key open all data.

    master.next.key      the new key, unless LETHE_MASTER_KEY_NEXT sets it     durable
    root.sealed          sealed under the new key too: either opens it         durable
    master-key.rotated   the log's entry                                       signed
    ...                  the overlap: each process gets the new key
    master-key.revoked   the log's entry                                       signed
    master.key           the new key in its place, or gone
    root.sealed          sealed under the new key only: the old one opens nothing

Data sealed under the root secret is not touched. A crash between two lines leaves an
installation that either key opens; running the same command again continues.
"""

from collections.abc import Sequence
from pathlib import Path

from app.keys.alone import Rotated, alone, remove
from app.keys.issuer import require_unchanged
from app.keys.master import MasterSpan, master_keys, sealed_for
from app.ledger.journal import record_master_key_event
from app.ledger.key_files import require_no_folder
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import ConflictError
from app.settings import Settings
from app.vault.errors import MasterKeyError
from app.vault.master import FILE, NEXT_FILE, create_key, given, parse_key, read_key, source
from app.vault.root import SealedRoot, open_root, read_roots, seal_root, write_roots
from lethe.files import sync_directory
from lethe.log.entries import MASTER_KEY_EVENT
from lethe.log.key_changes import MASTER_REVOKED, MASTER_ROTATED, MasterKeyChange


def rotate_master(settings: Settings, ledger: Ledger) -> MasterSpan:
    """Seal the root secret under another master key too, beside the one in use.

    Raises:
        KeysBusyError: Another command is changing the keys.
        ConflictError: Two keys are in use already; or no other key is given.
        KeyPlaceError: The next key's path is a directory.
        MasterKeyError: The key in use does not open root.sealed, or the next key is malformed.
        KeysChangedError: Another rotation was faster.
        UnpublishedError: The entry is stored but not signed yet; the overlap has begun.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with alone(settings.keys_dir):
        return _rotate(settings, ledger)


def _rotate(settings: Settings, ledger: Ledger) -> MasterSpan:
    folder, known = settings.keys_dir, master_keys(ledger)
    roots = read_roots(folder)
    used = known.of(roots)
    if len(used) > 1 and used[-2].revoked is None:
        raise ConflictError(
            "two master keys are in use already: run `lethe service-key revoke master` first"
        )
    kept = sealed_for(roots, used[-1].keyid)
    opened = open_root(given(settings), roots)
    if opened is None:
        raise MasterKeyError(f"{source(settings)} does not open root.sealed")
    root = opened[1]

    def effect(tx: Transaction) -> MasterSpan:
        require_unchanged(tx, known.size, MASTER_KEY_EVENT)
        following = _next(settings, kept)
        if open_root(following, [kept]) is not None:
            raise ConflictError("the next master key is the one in use: give another")
        # A rotation that crashed before its entry may have sealed it under this or another key.
        left = [one for one in roots if one != kept and open_root(following, [one]) is not None]
        fresh = left[0] if left else seal_root(following, root)
        write_roots(folder, [kept, fresh])  # first: a key in the log must open root.sealed
        said = MasterKeyChange(MASTER_ROTATED, fresh.keyid, replaces=kept.keyid)
        return MasterSpan(fresh.keyid, record_master_key_event(tx, MASTER_ROTATED, said))

    return ledger.transact(effect)


def revoke_master(settings: Settings, ledger: Ledger, reason: str) -> Rotated[MasterSpan]:
    """End the overlap: the older master key no longer opens anything.

    Raises:
        KeysBusyError: Another command is changing the keys.
        ConflictError: Only one key is in use; or the new key is not in use here yet.
        MasterKeyError: root.sealed or a key is missing or damaged.
        KeysChangedError: A key was rotated or revoked meanwhile.
        UnpublishedError: The entry is stored but not signed yet: run the command again.
        ForkedError, LogDamagedError, GuardError: As `model_events`.
    """
    with alone(settings.keys_dir) as left:
        return _revoke(settings, ledger, reason, left)


def _revoke(
    settings: Settings, ledger: Ledger, reason: str, left: Sequence[Path]
) -> Rotated[MasterSpan]:
    folder, known = settings.keys_dir, master_keys(ledger)
    roots = read_roots(folder)
    used = known.of(roots)
    if len(used) < 2 or (used[-2].revoked is not None and roots[0].keyid == used[-1].keyid):
        raise ConflictError(
            "only one master key is in use: run `lethe service-key rotate master` first"
        )
    old, new = used[-2], sealed_for(roots, used[-1].keyid)
    _require_in_use(settings, new)
    if old.revoked is not None:
        take_over(settings, old.keyid, new, left)
        return Rotated(old, True)

    def effect(tx: Transaction) -> int:
        require_unchanged(tx, known.size, MASTER_KEY_EVENT)
        said = MasterKeyChange(MASTER_REVOKED, old.keyid, reason=reason)
        return record_master_key_event(tx, MASTER_REVOKED, said)

    index = ledger.transact(effect)
    take_over(settings, old.keyid, new, left)
    return Rotated(MasterSpan(old.keyid, old.start, old.end, index, reason), False)


def _next(settings: Settings, used: SealedRoot) -> bytes:
    """Return the next master key: LETHE_MASTER_KEY_NEXT, or a new key in a file.

    An existing file is replaced unless its key is `used`: somebody else may know its key.
    """
    if text := settings.master_key_next.get_secret_value():
        return parse_key(text, "LETHE_MASTER_KEY_NEXT")
    if settings.master_key.get_secret_value():
        raise ConflictError(
            "set LETHE_MASTER_KEY_NEXT to the next master key, for this command: "
            "`openssl rand -base64 32` makes one"
        )
    path = settings.keys_dir / NEXT_FILE
    require_no_folder(path)
    if _opens(settings, NEXT_FILE, used):
        return read_key(path)
    path.unlink(missing_ok=True)
    return create_key(path)


def _require_in_use(settings: Settings, new: SealedRoot) -> None:
    """Check that processes started with these settings will use the new key."""
    if settings.master_key.get_secret_value():
        if open_root(given(settings), [new]) is None:
            raise ConflictError(
                "LETHE_MASTER_KEY is not the new master key: first give that to each process, "
                "and to this command"
            )
    elif not any(_opens(settings, name, new) for name in (NEXT_FILE, FILE)):
        raise ConflictError(
            f"{NEXT_FILE} is not the new master key: set LETHE_MASTER_KEY to it for each "
            "process, and for this command"
        )


def take_over(settings: Settings, old: str, new: SealedRoot, left: Sequence[Path]) -> None:
    """Move the new key into the old key's place; the old key then opens nothing.

    left: unfinished files, which may include a root.sealed that the old key opens.
    """
    folder = settings.keys_dir
    if settings.master_key.get_secret_value():
        for name in (FILE, NEXT_FILE):  # no longer read
            (folder / name).unlink(missing_ok=True)
    elif _opens(settings, NEXT_FILE, new):
        (folder / NEXT_FILE).replace(folder / FILE)
    sync_directory(folder)
    remove(folder, left)  # before the last step, after which the command is never resumed
    # Read again and drop only the old key, so that no key in the log is ever lost here.
    write_roots(folder, [one for one in read_roots(folder) if one.keyid != old])


def _opens(settings: Settings, name: str, new: SealedRoot) -> bool:
    path = settings.keys_dir / name
    try:
        return path.is_file() and open_root(read_key(path), [new]) is not None
    except MasterKeyError:  # not a key
        return False
