"""Celery's Redis broker with checked messages; loaded when a Redis broker is used."""

import json
import logging
from typing import Any

from kombu.transport.redis import Channel, Transport
from redis.exceptions import ResponseError

from app.broker import tell_refused
from app.nudges import MessageRefusedError, rebuild

log = logging.getLogger(__name__)

REFUSED = "lethe.refused"  # a counter in Redis: how many messages were ever dropped


class CheckedChannel(Channel):
    """Drops and counts messages that Lethe did not send, as Redis returns them.

    Not later: kombu removes a message from its list, or from the unacknowledged ones, before
    it decodes it, and the error would end the worker.
    """

    def _create_client(self, asynchronous: bool = False) -> Any:
        client = super()._create_client(asynchronous)  # type: ignore[no-untyped-call]
        client.set_response_callback("BRPOP", self._popped_from)
        client.set_response_callback("RPOP", lambda item, **_: self._checked(item, None))
        client.set_response_callback("HGET", self._unacknowledged)
        return client

    def _new_queue(self, queue: str, **kwargs: Any) -> None:  # type: ignore[override]
        """Declare a queue, which a worker does at its start and after each of Redis' errors.

        A key of another type would fail every command on it. It holds no nudge, and the sweep
        sends again what was lost.
        """
        super()._new_queue(queue, **kwargs)  # type: ignore[no-untyped-call]
        wanted = {self.unacked_key: b"hash", self.unacked_index_key: b"zset"}
        for priority in self.priority_steps:
            wanted[self._q_for_pri(queue, priority)] = b"list"  # type: ignore[no-untyped-call]
        for name in (self.keyprefix_queue, self.keyprefix_binding_permanent):
            wanted[name % queue] = b"set"
        with self.conn_or_acquire() as client:
            with client.pipeline(transaction=False) as pipe:
                for key in wanted:
                    pipe.type(self.global_keyprefix + key)
                found = pipe.execute()
            for (key, kind), held in zip(wanted.items(), found, strict=True):
                if held not in (kind, b"none"):
                    client.delete(key)
                    log.error(
                        "a key of the broker held a %s, not Lethe's %s, and was deleted: give "
                        "Redis its own password and network",
                        held.decode(),
                        kind.decode(),
                    )

    def _popped_from(self, answer: Any, **_: Any) -> tuple[bytes, bytes] | None:
        if not answer:
            return None
        key, item = answer
        name = key.decode("utf-8", "replace").removeprefix(self.global_keyprefix)
        checked = self._checked(item, name.rsplit(self.sep, 1)[0])
        return None if checked is None else (key, checked)

    def _unacknowledged(self, item: bytes | None, **_: Any) -> bytes | None:
        """Check a message restored because its worker died: [message, exchange, queue]."""
        if item is None:
            return None
        try:
            message, _, queue = json.loads(item)
            if not isinstance(queue, str):
                raise MessageRefusedError("malformed: no queue")
            return json.dumps([rebuild(json.dumps(message), queue), "", queue]).encode()
        except MessageRefusedError as error:
            self._drop(error)
        except (TypeError, ValueError, RecursionError) as error:
            self._drop(MessageRefusedError(f"malformed: {type(error).__name__}"))
        return None

    def _checked(self, item: bytes | None, queue: str | None) -> bytes | None:
        if item is None:
            return None
        try:
            return json.dumps(rebuild(item, queue)).encode()
        except MessageRefusedError as error:
            self._drop(error)
            return None

    def _drop(self, error: MessageRefusedError) -> None:
        tell_refused(error)
        with self.conn_or_acquire() as client:
            try:
                client.incr(REFUSED)
            except ResponseError:  # not Lethe's number
                client.set(REFUSED, 1)

    def refused(self) -> int:
        """Return how many messages were ever dropped."""
        with self.conn_or_acquire() as client:
            try:
                count = client.get(REFUSED) or b"0"
            except ResponseError:
                return 0
        return int(count) if count.isdigit() else 0


class CheckedTransport(Transport):
    """The Redis transport over `CheckedChannel`."""

    Channel = CheckedChannel
