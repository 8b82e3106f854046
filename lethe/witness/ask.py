"""Requesting cosignatures from a witness, as a log does (C2SP tlog-witness).

A witness is a remote machine of another operator: it may be down, be slow, answer without end,
or lie. In each case the caller gets lines that verify, or an error that says which of these
happened.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from lethe.errors import LetheError
from lethe.log.checkpoint import Checkpoint, CheckpointError
from lethe.log.cosignature import split_cosignature
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import NoteError, NoteVerifier, SignatureLine, read_note, split_note
from lethe.records import dataclass
from lethe.witness.heads import origin_hash
from lethe.witness.protocol import (
    PATH,
    AddCheckpoint,
    RequestError,
    format_add_checkpoint,
    parse_size,
)

if TYPE_CHECKING:
    from httpx2 import Client

TIMEOUT_S = 5.0  # for each connect, read and write
WHOLE_S = 15.0  # for a call as a whole
MAX_ANSWER = 64 * 1024  # bytes; ten ML-DSA-44 lines have 33,000
SKEW_S = 300.0  # maximum difference of a cosignature's time from the local clock
PATIENCE = 3  # calls per request: concurrent ones may advance the witness meanwhile

Prove = Callable[[int, int], Sequence[bytes]]  # (old size, new size) -> consistency proof


class WitnessFailureError(LetheError):
    """A witness that gave no cosignature. `slug` is one word for metrics."""

    title = "A witness did not cosign"
    status = 502


class DownError(WitnessFailureError):
    """No answer, not in time, or a server error."""

    slug = "down"


class LyingError(WitnessFailureError):
    """An answer that no honest witness gives: a wrong signature, time, size or status."""

    slug = "lying"


class RefusingError(WitnessFailureError):
    """The witness does not know this log or its key."""

    slug = "refusing"


class ContradictingError(WitnessFailureError):
    """The witness cosigned a tree, of `members["size"]`, that this log does not extend."""

    slug = "contradicting"


@dataclass(frozen=True, slots=True)
class Cosigned:
    """The verified lines of known keys over the sent checkpoint, and these keys."""

    lines: tuple[SignatureLine, ...]
    vkeys: tuple[str, ...]


class Asker:
    """Client of the witness below one URL, whose keys are known; remembers its last size."""

    def __init__(
        self, url: str, keys: Sequence[NoteVerifier], clock: Callable[[], float] = time.time
    ) -> None:
        import httpx2

        from lethe.tls import trusted

        self._url, self._keys, self._clock = url.rstrip("/"), tuple(keys), clock
        self._new_client = partial(
            httpx2.Client, verify=trusted(), timeout=TIMEOUT_S, follow_redirects=False
        )
        self._client = self._new_client()
        # RuntimeError: the client was closed, because its answer took too long.
        self._errors = (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError)
        self._size = 0

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def cosign(self, note: str, checkpoint: Checkpoint, prove: Prove) -> Cosigned:
        """Return the witness's lines over a checkpoint's note.

        Raises WitnessFailureError if there are none; see the classes.
        """
        for _ in range(PATIENCE):
            if self._size > checkpoint.size:
                size, self._size = self._size, 0
                raise ContradictingError(
                    f"it cosigned {size} entries, and this log has {checkpoint.size}", size=size
                )
            proof = prove(self._size, checkpoint.size) if self._size else ()
            request = AddCheckpoint(self._size, tuple(proof), note)
            status, body = self._call("POST", PATH, format_add_checkpoint(request))
            match status:
                case HTTPStatus.OK:
                    found = self._lines(note, body)
                    self._size = checkpoint.size
                    return found
                case HTTPStatus.CONFLICT:
                    self._size = self._other_size(body, checkpoint.size)
                case HTTPStatus.UNPROCESSABLE_ENTITY:
                    size, self._size = self._size, 0
                    raise ContradictingError(
                        f"it does not accept the proof from {size} entries", size=size
                    )
                case HTTPStatus.FORBIDDEN | HTTPStatus.NOT_FOUND:
                    raise RefusingError(
                        f"it answers {status}: is this log's vkey in its list of logs?"
                    )
                case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise DownError(f"it answers {status}")
                case _:
                    raise LyingError(f"it answers {status}, which no witness does")
        raise LyingError("it names another size each time")

    def last(self, log: NoteVerifier | LogKeys) -> str | None:
        """Return the note of the checkpoint that the witness holds, if `log` signed it.

        The log's signature proves the witness's claim. Never raises because of the answer.
        """
        try:
            return self.held(log)
        except WitnessFailureError:
            return None

    def held(self, log: NoteVerifier | LogKeys) -> str:
        """As `last`, with the reason where there is none.

        No cosignature is asked for: an old one, which anybody may have, proves no more.

        Raises:
            WitnessFailureError: It shows no checkpoint that `log` signed; see the classes.
        """
        status, body = self._call("GET", f"{origin_hash(log.name)}/checkpoint", None)
        if status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            raise RefusingError("it shows no checkpoint of this log")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise DownError(f"it answers {status}")
        if status != HTTPStatus.OK:
            raise LyingError(f"it answers {status}, which no witness does")
        try:
            log_keys(log).open(note := body.decode())
        except (NoteError, CheckpointError, UnicodeDecodeError):
            raise LyingError(
                "no key of this log that is known here signed what it shows"
            ) from None
        return note

    def _other_size(self, body: bytes, whole: int) -> int:
        """Return the size that a 409 names. whole: that of the checkpoint that was sent.

        Raises:
            ContradictingError: The witness has `whole` entries too, with another root.
            LyingError: It names no other size than the one that was sent.
        """
        size: int | None = None
        wrong = "it refuses the size that it names itself"
        try:
            size = parse_size(body)
        except RequestError as error:
            wrong = error.detail
        if size is not None and size != self._size:
            return size
        if self._size == whole:
            # Between equal sizes no proof is needed. tlog-witness 1.0 answers 409, without
            # saying what the body is, where later texts answer 422.
            self._size = 0
            raise ContradictingError(f"it cosigned another root of {whole} entries", size=whole)
        raise LyingError(wrong)

    def _lines(self, note: str, body: bytes) -> Cosigned:
        """Return the lines of the witness's keys, each verified."""
        now = self._clock()
        text, _ = split_note(note)
        try:
            answer = f"{text}\n{body.decode()}"
            verified = read_note(answer, self._keys).verified
            _, lines = split_note(answer)
        except (NoteError, UnicodeDecodeError):
            raise LyingError("its answer is not a cosignature by its key") from None
        known = {(key.name, key.key_id): key.vkey for key in self._keys}
        own = [line for line in lines if (line.name, line.key_id) in known]
        if len({known[line.name, line.key_id] for line in own}) != len(own):
            raise LyingError("it signed twice with one key")
        for line in own:
            signed_at, _ = split_cosignature(line.signature)
            if abs(signed_at - now) > SKEW_S:
                raise LyingError(
                    "the time of its cosignature is not now: its clock or ours is wrong"
                )
        return Cosigned(tuple(own), tuple(key.vkey for key in verified))

    def _call(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Call in a thread, which is abandoned if it takes too long.

        A witness that sends a byte of a header now and then could keep a call open for ever.
        """
        found: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()
        client = self._client

        def call() -> None:
            try:
                found.put(self._answer(client, method, f"{self._url}/{path}", content))
            except Exception as error:
                found.put(error)

        threading.Thread(target=call, name="witness", daemon=True).start()
        try:
            answer = found.get(timeout=WHOLE_S)
        except queue.Empty:
            self._client = self._new_client()
            client.close()
            raise DownError("its answer takes too long") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(
        self, client: "Client", method: str, url: str, content: bytes | None
    ) -> tuple[int, bytes]:
        data = b""
        try:
            with client.stream(method, url, content=content) as answer:
                for chunk in answer.iter_raw():
                    data += chunk
                    if len(data) > MAX_ANSWER:
                        raise LyingError("its answer is larger than any can be")
                return answer.status_code, data
        except self._errors as error:
            raise DownError(f"it cannot be reached: {type(error).__name__}") from None
