"""Fit a recipe in a process of its own, within limits of time and memory.

A library may crash, hang or take all memory on rows that others chose. Its process reads the
rows from a pipe, has no other input and no secrets in its environment, writes no file, and is
killed with its children however the fit ends.
"""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS and numpy's must be loaded before anyone looks)
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from workers.arrays import decode_tensors, encode_tensors
from workers.errors import RefusedError
from workers.training.isolation.confinement import IsolationError
from workers.training.recipes import prepared
from workers.training.recipes.fit import FitRows
from workers.training.recipes.recipe import Recipe, libraries

Result = TypeVar("Result")
ROOT = Path(__file__).parents[3]
# Numbers of threads that libraries read when they are loaded.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class FitError(RefusedError):
    """The recipe could not be fitted on these rows. The message quotes no row."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a fit. seconds: of wall-clock time. memory: bytes of address space.

    output: bytes of the file that an operator's program writes.
    """

    seconds: int
    memory: int
    output: int = 1 << 30


def threads_of(recipe: Recipe) -> int:
    """Return the threads of a recipe's fit here, at least two if it leaves them open."""
    return recipe.threads or max(2, len(os.sched_getaffinity(0)))


def environment(recipe: Recipe) -> dict[str, str]:
    """Return what must agree for equal bits: versions, processor, threads."""
    versions = {name: metadata.version(name) for name in libraries(recipe)}
    return {**versions, "processor": processor(), "threads": str(threads_of(recipe))}


def fit(recipe: Recipe, table: FitRows, threads: int, limits: Limits) -> bytes:
    """Return the model file of a recipe fitted on rows, in their order. Raises as `fit_all`."""
    (file,) = fit_all(recipe, [table], threads, limits)
    return file


def fit_all(
    recipe: Recipe, tables: Sequence[FitRows], threads: int, limits: Limits
) -> list[bytes]:
    """Return the model file of a recipe fitted on each table, one after the other.

    limits: for all fits together, which share a process.

    Raises:
        FitError: One failed, died, or they exceeded a limit. Nothing of it is running any more.
        RefusedError: The recipe is none that this worker can build.
    """
    if not tables:
        return []
    order = {"recipe": recipe.document, "tables": len(tables), "threads": threads}
    arrays = {}
    for place, table in enumerate(tables):
        arrays[f"features-{place}"], arrays[f"labels-{place}"] = table.features, table.labels
        if table.weights is not None:
            arrays[f"weights-{place}"] = table.weights
    return _answers(order, encode_tensors(arrays, {}), threads, limits, len(tables))


def predict(
    file: bytes,
    features: NDArray[np.float64],
    limits: Limits,
    reader: str = "workers.training.recipes.files",
    *,
    isolated: bool = False,
) -> NDArray[Any]:
    """Return a model file's predictions for rows (n, d): class positions or numbers.

    reader: the module whose `decode` returns the model of such a file. isolated: do not read
    the file where the machine cannot isolate the process; for files that are programs.

    Raises IsolationError in that case, RefusedError for a file of another kind or without
    predictions, and as `fit_all`.
    """
    sent: dict[str, NDArray[Any]] = {
        "features": features,
        "file": np.frombuffer(file, dtype=np.uint8),
    }
    order = {"isolated": isolated, "predicts": reader}
    (answer,) = _answers(order, encode_tensors(sent, {}), 1, limits, 1)
    found, _ = decode_tensors(answer)
    return found["found"]


def _answers(
    order: Mapping[str, Any], rows: bytes, threads: int, limits: Limits, count: int
) -> list[bytes]:
    """Return the files that a separate process answers. Raises as `fit_all`.

    It is forked from the template, or started if there is none.
    """

    def head(parent: int) -> bytes:
        said = json.dumps({**order, "memory": limits.memory, "parent": parent}).encode()
        return len(said).to_bytes(8, "big") + said

    try:
        found = prepared.answer(head, rows, threads, _environment(threads), limits.seconds)
    except TimeoutError:
        raise FitError(_too_slow(limits)) from None
    if found is not None:
        return _files(*found, limits, count)
    child = subprocess.Popen(
        [sys.executable, "-m", "workers.training.recipes.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(threads),
        start_new_session=True,
    )
    try:
        answer, _ = child.communicate(head(os.getpid()) + rows, timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise FitError(_too_slow(limits)) from None
    finally:
        _end(child)
    return _files(answer, child.returncode, limits, count)


def _too_slow(limits: Limits) -> str:
    return (
        f"the fit took more than {limits.seconds} s: set smaller parameters, or raise "
        "LETHE_FIT_SECONDS"
    )


def try_twice(recipe: Recipe, table: FitRows, limits: Limits) -> bytes:
    """Return the model file if two processes with different threads agree on its bytes.

    Raises FitError if they disagree, and as `fit`.
    """
    return _agreed(recipe, lambda threads: fit(recipe, table, threads, limits))


def _agreed(recipe: Recipe, run: Callable[[int], Result]) -> Result:
    most = threads_of(recipe)
    first, second = (run(threads) for threads in (1, most))
    if first == second:
        return second
    if most > 1 and run(1) == first:
        raise FitError(
            f"fits with 1 and with {most} threads give different bytes, so that nobody could "
            'compare a refit with them: add "threads": 1 to the recipe'
        )
    raise FitError(
        "two fits on the same rows give different bytes, so that nobody could compare a refit "
        "with them: choose other parameters or another estimator"
    )


@dataclass(frozen=True, slots=True)
class RecipeFitter:
    """A recipe as the fitter of a model's shards (`workers.training.shards.container`)."""

    recipe: Recipe
    limits: Limits

    @property
    def name(self) -> str:
        """The estimators, in order."""
        return ", ".join(one.estimator for one in self.recipe.steps)

    def environment(self) -> dict[str, str]:
        """Return what must agree for equal bits."""
        return environment(self.recipe)

    def fit(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the model file of each table. Raises RefusedError."""
        return fit_all(self.recipe, tables, threads_of(self.recipe), self.limits)

    def try_twice(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the files if two processes agree on their bytes. Raises RefusedError."""
        recipe, limits = self.recipe, self.limits
        return _agreed(recipe, lambda threads: fit_all(recipe, tables, threads, limits))


def _end(child: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):  # its session is empty
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _files(answer: bytes, status: int, limits: Limits, count: int) -> list[bytes]:
    if answer[:1] == b"+" and not status:
        found, start = [], 1 + 8 * count
        for place in range(1, start, 8):
            end = start + int.from_bytes(answer[place : place + 8], "big")
            found.append(answer[start:end])
            start = end
        return found
    refusal = {} if answer[:1] != b"-" else json.loads(answer[1:])
    error, message = refusal.get("error"), refusal.get("message")
    if error == "RefusedError":
        raise RefusedError(message)
    if error == "IsolationError":
        raise IsolationError(message)
    memory = f"the fit may take {limits.memory} bytes: set smaller parameters, or raise "
    memory += "LETHE_FIT_MEMORY_BYTES"
    if error is None:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        raise FitError(f"the process of the fit died ({how}). Of memory, perhaps: {memory}")
    if error == "MemoryError":
        raise FitError(f"the fit ran out of memory: {memory}")
    said = f"{error}: {message}" if message else f"{error}, but not on made-up rows"
    raise FitError(f"the recipe cannot be fitted on these rows ({said})")


def _environment(threads: int) -> dict[str, str]:
    """Return an environment without the worker's secrets."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
    }
    fixed = {
        "LC_ALL": "C.UTF-8",
        # Without this, joblib creates semaphores, which are files, on import.
        "JOBLIB_MULTIPROCESSING": "0",
        # Threads that wait for each other sleep: on a busy machine spinning takes far longer.
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(ROOT),
    }
    return {**kept, **fixed, **{name: str(threads) for name in THREADS}}


def processor() -> str:
    """Return what decides which library code runs: the BLAS chooses kernels by processor."""
    kernels = {str(one.get("architecture", "")) for one in threadpool_info()}
    return " ".join([platform.machine(), *sorted(kernels - {""})])
