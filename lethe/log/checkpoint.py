"""Checkpoints: the signed head of a log (C2SP tlog-checkpoint).

<origin>
<size, decimal>
<base64 of the root>
<extension lines, if any>
"""

import time
from collections.abc import Sequence

from lethe.canonical import format_base64, parse_base64, parse_decimal
from lethe.errors import LetheError
from lethe.log.cosigner import Cosigner
from lethe.log.note import ED25519, NoteError, NoteSigner, NoteVerifier, open_note, sign_note
from lethe.log.tree import EMPTY_ROOT, HASH_SIZE, MAX_SIZE
from lethe.records import dataclass


class CheckpointError(LetheError):
    """Text that is not a checkpoint, or the checkpoint of another log."""

    slug, title, status = "bad-checkpoint", "Not a valid checkpoint", 400


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One size of one log. `extensions` are opaque lines that some other logs write."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()


def format_checkpoint(checkpoint: Checkpoint) -> str:
    """Return the text that is signed.

    Raises CheckpointError: a field cannot be written in a checkpoint.
    """
    lines = (checkpoint.origin, *checkpoint.extensions)
    if not all(line and all(c >= " " for c in line) for line in lines):
        raise CheckpointError("origin and extensions are lines of text, none of them empty")
    if not 0 <= checkpoint.size <= MAX_SIZE:
        raise CheckpointError("a tree size is from 0 to 2**63 - 1")
    if len(checkpoint.root) != HASH_SIZE:
        raise CheckpointError(f"a root has {HASH_SIZE} bytes")
    if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
        raise CheckpointError("the root of size 0 is SHA-256 of nothing")
    head = (checkpoint.origin, str(checkpoint.size), format_base64(checkpoint.root))
    return "\n".join((*head, *checkpoint.extensions)) + "\n"


def parse_checkpoint(text: str) -> Checkpoint:
    """Parse a checkpoint's text, without its signatures.

    Raises CheckpointError: malformed, or not in the spelling of `format_checkpoint`.
    """
    lines = text.split("\n")
    if len(lines) < 4:
        raise CheckpointError("a checkpoint is at least three lines: origin, size, root")
    try:
        size = parse_decimal(lines[1], MAX_SIZE + 1)
        root = parse_base64(lines[2])
    except ValueError:
        raise CheckpointError("size is decimal below 2**63 and root is base64") from None
    checkpoint = Checkpoint(lines[0], size, root, tuple(lines[3:-1]))
    if format_checkpoint(checkpoint) != text:
        raise CheckpointError("the checkpoint is not in its canonical spelling")
    return checkpoint


def sign_checkpoint(
    checkpoint: Checkpoint, *signers: NoteSigner, cosigners: Sequence[Cosigner] = ()
) -> str:
    """Return the checkpoint as a note signed by the log's keys, and with a time by `cosigners`.

    The caller must never sign two checkpoints of which neither extends the other: together they
    would prove that the log forked.
    """
    text = format_checkpoint(checkpoint)
    now = int(time.time())
    return sign_note(text, *signers) + "".join(one.line(text, now) for one in cosigners)


def open_checkpoint(note: str, verifier: NoteVerifier, origin: str | None = None) -> Checkpoint:
    """Return the checkpoint that `verifier` signed for `origin` (default: its own name).

    Raises NoteError: the note does not verify, or the key is a witness's; CheckpointError: the
    signed text is not a checkpoint, or of another origin.
    """
    if verifier.kind != ED25519:
        raise NoteError("a witness's key does not sign for a log: give the log's own key")
    checkpoint = parse_checkpoint(open_note(note, [verifier]))
    if checkpoint.origin != (verifier.name if origin is None else origin):
        raise CheckpointError("the checkpoint belongs to another log: its origin differs")
    return checkpoint
