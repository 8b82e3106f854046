"""ACU on wide random features: time, memory, deviation and accuracy, up to d = 10,000.

Frozen ReLU(φR + b) of a published seed widens the task's features. Each width runs in a
process of its own, so that its peak memory is its own: `integers` is this project's ACU on
exact statistics with a proven bound, `float64` the recursion alone, as the paper has it.

    python -m benchmarks.ridge_paper.width FILE WIDTH integers|float64
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.ridge_paper.ledgers import ACU_ROWS, Acu, deviation
from benchmarks.ridge_paper.task import HeadTask, make_task
from workers.arrays import Matrix, Rows
from workers.data.extractors.random_relu import RandomRelu
from workers.methods.ridge import acu
from workers.methods.ridge.ridge_system import solve_float

WIDTHS, QUICK_WIDTHS = (1_000, 2_000, 5_000, 10_000), (200, 400)
KINDS = ("float64", "integers")
ROWS = 2_000  # to learn: each 128 of them move all of K through memory
SINGLES = 3
BATCH = ACU_ROWS  # rows of the larger request, which is learned back afterwards
SEED = 0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Width:
    """What ACU cost at one width.

    learn, forget_one, forget_batch, learn_back in seconds (forget_one is the fastest of
    SINGLES); peak in MiB, of which `before` was held before the method began; deviation
    from the head solved anew on the rows that remain; bound is the proven relative error,
    None where nothing is proven.
    """

    data: str
    kind: str
    width: int
    rows: int
    learn: float
    forget_one: float
    forget_batch: float
    learn_back: float
    accuracy: float
    deviation: float
    bound: float | None
    before: float
    peak: float


def measure(task: HeadTask, quick: bool) -> list[Width]:
    """Return what each width costs, each of both kinds in its own process."""
    rows = min(400 if quick else ROWS, len(task.rows))
    index = task.stream(rows, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(
            file,
            allow_pickle=False,
            features=task.features[index],
            labels=task.rows.labels[index],
            test=task.test,
            test_labels=task.test_labels,
            classes=np.array(task.config.classes),
        )
        return [
            _child(task.name, file, width, kind)
            for width in (QUICK_WIDTHS if quick else WIDTHS)
            for kind in KINDS
        ]


def _child(data: str, file: Path, width: int, kind: str) -> Width:
    command = [sys.executable, "-m", "benchmarks.ridge_paper.width", str(file), str(width)]
    done = subprocess.run([*command, kind], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ACU at d = {width}, {kind}: {done.stderr.strip()[-400:]}")
    return Width(data=data, kind=kind, width=width, **json.loads(done.stdout))


def main(path: str, width: int, kind: str) -> None:
    """Measure one width and print the result as JSON."""
    task = _widened(Path(path), width)
    run = _integers if kind == "integers" else _floats
    measured = run(task)
    measured["rows"] = len(task.rows)
    sys.stdout.write(json.dumps(measured) + "\n")


def _widened(path: Path, width: int) -> HeadTask:
    with np.load(path, allow_pickle=False) as arrays:
        features, test = arrays["features"], arrays["test"]
        labels, test_labels = arrays["labels"], arrays["test_labels"]
        classes = int(arrays["classes"])
    # Test rows may set the scale: nobody erases them.
    scale = float(1 / np.sqrt(np.mean(np.square(test))))
    extractor = RandomRelu(features.shape[1], width, SEED, scale)
    wide = extractor.extract(features).astype(np.float32)
    held = extractor.extract(test).astype(np.float32)
    # A row's squared norm grows with the width: so does the penalty, or a width near the
    # number of rows would interpolate them.
    return make_task("", "", (wide, labels), (held, test_labels), classes, penalty=width / 10)


def _integers(task: HeadTask) -> dict[str, float | None]:
    config, rows, before = task.config, task.rows, _forget_peak()

    def part(start: int, end: int) -> Rows:
        return Rows(rows.codes[start:end], rows.labels[start:end])

    started = time.perf_counter()
    state = acu.METHOD.learn(config, None, rows).state
    learn = time.perf_counter() - started
    ones = []
    for i in range(SINGLES):
        started = time.perf_counter()
        state = acu.METHOD.forget(config, state, part(i, i + 1)).state
        ones.append(time.perf_counter() - started)
    batch = part(SINGLES, SINGLES + BATCH)
    started = time.perf_counter()
    state = acu.METHOD.forget(config, state, batch).state
    forget = time.perf_counter() - started
    started = time.perf_counter()
    state = acu.METHOD.learn(config, state, batch).state
    back = time.perf_counter() - started
    peak = _memory()  # before the control below allocates anything
    head = np.asarray(state.head, dtype=np.float64)
    return {
        "learn": learn,
        "forget_one": min(ones),
        "forget_batch": forget,
        "learn_back": back,
        "accuracy": task.accuracy(head),
        "deviation": deviation(head, solve_float(state.statistics, config)),
        "bound": state.bound / float(np.linalg.norm(head)),
        "before": before,
        "peak": peak,
    }


def _floats(task: HeadTask) -> dict[str, float | None]:
    x, y, before = task.features, task.targets, _forget_peak()
    started = time.perf_counter()
    ledger = Acu(x.shape[1], y.shape[1], task.config.penalty)
    ledger.update(x, y, +1)
    learn = time.perf_counter() - started
    ones = []
    for i in range(SINGLES):
        started = time.perf_counter()
        ledger.update(x[i : i + 1], y[i : i + 1], -1)
        ones.append(time.perf_counter() - started)
    batch = slice(SINGLES, SINGLES + BATCH)
    started = time.perf_counter()
    ledger.update(x[batch], y[batch], -1)
    forget = time.perf_counter() - started
    started = time.perf_counter()
    ledger.update(x[batch], y[batch], +1)
    back = time.perf_counter() - started
    peak = _memory()
    head = np.asarray(ledger.head(), dtype=np.float64)
    return {
        "learn": learn,
        "forget_one": min(ones),
        "forget_batch": forget,
        "learn_back": back,
        "accuracy": task.accuracy(head),
        "deviation": deviation(head, _solved(x[SINGLES:], y[SINGLES:], task.config.penalty)),
        "bound": None,
        "before": before,
        "peak": peak,
    }


def _solved(x: Matrix, y: Matrix, penalty: float) -> Matrix:
    """Return the ridge head in float64 from the smaller of the two normal systems."""
    if len(x) < x.shape[1]:
        kernel = x @ x.T
        kernel[np.diag_indices(len(x))] += penalty
        return np.asarray(x.T @ np.linalg.solve(kernel, y))
    gram = x.T @ x
    gram[np.diag_indices(len(gram))] += penalty
    return np.asarray(np.linalg.solve(gram, x.T @ y))


def _forget_peak() -> float:
    """Return what the process holds now, in MiB, and let its peak begin anew from there.

    Where that is not possible it returns the peak so far.
    """
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")  # man 5 proc_pid_clear_refs: resets VmHWM
    return _memory()


def _memory() -> float:
    """Return the most memory this process held, in MiB.

    Linux's VmHWM begins anew with the program; ru_maxrss begins with the parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if "VmHWM" in line]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB  # macOS: in bytes


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
