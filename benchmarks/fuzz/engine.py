"""Runs one target in a process of its own, bounded in memory and time; its corpus grows.

An input is kept if it makes the parser do something new: refuse at another line of the product,
or in another way. That is a cheap measure of what was reached, and needs no tracer.
"""

import hashlib
import os
import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from benchmarks.fuzz.target import Target, Way
from tests.servers import in_memory

ROOT = Path(__file__).parents[2]
ROOMS = tuple(f"{ROOT}/{room}/" for room in ("app", "lethe", "models", "workers"))
MEMORY_BYTES = 3 << 30  # of address space, more than the process has when it begins
KEPT = 400  # inputs of a corpus
KEPT_BYTES = 1 << 15  # of one, if no seed is longer: long inputs slow down all that follow
TEMPORARY_BYTES = 1 << 28
HANG_S = 60  # after which a run is given up


@dataclass
class Found:
    """What became of one target's runs.

    crashes: what was raised beside the refusals, by where, each with the first input in hex.
    """

    name: str
    runs: int = 0
    read: int = 0
    refused: int = 0
    ways: int = 0  # that it was read or refused in: the size of the corpus beyond the seeds
    slowest_s: float = 0.0
    seconds: float = 0.0
    crashes: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return vars(self)


class HangError(BaseException):
    """One input took HANG_S seconds."""


def fuzz(
    target: Target,
    runs: int,
    seed: int = 0,
    corpus: Path | None = None,
    *,
    keep: bool = False,
) -> Found:
    """Run a target in a fork with bounds.

    corpus: inputs of earlier runs, which are tried first. keep: add to it what does something
    new, and remove what no longer does. A seed that is refused is a crash too: such a target
    tests nothing.
    """
    here, there = get_context("fork").Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _be(target, runs, seed, corpus, there, keep=keep)
    there.close()
    try:
        kind, value = here.recv()
    except EOFError:
        kind, value = "died", None
    _, status = os.waitpid(pid, 0)
    if kind == "found":
        found: Found = value
        return found
    ended = Found(target.name)
    why = {
        "refused": f"refuses its own seed: {value}",
        "failed": f"the engine failed: {value}",
        "died": f"the process died: status {status}",
    }[kind]
    ended.crashes[why] = ""
    return ended


def _be(
    target: Target,
    runs: int,
    seed: int,
    corpus: Path | None,
    there: Connection,
    *,
    keep: bool,
) -> None:
    status = 1
    within = in_memory(TEMPORARY_BYTES)  # on a disk some parsers take ten times as long
    tempfile.tempdir = None if within is None else str(within)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        there.send(("found", loop(target, runs, seed, corpus, keep=keep)))
        status = 0
    except RuntimeError as error:
        there.send(("refused", str(error)))
    except BaseException:
        there.send(("failed", traceback.format_exc()[-600:]))
    finally:
        os._exit(status)


def loop(
    target: Target,
    runs: int,
    seed: int = 0,
    corpus: Path | None = None,
    *,
    keep: bool = False,
) -> Found:
    """Run a target in this process. Raises RuntimeError as `fuzz`."""
    rng = random.Random(f"{target.name}:{seed}")
    kept = list(target.seeds())
    for one in kept:
        try:
            target.read(one)
        except target.refusals as error:
            raise RuntimeError(f"{error!r} for {one[:200]!r}") from error
    longest = max(KEPT_BYTES, *map(len, kept))
    folder = None if corpus is None else corpus / target.name
    seen: Counter[str] = Counter()
    found = Found(target.name)
    begun = time.monotonic()
    with _bounds():
        kept += _replayed(target, folder, seen, found, keep=keep)
        for _ in range(runs):
            data = rng.choice(target.mutators)(rng, rng.choice(kept), kept)
            way = _once(target, data, found)
            if not seen[way] and len(kept) < KEPT and len(data) <= longest:
                kept.append(data)
                if keep and folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / hashlib.sha256(data).hexdigest()[:24]).write_bytes(data)
            seen[way] += 1
            found.runs += 1
    found.ways = len(seen)
    found.seconds = round(time.monotonic() - begun, 1)
    return found


def _replayed(
    target: Target, folder: Path | None, seen: Counter[str], found: Found, *, keep: bool
) -> list[bytes]:
    """Try the inputs of a corpus, short ones first; return the first of each way."""
    kept: list[bytes] = []
    paths = [] if folder is None or not folder.is_dir() else list(folder.iterdir())
    tried = Found(target.name)  # which are no runs of this call
    for data, path in sorted(
        ((path.read_bytes(), path) for path in paths), key=lambda one: (len(one[0]), one[0])
    ):
        way = _once(target, data, tried)
        if seen[way] and keep:
            path.unlink()
        elif not seen[way]:
            kept.append(data)
        seen[way] += 1
    found.crashes |= tried.crashes
    return kept


def _once(target: Target, data: bytes, found: Found) -> str:
    """Give the parser one input; return in which way it took it."""
    begun = time.process_time()  # a busy machine makes no input slow
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        value = target.read(data)
        way = f"read: {value}" if isinstance(value, Way) else "read"
        found.read += 1
    except target.refusals as error:
        way = _where(error)
        found.refused += 1
    except HangError:
        way = f"hangs for {HANG_S} s"
        found.crashes.setdefault(way, data.hex())
    except Exception as error:
        way = f"{type(error).__name__} at {_where(error)}"
        found.crashes.setdefault(way, data.hex())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.process_time() - begun
    found.slowest_s = round(max(found.slowest_s, took), 3)
    if took > target.slow_s:
        found.crashes.setdefault(f"takes more than {target.slow_s} s", data.hex())
    return way


def _where(error: BaseException) -> str:
    """Return the kind of an error, and the last line of the product that it passed."""
    place = ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(ROOMS):
            place = f"{name[len(str(ROOT)) + 1 :]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} {place}"


@contextmanager
def _bounds() -> Iterator[None]:
    """Bound memory, and have the alarm of a run that takes HANG_S end it."""

    def rang(_: int, frame: FrameType | None) -> None:
        raise HangError

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    handler = signal.signal(signal.SIGALRM, rang)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
