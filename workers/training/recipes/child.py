"""The process that fits a recipe: tables in through a pipe, their model files out.

It also predicts with such a file. `python -m workers.training.recipes.child`, started only by
`process`. It limits itself before reading any row and dies with its parent.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import sysconfig
import warnings
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from workers.training.isolation import confinement
from workers.training.isolation.confinement import SYSTEM, Confinement, IsolationError

ROOT = Path(__file__).parents[3]
PR_SET_PDEATHSIG = 1
LIBRARY = ("lib", "lib64")  # of an interpreter's prefix


def main() -> None:
    """Run the order on standard input; answer b"+" and files, or b"-" and a JSON refusal."""
    answer = os.fdopen(os.dup(1), "wb")
    _discard_prints()
    data = sys.stdin.buffer
    size = int.from_bytes(data.read(8), "big")
    order = json.loads(data.read(size))
    try:
        _limit(order)
        reader = order.get("predicts")
        found = _fit(order, data.read()) if reader is None else _predict(reader, data.read())
    except MemoryError:
        found = b"-" + json.dumps({"error": "MemoryError"}).encode()
    except IsolationError as error:  # the file is not read
        found = b"-" + json.dumps({"error": "IsolationError", "message": str(error)}).encode()
    answer.write(found)
    answer.close()
    os._exit(0)  # do not wait for library threads


def _discard_prints() -> None:
    """Discard anything that libraries print: it may quote rows."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for place in (1, 2):
        os.dup2(nowhere, place)
    os.close(nowhere)


def _limit(order: Mapping[str, Any]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order["parent"]:
        os._exit(1)  # the parent died before prctl took effect
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the rows
    _confine(order["memory"], needed=order.get("isolated", False))
    _discard_prints()  # what was opened before is on a mount that is not read-only
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    memory = order["memory"] if most == resource.RLIM_INFINITY else min(most, order["memory"])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # nothing is written anywhere


def _confine(memory: int, *, needed: bool = False) -> None:
    """Give up network, processes and all files except libraries, if the machine allows it.

    needed: raise IsolationError if it does not. Without it only listed estimators of
    libraries run here, on numbers, so a fit also works unconfined.
    """
    # `-m` puts the working directory first, which is /. Beside ROOT there may be anything.
    paths = [path for path in sys.path if path and not ROOT.is_relative_to(path)]
    paths += [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    own = [str(ROOT / name) for name in ("lethe", "workers")]
    # Not the prefixes themselves: a data directory may be in one.
    shared = [
        str(Path(one) / name) for one in (sys.prefix, sys.base_prefix) for name in LIBRARY
    ]
    reads = (*paths, *own, *shared, *SYSTEM)
    try:
        confinement.check()
        try:
            confinement.leave()
        finally:  # also if it failed half-way: only the child can then start threads
            _continue_as_first()
        with nullcontext() if needed else suppress(IsolationError):
            confinement.freeze_mounts()
        confinement.confine(Confinement(reads, (str(ROOT),), (), (os.devnull,), memory, 0))
    except IsolationError:
        if needed:
            raise


def _continue_as_first() -> None:
    """Return in a child, process 1 of the namespace; this process ends as the child does.

    Outside, a process of the same user could be given other limits, priority or processors:
    they would last longer than a fit, and a later one could read them.
    """
    outer, held = os.pipe()
    if inner := os.fork():
        _, status = os.waitpid(inner, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(abs(code))
    os.close(held)
    confinement.die_with_parent()
    if select.select([outer], [], [], 0)[0]:
        os._exit(1)  # it died before prctl took effect
    os.close(outer)


def _fit(order: Mapping[str, Any], rows: bytes) -> bytes:
    from workers.arrays import decode_tensors
    from workers.errors import RefusedError
    from workers.training.recipes.fit import FitRows, fit, stand_in
    from workers.training.recipes.recipe import Recipe

    warnings.simplefilter("ignore")  # of convergence: no errors, and they quote numbers
    arrays, _ = decode_tensors(rows)
    tables = [
        FitRows(
            arrays[f"features-{place}"],
            arrays[f"labels-{place}"],
            arrays.get(f"weights-{place}"),
        )
        for place in range(order["tables"])
    ]
    recipe = Recipe.parse(order["recipe"])
    found = []
    for table in tables:
        try:
            found.append(fit(recipe, table, order["threads"]))
        except RefusedError as error:
            refusal = {"error": "RefusedError", "message": str(error)}
        except MemoryError:
            raise
        except Exception as error:
            # The error's text may quote rows. That of the same fit on made-up rows cannot.
            refusal = {"error": type(error).__name__}
            try:
                fit(recipe, stand_in(table), order["threads"])
            except MemoryError:
                raise
            except Exception as again:
                refusal["message"] = " ".join(str(again).split())[:500]
        else:
            continue
        return b"-" + json.dumps(refusal).encode()
    sizes = b"".join(len(file).to_bytes(8, "big") for file in found)
    return b"+" + sizes + b"".join(found)


def _predict(reader: str, sent: bytes) -> bytes:
    from workers.arrays import decode_tensors, encode_tensors
    from workers.errors import RefusedError

    warnings.simplefilter("ignore")
    arrays, _ = decode_tensors(sent)
    try:
        model = import_module(reader).decode(arrays["file"].tobytes())
        found = model.predict(arrays["features"])
    except RefusedError as error:
        return b"-" + json.dumps({"error": "RefusedError", "message": str(error)}).encode()
    except MemoryError:
        raise
    except Exception as error:  # its text may quote rows
        return b"-" + json.dumps({"error": type(error).__name__}).encode()
    file = encode_tensors({"found": found}, {})
    return b"+" + len(file).to_bytes(8, "big") + file


if __name__ == "__main__":
    main()
