"""The process that runs a program: rows in and the model file out, each through a pipe.

`python -m workers.training.programs.child`, started only by `run.execute`. It enters new
namespaces; its child is process 1 there, prepares the scratch file system in memory and
starts the program. When process 1 ends, the kernel kills everything inside.
"""

import builtins
import json
import os
import signal
import stat
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from workers.training.isolation import confinement
from workers.training.isolation.confinement import Confinement, IsolationError

ROWS, PROGRAM, PACKAGES = "rows.arrow", "program", "packages"
WORK, MODEL = "work", "model"
TAIL = 4096  # the last bytes kept of the program's standard error
PIECE = 1 << 20


def main() -> None:
    """Run the order on standard input; answer b"+" and the file, or b"-" and a JSON refusal."""
    answer = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nowhere, number)
    confinement.die_with_parent()
    source = open(0, "rb", buffering=0)  # noqa: SIM115  (nothing is read ahead)
    order = json.loads(_exactly(source, int.from_bytes(_exactly(source, 8), "big")))
    if os.getppid() != order["parent"]:
        os._exit(1)  # the parent died before prctl took effect
    try:
        confinement.check()
        confinement.leave()
    except IsolationError as error:
        _finish(answer, _refusal("isolation", str(error)))
    first = os.fork()
    if not first:
        _be_first(order, source, answer)
    answer.close()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    os.waitpid(first, 0)
    os._exit(0)


def _be_first(order: Mapping[str, Any], source: FileIO, answer: BinaryIO) -> NoReturn:
    """Run as process 1: prepare the scratch, run the program, send its file."""
    try:
        confinement.die_with_parent()
        # In addition to the worker's own limit, so that nothing outlives both.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
        signal.alarm(order["seconds"] + 5)
        root = Path(confinement.mount_scratch(order["scratch"]))
        _prepare(root, order, source)
        found = _run(root, order)
    except IsolationError as error:
        found = _refusal("isolation", str(error))
    except OSError as error:
        found = _refusal("system", error.strerror or "an error of the system")
    except BaseException as error:
        found = _refusal("system", type(error).__name__)
    _finish(answer, found)


def _prepare(root: Path, order: Mapping[str, Any], source: FileIO) -> None:
    for name in (PROGRAM, PACKAGES, WORK):
        (root / name).mkdir()
    for name, target in order["packages"].items():
        (root / PACKAGES / name).symlink_to(target)
    for name, text in order["files"].items():
        file = root / PROGRAM / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    with (root / ROWS).open("wb") as rows:
        while piece := source.read(PIECE):
            rows.write(piece)


def _run(root: Path, order: Mapping[str, Any]) -> bytes:
    reading, writing = os.pipe()
    failing, failed = os.pipe()
    program = os.fork()
    if not program:
        _become(root, order, writing, failed)
    os.close(writing)
    os.close(failed)
    problem = _drained(failing)
    tail = _drained(reading)
    _, status = os.waitpid(program, 0)
    if problem:
        return _refusal("isolation", problem.decode())
    if status:
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code}" if code < 0 else f"status {code}"
        line = (tail.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
        known = line.partition(":")[0].strip()
        kind = getattr(builtins, known, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            how = f"{how}, {known}"
        # The text may quote rows: it is passed on only for made-up rows.
        said = (
            "".join(c if c.isprintable() else " " for c in line)[:500] if order["tell"] else ""
        )
        return _refusal("program", said, how=how)
    return _model(root / WORK / MODEL, order["output"])


def _become(root: Path, order: Mapping[str, Any], errors: int, failed: int) -> NoReturn:
    """Become the program, after giving up everything that it does not need."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(errors, 2)
        os.dup2(failed, 3, inheritable=False)
        os.closerange(4, 1 << 16)
        os.chdir(root / WORK)
        confinement.confine(
            Confinement(
                (*order["reads"], *(str(root / one) for one in (PROGRAM, PACKAGES, ROWS))),
                tuple(order["lists"]),
                tuple(order["runs"]),
                (str(root / WORK), os.devnull),
                order["memory"],
                order["output"],
            )
        )
        arguments = [str(root / ROWS), str(root / WORK / MODEL), str(order["seed"])]
        entry = str(root / PROGRAM / order["entry"])
        work = str(root / WORK)
        own = {"HOME": work, "TMPDIR": work, "PYTHONPATH": str(root / PACKAGES)}
        # -S: of the installed packages, only those on PYTHONPATH.
        command = [order["python"], "-S", "-s", "-B", entry, *arguments]
        os.execve(order["python"], command, {**order["environment"], **own})  # noqa: S606
    except IsolationError as error:
        os.write(3, str(error).encode())
    except BaseException as error:
        os.write(3, f"the program cannot be started: {type(error).__name__}".encode())
    os._exit(1)


def _model(path: Path, most: int) -> bytes:
    """Return the file that the program wrote, which may be anything."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _refusal("output", "it wrote no file")
    except OSError:
        return _refusal("output", "it left no plain file, such as a link")
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        return _refusal("output", "it left no plain file, such as a directory or a pipe")
    if found.st_size > most:
        return _refusal("output", f"its file is larger than {most} bytes")
    with os.fdopen(file, "rb") as model:
        return b"+" + model.read()


def _drained(pipe: int) -> bytes:
    """Read until all writers have closed; return the last bytes."""
    tail = b""
    while piece := os.read(pipe, 65536):
        tail = (tail + piece)[-TAIL:]
    os.close(pipe)
    return tail


def _exactly(source: FileIO, size: int) -> bytes:
    parts = []
    while size:
        piece = source.read(size)
        if not piece:
            os._exit(1)
        parts.append(piece)
        size -= len(piece)
    return b"".join(parts)


def _refusal(kind: str, message: str, **more: str) -> bytes:
    return b"-" + json.dumps({"kind": kind, "message": message, **more}).encode()


def _finish(answer: BinaryIO, data: bytes) -> NoReturn:
    try:
        answer.write(data)
        answer.close()
    except OSError:
        pass  # the worker is gone
    os._exit(0)


if __name__ == "__main__":
    main()
