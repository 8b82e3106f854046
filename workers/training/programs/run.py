"""Run an operator's program on rows: `execute(config, rows, limits)` returns its file.

The interface of this package, also for families that wrap a program: `execute`,
`execute_twice` and `environment` take a model's configuration with the member `script`, rows
in the order of their commitments, and limits. The same rows and seed always give the same
call of the program.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe import canonical
from workers.errors import RefusedError
from workers.libraries import require
from workers.training.isolation import confinement
from workers.training.isolation.confinement import IsolationError
from workers.training.programs import outputs
from workers.training.programs.program import Program, check_environment, versions
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows, stand_in
from workers.training.recipes.process import THREADS, Limits, processor

ROOT = Path(__file__).parents[3]
READER = "workers.training.programs.predict"
CHILD = (sys.executable, "-B", "-m", "workers.training.programs.child")
LEAST_SCRATCH = 16 << 20
END_SECONDS = 10  # for the processes to end after SIGTERM


class ProgramError(RefusedError):
    """A program failed on these rows, or exceeded its limits. The message quotes no row."""


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what must agree for equal bits: interpreter, distributions, processor, threads.

    Raises RefusedError for a program that cannot be read.
    """
    program = Program.parse(config)
    return {**versions(program), "processor": processor(), "threads": str(program.threads)}


def execute(config: Mapping[str, Any], rows: FitRows, limits: Limits) -> bytes:
    """Return the checked file that the program writes for these rows.

    No process of the program is running when this returns or raises.

    Raises:
        IsolationError: This machine cannot keep a program in.
        OtherEnvironmentError: What is installed here is not what the lock file names.
        OutputError: It wrote no model.
        ProgramError: It failed, or exceeded a limit.
    """
    program = Program.parse(config)
    confinement.check()
    check_environment(program)
    refusal = _run(program, rows, limits, tell=False)
    if isinstance(refusal, bytes):
        outputs.read(refusal, program.output)
        return refusal
    if refusal["kind"] == "program":
        again = _run(program, stand_in(rows), limits, tell=True)
        said = ""
        if not isinstance(again, bytes) and again["kind"] == "program":
            said = again["message"]
        text = f": {said}" if said else ", but not on made-up rows"
        raise ProgramError(f"the program ended with {refusal['how']}{text}; {_limits(limits)}")
    raise ProgramError(f"the program failed: {refusal['message']}")


def execute_twice(config: Mapping[str, Any], rows: FitRows, limits: Limits) -> bytes:
    """Return the program's file after comparing it with a second run.

    Raises:
        ProgramError: They differ, and by more than the registered tolerance if there is one.
        RefusedError: As `execute`.
    """
    program = Program.parse(config)
    first, second = (execute(config, rows, limits) for _ in range(2))
    if first == second:
        return second
    found = outputs.difference(*(outputs.read(one, program.output) for one in (first, second)))
    if program.tolerance is None:
        raise ProgramError(
            f"two runs on the same rows differ by {found:.2g}, the largest relative difference "
            "of a tensor: make the program deterministic, or register it with a tolerance of "
            "twice that or more, and certificates will claim the weaker class retrained"
        )
    if found > program.tolerance / 2:
        raise ProgramError(
            f"two runs on the same rows differ by {found:.2g}, the largest relative difference "
            f"of a tensor, more than half of the tolerance {program.tolerance:g}: make the "
            "program deterministic, or register a larger one"
        )
    return second


def predict(
    config: Mapping[str, Any], file: bytes, features: NDArray[Any], limits: Limits
) -> NDArray[Any]:
    """Return the model's predictions for rows (n, columns): class positions or numbers (n,).

    Uses the registered program `predict`, isolated like the training; without one,
    onnxruntime for an ONNX file.

    Raises:
        IsolationError: This machine cannot keep the program, or the ONNX graph, in.
        MissingLibraryError: onnxruntime is not installed.
        RefusedError: There is nothing to predict with, it failed or answered something else, or
            as `execute`.
    """
    program = Program.parse(config)
    if program.predict is None:
        if program.output != "onnx":
            raise RefusedError("the program writes safetensors, and names no file to predict")
        confinement.check()  # what can be seen without starting a process
        return process.predict(file, features, limits, READER, isolated=True)
    confinement.check()
    check_environment(program)
    rows = FitRows(features, np.zeros(len(features)))
    asked = replace(program, entry=program.predict)
    answer = _run(asked, rows, limits, tell=False, model=file)
    if not isinstance(answer, bytes):
        how = answer.get("how", answer["message"])
        raise ProgramError(f"{program.predict} ended with {how}; {_limits(limits)}")
    found = outputs.numbers(answer, "safetensors").get("predictions")
    if found is None or found.shape != (len(features),) or found.dtype.kind not in "fiu":
        raise ProgramError(
            f"{program.predict} must write one tensor `predictions`: for each row a number, or "
            "the place of its class"
        )
    return found


def _run(
    program: Program, rows: FitRows, limits: Limits, *, tell: bool, model: bytes | None = None
) -> bytes | dict[str, str]:
    """Return the program's file, or the refusal.

    tell: include the last line of standard error, which may quote rows. model: sent with the
    rows, which then have no labels.
    """
    sent = _arrow(program, rows, model)
    inputs = len(sent) + sum(len(text.encode()) for text in program.files.values())
    reads, lists, runs = _libraries()
    packages = _packages(program)
    order = {
        "entry": program.entry,
        "environment": _variables(program),
        "files": dict(program.files),
        "lists": lists,
        "packages": packages,
        "memory": limits.memory,
        "output": limits.output,
        "parent": os.getpid(),
        "python": sys.executable,
        "reads": [*reads, *packages.values()],
        "runs": runs,
        "scratch": inputs + 2 * limits.output + LEAST_SCRATCH,
        "seconds": limits.seconds,
        "seed": program.seed,
        "tell": tell,
    }
    head = json.dumps(order).encode()
    child = subprocess.Popen(
        CHILD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    try:
        whole = len(head).to_bytes(8, "big") + head + sent
        answer, _ = child.communicate(whole, timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise ProgramError(
            f"the program took more than {limits.seconds} s: make it faster, or raise "
            "LETHE_FIT_SECONDS"
        ) from None
    finally:
        _end(child)
    if answer[:1] == b"+":
        return answer[1:]
    if answer[:1] != b"-":
        raise ProgramError(
            f"the process that runs the program died, of memory perhaps; {_limits(limits)}"
        )
    refusal: dict[str, str] = json.loads(answer[1:])
    if refusal["kind"] == "isolation":
        raise IsolationError(refusal["message"])
    return refusal


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End all processes and wait for them."""
    child.terminate()  # its handler kills process 1 of the namespace, and with it all others
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()  # the kernel then ends process 1
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _limits(limits: Limits) -> str:
    return (
        f"it may use {limits.memory} bytes of memory (LETHE_FIT_MEMORY_BYTES), write "
        f"{limits.output} bytes (LETHE_FIT_OUTPUT_BYTES), start threads but no process, open "
        "no socket, and read no distribution that its lock file does not name"
    )


def _arrow(program: Program, rows: FitRows, model: bytes | None) -> bytes:
    """Return rows as an Arrow IPC file: columns f0, f1, …, label, and weight if rows have one.

    The schema's metadata holds the number of classes (0 for numbers), because an erasure may
    have removed the last row of one, and the feature names and categories as JSON, if
    registered. To predict, it holds the model file, and there are no labels and weights.
    """
    arrow = require("pyarrow", "tables")
    require("pyarrow.ipc", "tables")
    names = [f"f{place}" for place in range(program.columns)]
    columns = [arrow.array(rows.features[:, place]) for place in range(program.columns)]
    notes: dict[str, str | bytes] = {"classes": str(program.classes)}
    if program.features:
        notes["features"] = canonical.encode(list(program.features))
        notes["categories"] = canonical.encode(dict(program.categories))
    if model is not None:
        notes["model"] = model
    else:
        columns, names = [*columns, arrow.array(rows.labels)], [*names, "label"]
        if rows.weights is not None:
            columns, names = [*columns, arrow.array(rows.weights)], [*names, "weight"]
    table = arrow.table(columns, names=names).replace_schema_metadata(notes)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _variables(program: Program) -> dict[str, str]:
    """Return a program's environment variables: none of the worker's, which hold secrets."""
    fixed = {
        "LC_ALL": "C.UTF-8",
        "PATH": str(Path(sys.executable).parent),
        "PYTHONHASHSEED": "0",
        "TZ": "UTC",
    }
    return {**fixed, **{name: str(program.threads) for name in THREADS}}


def _libraries() -> tuple[list[str], list[str], list[str]]:
    """Return the paths of interpreter and system that a program may read, list, execute."""
    paths = sysconfig.get_paths()
    standard = sorted({paths["stdlib"], paths["platstdlib"]})
    folder = sysconfig.get_config_var("LIBDIR")
    shared = [*confinement.LIBRARIES, folder] if folder else list(confinement.LIBRARIES)
    reads = list(confinement.MACHINE)
    for one in standard:
        reads += _within(one, ("site-packages", "dist-packages"))
    for one in shared:
        reads += _within(one, ("python",))
    interpreter = [sys.executable, os.path.realpath(sys.executable)]
    loaders = [one for one in reads if "ld-linux" in one or "ld-musl" in one]
    nearby = [one for one in reads if Path(one).name.endswith("-linux-gnu")]
    return reads, standard, [*interpreter, *loaders, *nearby]


def _within(directory: str, without: tuple[str, ...]) -> Iterator[str]:
    with suppress(OSError):
        for entry in sorted(os.listdir(directory)):
            if not entry.startswith(without):
                yield str(Path(directory) / entry)


def _packages(program: Program) -> dict[str, str]:
    """Return what a program can import besides the standard library: paths by name.

    These are the top-level entries of the locked distributions in site-packages. Everything
    else installed there is hidden.
    """
    found: dict[str, str] = {}
    for name in program.locked:
        one = metadata.distribution(name)
        tops = {file.parts[0] for file in one.files or ()} - {"..", ".", "__pycache__"}
        found |= {top: str(one.locate_file(top)) for top in sorted(tops)}
    return found
