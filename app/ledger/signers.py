"""The log's signers: its Ed25519 and ML-DSA-44 keys, and in an overlap their next keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.key_changes import LOG, ML_DSA
from lethe.log.log_keys import LogKeys, trust_text
from lethe.log.note import NoteSigner, NoteVerifier, sign_note


class Signers(Protocol):
    """A source of the current signing keys."""

    def current(self) -> "LogSigners":
        """Return the signers for the current keys."""


@dataclass(frozen=True, slots=True)
class LogSigners:
    """The private keys in use, oldest first, and the retired public keys.

    cosigners: the ML-DSA-44 keys; empty if the log has no second key.
    """

    signers: tuple[NoteSigner, ...]
    cosigners: tuple[Cosigner, ...] = ()
    previous: Sequence[NoteVerifier] = ()
    previous_ml_dsa: Sequence[NoteVerifier] = ()

    @property
    def keys(self) -> LogKeys:
        """All public keys, oldest first."""
        return LogKeys.of(*self.known(LOG))

    def known(self, role: str) -> list[NoteVerifier]:
        """The public keys of a role, LOG or ML_DSA, oldest first."""
        previous = self.previous if role == LOG else self.previous_ml_dsa
        found = [*previous, *self.signing(role)]
        return list({one.vkey: one for one in found}.values())

    def signing(self, role: str) -> list[NoteVerifier]:
        """The public halves of a role's private keys."""
        if role == LOG:
            return [one.verifier for one in self.signers]
        return [one.verifier for one in self.cosigners]

    def checkpoint(self, checkpoint: Checkpoint) -> str:
        """Return the note of a checkpoint, with a signature line of each key."""
        return sign_checkpoint(checkpoint, *self.signers, cosigners=self.cosigners)

    def trust_root(self, digest: bytes) -> str:
        """Return the signature lines over the SHA-256 of a trust root."""
        note = sign_note(trust_text(self.signers[0].name, digest), *self.signers)
        return note.rpartition("\n\n")[2]

    @property
    def vkeys(self) -> list[str]:
        """The public halves of the private keys."""
        return [one.vkey for role in (LOG, ML_DSA) for one in self.signing(role)]

    def current(self) -> "LogSigners":
        """Return these signers, which never change."""
        return self
