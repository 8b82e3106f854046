"""Cosigning a checkpoint: the writing side of `lethe.log.cosignature`."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from lethe.log.cosignature import TIME_SIZE, ed25519_message, ml_dsa_message
from lethe.log.note import COSIGNATURE, ML_DSA_44, NoteVerifier, SignatureLine
from lethe.records import dataclass


@dataclass(frozen=True, slots=True)
class Cosigner:
    """A private key that signs checkpoints with a time, and the name it signs under."""

    name: str
    key: Ed25519PrivateKey | MLDSA44PrivateKey

    @property
    def verifier(self) -> NoteVerifier:
        """The public half, of type 0x04 or 0x06 depending on the key."""
        kind = ML_DSA_44 if isinstance(self.key, MLDSA44PrivateKey) else COSIGNATURE
        return NoteVerifier.of(self.name, self.key.public_key(), kind)

    def line(self, text: str, time: int) -> str:
        """Return the signature line over a checkpoint's text, at a time in seconds since 1970.

        The caller must ensure that the checkpoint extends all that it cosigned before. Raises
        ValueError: the text is not a checkpoint, or a name has more than 255 bytes.
        """
        if isinstance(self.key, MLDSA44PrivateKey):
            signature = self.key.sign(ml_dsa_message(self.name, time, text))
        else:
            signature = self.key.sign(ed25519_message(time, text))
        stamped = time.to_bytes(TIME_SIZE, "big") + signature
        return SignatureLine(self.name, self.verifier.key_id, stamped).text
