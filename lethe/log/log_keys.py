"""The keys of one log: each signs checkpoints from the tree that announces it on.

A log announces its next key by an entry under the old one, and signs with both until another
entry revokes the old one. A checkpoint over the revoking entry no longer counts under the old
key. The log's second keys, ML-DSA-44, form a separate chain of the same form.
"""

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lethe.canonical import format_base64
from lethe.log.checkpoint import Checkpoint, CheckpointError, parse_checkpoint
from lethe.log.note import ED25519, NoteError, NoteVerifier, read_note
from lethe.records import dataclass


@dataclass(frozen=True, slots=True)
class LogKey:
    """A key of a log.

    start: the entry that announces it, 0 for the first. revoked: the entry that revokes it.
    """

    verifier: NoteVerifier
    start: int = 0
    revoked: int | None = None
    reason: str | None = None

    def check_size(self, size: int) -> None:
        """Check that the key may sign a tree of this size.

        Raises NoteError: it was not announced yet, or was revoked.
        """
        if self.start and size <= self.start:
            raise NoteError(
                f"the log's key {self.verifier.key_id.hex()} was announced by entry "
                f"{self.start}, and this checkpoint has {size} entries"
            )
        if self.revoked is not None and size > self.revoked:
            raise NoteError(
                f"the log's key {self.verifier.key_id.hex()} was revoked by entry "
                f"{self.revoked}, and this checkpoint has {size} entries"
            )


@dataclass(frozen=True, slots=True)
class LogKeys:
    """All keys of a log of one kind, oldest first, at least one. They share the log's name.

    kind: ED25519, or ML_DSA_44 for the log's second keys. also: keys of which one must have
    signed too, None if none is required.
    """

    keys: tuple[LogKey, ...]
    kind: bytes = ED25519
    also: "LogKeys | None" = None

    @classmethod
    def of(cls, *verifiers: NoteVerifier, kind: bytes = ED25519) -> "LogKeys":
        """Return keys whose periods of validity are unknown: they count as always valid."""
        return cls(tuple(map(LogKey, verifiers)), kind)

    @property
    def name(self) -> str:
        """The log's name."""
        return self.keys[0].verifier.name

    @property
    def verifiers(self) -> list[NoteVerifier]:
        """The keys without their ranges."""
        return [one.verifier for one in self.keys]

    @property
    def known(self) -> list[NoteVerifier]:
        """The keys whose signature lines are verified, those of `also` too."""
        return [*self.verifiers, *([] if self.also is None else self.also.verifiers)]

    @property
    def newest(self) -> list[NoteVerifier]:
        """The newest key, and that of `also`."""
        return [self.verifiers[-1], *([] if self.also is None else self.also.verifiers[-1:])]

    def open(self, note: str) -> tuple[Checkpoint, LogKey]:
        """Return the checkpoint of a note, and the oldest valid key that signed it.

        Raises NoteError: no key of the log that was valid at this size signed it, or none of
        `also`, or a line is wrong; CheckpointError: the signed text is not a checkpoint, or of
        another origin.
        """
        if any(one.kind != self.kind for one in self.verifiers):
            raise NoteError("a witness's key does not sign for a log: give the log's own key")
        opened = read_note(note, self.verifiers)
        checkpoint = parse_checkpoint(opened.text)
        if checkpoint.origin != self.name:
            raise CheckpointError("the checkpoint belongs to another log: its origin differs")
        refused: NoteError | None = None
        for one in self.keys:
            if one.verifier in opened.verified:
                try:
                    one.check_size(checkpoint.size)
                except NoteError as error:
                    refused = error
                else:
                    self._require_also(note)
                    return checkpoint, one
        assert refused is not None, "read_note found a signature by one of them"
        raise refused

    def _require_also(self, note: str) -> None:
        if self.also is None:
            return
        try:
            self.also.open(note)
        except NoteError as error:
            raise NoteError(
                f"the log's ML-DSA-44 key did not sign this checkpoint: {error.detail}"
            ) from None


def spki_of_log(key: NoteVerifier) -> bytes:
    """Return a key as in log entries: SubjectPublicKeyInfo in DER."""
    return key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def log_keys(given: NoteVerifier | LogKeys, kind: bytes = ED25519) -> LogKeys:
    """Return LogKeys unchanged, or wrap a single key."""
    return given if isinstance(given, LogKeys) else LogKeys.of(given, kind=kind)


_FIRST = "lethe-trust-root/v1"


def trust_text(origin: str, digest: bytes) -> str:
    """Return the note's text over the SHA-256 of a trust root's other members.

    The second line of a checkpoint is its size. Here it is "log " and the origin, so that
    neither text can be mistaken for the other.
    """
    return f"{_FIRST}\nlog {origin}\n{format_base64(digest)}\n"
