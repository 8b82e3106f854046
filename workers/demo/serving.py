"""Whether the service that a demonstration left behind still runs."""

import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

READY = "ready.json"  # in the service's data directory, written by itself
ANSWER_SECONDS = 2.0


def serving_pid(data_dir: Path, proc: Path = Path("/proc")) -> int | None:
    """Return the process that serves `data_dir`, None if it ended.

    A process id is reused once its process ended, so a live one is trusted only if it was
    started for this very record. If the system does not show that, for lack of `proc`, the
    recorded address must accept a connection.
    """
    try:
        ready = json.loads((data_dir / READY).read_bytes())
        pid, base_url = int(ready["pid"]), str(ready["base_url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none started, or it died while writing
    if pid <= 0:  # would address a group of processes
        return None
    started_for = _arguments(proc / f"{pid}")
    if started_for is None:
        serves = _lives(pid) and _answers(base_url)
    else:
        serves = os.fsencode((data_dir / READY).resolve()) in started_for
    return pid if serves else None


def _arguments(shown: Path) -> list[bytes] | None:
    try:
        return (shown / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        pass
    return True


def _answers(base_url: str) -> bool:
    try:
        address = urlsplit(base_url)
        with socket.create_connection((address.hostname, address.port), ANSWER_SECONDS):
            return True
    except (OSError, ValueError):
        return False
