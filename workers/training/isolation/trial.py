"""Try what isolates fits and scripts here: `python -m workers.training.isolation.trial`.

It takes the same steps as their processes (`workers.training.recipes.child`,
`workers.training.programs.child`), and runs nothing at the end.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from workers.training.isolation import confinement
from workers.training.isolation.confinement import SYSTEM, Confinement, IsolationError

SCRATCH = 1 << 20  # bytes
MEMORY = 4 << 30


def main() -> None:
    """Print why fits, metadata of files and scripts are not isolated, null where they are."""
    json.dump(trial(), sys.stdout)


def trial() -> dict[str, str | None]:
    """Return by part why it is not isolated here, None if it is.

    fits: of recipes; they then run all the same. metadata: modes and times of files, in a fit
    that is isolated otherwise. scripts: they do not run then. Call it in a process with one
    thread, which leaving the user namespace needs.
    """
    return {
        "fits": _tried(lambda: None),
        "metadata": _tried(confinement.freeze_mounts),
        "scripts": _tried(lambda: confinement.mount_scratch(SCRATCH)),
    }


def _tried(mount: Callable[[], object]) -> str | None:
    """Return why a process that mounts in this way cannot be isolated, None if it can."""
    reading, writing = os.pipe()
    started = os.fork()
    if not started:
        os.close(reading)
        _give_up(mount, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(started, 0)
    return None if said == b"+" else said.decode() or "the process died"


def _give_up(mount: Callable[[], object], writing: int) -> NoReturn:
    try:
        confinement.check()
        confinement.leave()
        if first := os.fork():  # the child is process 1 of the namespace
            os.waitpid(first, 0)
            os._exit(0)
        confinement.die_with_parent()
        mount()
        confinement.confine(Confinement(SYSTEM, (), (), (), MEMORY, 0))
        said = b"+"
    except IsolationError as error:
        said = str(error).encode()
    except BaseException as error:
        said = type(error).__name__.encode()
    os.write(writing, said)
    os._exit(0)


if __name__ == "__main__":
    main()
