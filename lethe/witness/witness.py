"""A witness: it cosigns a checkpoint if it extends every earlier one (C2SP tlog-witness).

Its state is in `lethe.witness.heads`.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from lethe.errors import LetheError
from lethe.log.checkpoint import Checkpoint, CheckpointError, parse_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.note import NoteError, NoteVerifier, read_note, split_note
from lethe.log.proofs import ProofError, check_consistency
from lethe.log.tree import EMPTY_ROOT
from lethe.witness.heads import Head, Heads
from lethe.witness.protocol import AddCheckpoint, RequestError, parse_add_checkpoint

log = logging.getLogger(__name__)


class WitnessError(LetheError):
    """A checkpoint that is not cosigned; `status` is the HTTP status of the answer."""

    slug, title = "not-cosigned", "The checkpoint is not cosigned"


class UnknownLogError(WitnessError):
    """The witness does not know the log."""

    slug, status = "unknown-log", 404


class NotTheLogError(WitnessError):
    """No key of the log signed, or a log key's line is invalid."""

    slug, status = "not-signed-by-the-log", 403


class OldSizeError(WitnessError):
    """The request does not start from the last head; `size` is that of the last head."""

    slug, status = "other-size", 409

    def __init__(self, size: int) -> None:
        super().__init__("the old size is not that of the last checkpoint cosigned here")
        self.size = size


class InconsistentError(WitnessError):
    """The log signed a tree without proof that it extends the last head."""

    slug, status = "inconsistent", 422


class ClockError(WitnessError):
    """The clock is behind the time of the last cosignature."""

    slug, status = "clock-behind", 503


class Witness:
    """Cosigns checkpoints of known logs, with each of `cosigners`."""

    def __init__(
        self,
        cosigners: Sequence[Cosigner],
        keys: Callable[[str], Sequence[NoteVerifier]],
        heads: Heads,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Cosign for the logs whose keys `keys` returns, by origin."""
        self._cosigners, self.heads, self._clock = cosigners, heads, clock
        self._keys = keys
        # One request at a time: comparing the old size and writing the new one must be atomic.
        self._lock = threading.Lock()

    def add_checkpoint(self, body: bytes) -> str:
        """Return the cosignature lines for the checkpoint of a request.

        The new head is durable when this returns.

        Raises:
            RequestError: The body is malformed, or its old size is above the checkpoint's.
            WitnessError: The checkpoint is not cosigned; see the classes.
            StateError, OSError: The witness cannot remember it.
        """
        request = parse_add_checkpoint(body)
        try:
            text, lines = split_note(request.note)
            checkpoint = _checkpoint(text)
        except (NoteError, CheckpointError) as error:
            raise RequestError(f"not a checkpoint: {error.detail}") from None
        keys = self._keys(checkpoint.origin)
        if not keys:
            raise UnknownLogError("this witness does not know the log")
        try:
            signed = {(key.name, key.key_id) for key in read_note(request.note, keys).verified}
        except NoteError as error:
            raise NotTheLogError(error.detail) from None
        if request.old > checkpoint.size:
            raise RequestError("the old size is above the checkpoint's")
        own = "".join(line.text for line in lines if (line.name, line.key_id) in signed)
        with self._lock:
            held = self.heads.read(checkpoint.origin)
            self._require_extends(held, request, checkpoint, body)
            now = int(self._clock())
            if held is not None and now < held.time:
                raise ClockError(
                    "the clock of this witness is behind its last cosignature: set it"
                )
            self.heads.write(Head(checkpoint.origin, checkpoint.size, checkpoint.root, now))
            added = "".join(cosigner.line(text, now) for cosigner in self._cosigners)
            self.heads.answered(checkpoint.origin, f"{text}\n{own}{added}")
        return added

    def _require_extends(
        self, held: Head | None, request: AddCheckpoint, checkpoint: Checkpoint, body: bytes
    ) -> None:
        size, root = (0, EMPTY_ROOT) if held is None else (held.size, held.root)
        if checkpoint.size == size and checkpoint.root != root:
            # The log signed both, so together they prove the fork.
            log.error("a log signed another tree of the size of its head; the request is kept")
            self.heads.keep(checkpoint, body)
            if request.old == size:
                raise InconsistentError("another root was cosigned for this very size")
        if request.old != size:
            raise OldSizeError(size)
        try:
            _check_proof(size, root, request.proof, checkpoint)
        except InconsistentError:
            log.error("a request's proof is false; it is kept, as its checkpoint may be a fork")
            self.heads.keep_unproven(checkpoint, body)
            raise
        self.heads.resolve(checkpoint)


def _check_proof(
    size: int, root: bytes, proof: Sequence[bytes], checkpoint: Checkpoint
) -> None:
    if size == 0:
        if proof:
            raise InconsistentError("every tree extends the empty one: send no proof")
        return
    try:
        check_consistency(size, checkpoint.size, proof, root, checkpoint.root)
    except ProofError as error:
        raise InconsistentError(error.detail) from None


def _checkpoint(text: str) -> Checkpoint:
    try:
        return parse_checkpoint(text)
    except CheckpointError:
        if text.split("\n")[1:2] == ["0"]:
            raise InconsistentError("a tree of size 0 has the root of nothing") from None
        raise
