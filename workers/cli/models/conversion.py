"""Convert a version's file in a process with limits of time and memory.

The file is the service's. On a malformed one a library of boosters or indices crashes, loops,
or takes gigabytes; the caller keeps its memory and can say what happened.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from workers.cli.errors import UnusableError, shown

ROOT = Path(__file__).parents[3]
SECONDS = 600  # of a processor
MEMORY_BYTES = 8 << 30  # of address space, as for a fit in a service's default


def convert(file: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]) -> bytes:
    """Return a version's file in another format of its family. config: its registration's.

    Raises UnusableError: It cannot be converted, or exceeded a limit.
    """
    order = json.dumps({"form": form, "classes": classes, "config": config}).encode()
    child = subprocess.run(
        [sys.executable, "-m", __name__],
        input=len(order).to_bytes(8, "big") + order + file,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",  # which is on the path of modules
        env=_environment(),
        check=False,
    )
    answer = child.stdout
    if answer[:1] == b"+" and not child.returncode:
        return answer[1:]
    if answer[:1] == b"-":
        raise UnusableError(answer[1:].decode())
    raise UnusableError(
        f"the file cannot be converted to {form}: the process failed, or needed more than "
        f"{SECONDS} s or {MEMORY_BYTES >> 30} GiB of memory; take the native file"
    )


def _environment() -> dict[str, str]:
    """Return an environment without the operator's token."""
    kept = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    return found | {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}


def main() -> None:
    """Answer the order on standard input: b"+" and a file, or b"-" and why there is none."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries print
    for kind, most in ((resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_AS, MEMORY_BYTES)):
        with suppress(OSError, ValueError):  # the system, or a lower limit, does not allow it
            resource.setrlimit(kind, (most, most))
    given = sys.stdin.buffer
    order = json.loads(given.read(int.from_bytes(given.read(8), "big")))
    try:
        with shown():
            made = b"+" + _converted(given.read(), **order)
    except UnusableError as error:
        made = b"-" + str(error).encode()
    answer.write(made)
    answer.close()
    os._exit(0)  # do not wait for library threads


def _converted(
    file: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
) -> bytes:
    from workers.families.base import configured

    return configured(config).export(file, form, classes, config)


if __name__ == "__main__":
    main()
