"""Messages to workers: a task's name and one opaque id, and nothing else.

Anybody with access to the broker can put anything there. Celery and kombu end the worker, or
loop, on a message that they cannot decode, and run its callbacks, chains and timers. So a
message is parsed here first, and rebuilt from the few values that were validated.
"""

import base64
import binascii
import json
import re
import uuid
from datetime import datetime
from typing import Any

from lethe import canonical

LONGEST = 16_384  # bytes; a nudge has about 1,100
STAGES = frozenset({"execute", "verify", "certify", "audit"})  # with a job's or audit's id
SWEEP, ANSWER, RETENTION = "lethe.sweep", "lethe.answer", "lethe.retention"
OF_THE_SCHEDULE = (SWEEP, RETENTION)  # without an id
SILO_PREFIX = "silo-"

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_NOTHING = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class MessageRefusedError(ValueError):
    """Not a message that Lethe sends. Names the malformed part, never its content."""


def rebuild(raw: bytes | str, queue: str | None) -> dict[str, Any]:
    """Return the message in `raw` in kombu's format, rebuilt from validated values.

    queue: where it was found, None if unknown; a silo's queue holds only questions for silos.
    Raises MessageRefusedError if it is not a message of `app.dispatch`.
    """
    if len(raw) > LONGEST:
        raise MessageRefusedError("too long")
    try:
        message = canonical.loads(raw)
        headers, body = message["headers"], message["body"]
        task, task_id, expires = headers["task"], headers["id"], headers.get("expires")
        if message["content-type"] != "application/json" or headers.get("eta") is not None:
            raise MessageRefusedError("not a nudge")
        args, kwargs, _ = canonical.loads(base64.b64decode(body, validate=True))
        if expires is not None:
            datetime.fromisoformat(expires)
    except MessageRefusedError:
        raise
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,  # malformed JSON, UTF-8 or time, or a number of 5,000 digits
        RecursionError,
        binascii.Error,
    ) as error:
        raise MessageRefusedError(f"malformed: {type(error).__name__}") from None
    _check(task, queue)
    ids = [] if task in OF_THE_SCHEDULE else [task_id]
    if kwargs != {} or not isinstance(args, list) or len(args) != len(ids):
        raise MessageRefusedError("other arguments than a nudge has")
    if not all(isinstance(name, str) and _ID.fullmatch(name) for name in (task_id, *args)):
        raise MessageRefusedError("an id is malformed")
    # Without an end: this machine's clock may be ahead of the sender's, and Celery would drop
    # each message. A silo's row says whether its answer is still wanted.
    return _message(task, task_id, args, queue)


def _check(task: object, queue: str | None) -> None:
    stages = {f"lethe.{stage}" for stage in STAGES}
    silo = queue is not None and queue.startswith(SILO_PREFIX)
    allowed = {ANSWER} if silo else {*stages, *OF_THE_SCHEDULE}
    if queue is None:
        allowed.add(ANSWER)
    if not isinstance(task, str) or task not in allowed:
        raise MessageRefusedError("not a task of this queue")


def _message(task: str, task_id: str, args: list[str], queue: str | None) -> dict[str, Any]:
    content = json.dumps([args, {}, _NOTHING]).encode()
    return {
        "body": base64.b64encode(content).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": task,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [None, None],
            "argsrepr": repr(tuple(args)),
            "kwargsrepr": "{}",
        },
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue or ""},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }
