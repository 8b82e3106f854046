"""The text that a log's key signs for a trust root: a digest, in a form unlike a checkpoint."""

from lethe.log.spelling import format_base64

_FIRST = "lethe-trust-root/v1"


def trust_text(origin: str, digest: bytes) -> str:
    """Return the note's text over the SHA-256 of a trust root's other members.

    The second line of a checkpoint is its size. Here it is "log " and the origin, so that
    neither text can be mistaken for the other.
    """
    return f"{_FIRST}\nlog {origin}\n{format_base64(digest)}\n"
