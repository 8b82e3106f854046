"""Celery's filesystem broker with messages that appear whole or not at all.

kombu 5.7 opens a message's file under its final name and then writes it. A worker that looks
in between takes an empty file, fails to parse it and ends: seen about once in 300 messages.
Here a message is written under another name and renamed, which POSIX makes atomic.
"""

import json
import os
import uuid
from pathlib import Path
from time import time_ns
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.filesystem import Channel, Transport

SCHEME = "lethe-filesystem"


class AtomicChannel(Channel):
    """Puts each message by rename."""

    # kombu names the second parameter in two ways and passes it by position.
    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:  # type: ignore[override]
        folder = Path(self.data_folder_out)
        # Taken in the order of their names; nanoseconds since 1970 survive a restart.
        stem = f"{time_ns():020}_{uuid.uuid4()}"
        unfinished = folder / f"{stem}.unfinished"
        unfinished.write_text(json.dumps(message))
        os.replace(unfinished, folder / f"{stem}.{queue}.msg")


def bind(control_folder: Path, queue: str) -> None:
    """Write the table that routes to `queue` before anybody can read it half written."""
    control_folder.mkdir(parents=True, exist_ok=True)
    table = control_folder / f"{queue}.exchange"
    if not table.exists():
        unfinished = control_folder / f"{uuid.uuid4()}.unfinished"
        unfinished.write_text(json.dumps([[queue, "", queue]]))
        os.replace(unfinished, table)  # whoever else does this writes the same


class AtomicTransport(Transport):
    """The filesystem transport over `AtomicChannel`."""

    Channel = AtomicChannel


TRANSPORT_ALIASES[SCHEME] = f"{__name__}:AtomicTransport"
