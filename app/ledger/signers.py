"""Who signs for the log: its key, in an overlap the next one too, and its ML-DSA-44 key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteSigner, NoteVerifier, sign_note
from lethe.log.trust_text import trust_text


class Signers(Protocol):
    """Gives the keys that sign now."""

    def current(self) -> "LogSigners":
        """Return them."""


@dataclass(frozen=True, slots=True)
class LogSigners:
    """The private keys, the oldest in front, and the public ones of before."""

    signers: tuple[NoteSigner, ...]
    cosigner: Cosigner | None = None
    previous: Sequence[NoteVerifier] = ()

    @property
    def keys(self) -> LogKeys:
        """All public keys, oldest first."""
        found = [*self.previous, *(one.verifier for one in self.signers)]
        return LogKeys.of(*{one.vkey: one for one in found}.values())

    def checkpoint(self, checkpoint: Checkpoint) -> str:
        """Return the note of a checkpoint, with a line of each key."""
        return sign_checkpoint(checkpoint, *self.signers, cosigner=self.cosigner)

    def trust_root(self, digest: bytes) -> str:
        """Return the signature lines over the SHA-256 of a trust root."""
        note = sign_note(trust_text(self.signers[0].name, digest), *self.signers)
        return note.rpartition("\n\n")[2]

    @property
    def vkeys(self) -> list[str]:
        """The public halves of the private keys."""
        second = [] if self.cosigner is None else [self.cosigner.verifier.vkey]
        return [*(one.verifier.vkey for one in self.signers), *second]

    def current(self) -> "LogSigners":
        """Return these: they do not follow any file."""
        return self
