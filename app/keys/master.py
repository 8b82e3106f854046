"""The current and former master keys by the signed log."""

from dataclasses import dataclass

from app.ledger.sequencer import Ledger
from app.reconcile.model_events import master_key_events
from app.vault.errors import MasterKeyError
from app.vault.root import SealedRoot
from lethe.log.entries import parse_leaf
from lethe.log.key_changes import MASTER_ROTATED


@dataclass(frozen=True, slots=True)
class MasterSpan:
    """A master key by its keyid. start: the log index from which it opens the root secret.

    end: the log index of the rotation that replaces it. revoked: the log index of its
    revocation, after which it opens nothing; reason: the revocation's reason.
    """

    keyid: str
    start: int
    end: int | None = None
    revoked: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """The master keys that the log's first `size` entries name, oldest first.

    Before the first rotation there are none.
    """

    keys: tuple[MasterSpan, ...]
    size: int

    def of(self, roots: tuple[SealedRoot, ...]) -> tuple[MasterSpan, ...]:
        """Return the keys; before the first rotation, the first key in root.sealed."""
        return self.keys or (MasterSpan(roots[0].keyid, 0),)


def master_keys(ledger: Ledger) -> MasterKeys:
    """Return the master keys that the log names.

    Raises ForkedError, LogDamagedError or GuardError: as `model_events`.
    """
    read, found = master_key_events(ledger), dict[str, MasterSpan]()
    for index, data in read.entries:
        change = parse_leaf(data).master
        assert change is not None
        if change.event == MASTER_ROTATED and change.replaces is not None:
            before = found.get(change.replaces, MasterSpan(change.replaces, 0))
            found[before.keyid] = MasterSpan(before.keyid, before.start, index)
            found[change.keyid] = MasterSpan(change.keyid, index)
        else:
            was = found.get(change.keyid, MasterSpan(change.keyid, 0))
            found[was.keyid] = MasterSpan(was.keyid, was.start, was.end, index, change.reason)
    return MasterKeys(tuple(found.values()), read.size)


def sealed_for(roots: tuple[SealedRoot, ...], keyid: str) -> SealedRoot:
    """Return the root secret sealed under the master key `keyid`.

    Raises MasterKeyError: root.sealed lacks this key.
    """
    for one in roots:
        if one.keyid == keyid:
            return one
    raise MasterKeyError(
        f"root.sealed lacks the master key {keyid}, which the log names as the one in use: "
        "restore the newest backup of the keys directory"
    )
