"""Progress on stderr: a line rewritten in place, or in a file a line now and then."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from lethe.client.answers import Progress

BAR = 10  # characters; the line fits into 80 columns
SECONDS = 30.0  # between two lines of the same phase in a file: an hour's training stays short
SHORT = 5.0  # seconds; what takes no longer gets no line


def on_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


class Waiting:
    """Progress on stderr; in a file, lines only for changes, and at intervals.

    live: whether stderr is a terminal. Leaving the context clears the line, even if the awaited
    result never arrives.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self.live = on_terminal()
        self._started = clock()
        self._shown = ""  # the current text of the terminal's line
        self._said: tuple[str, Progress | None] = "", None  # the last line in a file
        self._said_at = self._started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    @property
    def seconds(self) -> float:
        """The elapsed time."""
        return self._clock() - self._started

    def tell(self, state: str, progress: "Progress | None" = None) -> None:
        """Show the awaited state, and its progress."""
        if self.live:
            spinner = "|/-\\"[int(self.seconds * 4) % 4]
            how_far = "" if progress is None else f", {_bar(progress)}"
            text = f"  {spinner} {self._what}: {state}{how_far}, {self.seconds:.0f} s"
            self._rewrite(text)
            return
        if self._is_new(state, progress):
            how_far = "" if progress is None else f" ({progress})"
            text = f"  {self._what}: {state}{how_far} after {self.seconds:.1f} s"
            click.echo(text, err=True)
            self._said, self._said_at = (state, progress), self._clock()

    def clear(self) -> None:
        """Clear the line, so that others can be written in its place."""
        if self._shown:
            self._rewrite("")

    def _is_new(self, state: str, progress: "Progress | None") -> bool:
        before, how_far = self._said
        if state != before or self._clock() - self._said_at >= SECONDS:
            return True
        if progress is None:
            return False  # the next line reports that a phase ended
        return how_far is None or progress.phase != how_far.phase

    def _rewrite(self, text: str) -> None:
        # A wrapped line could not be cleared.
        text = text[: shutil.get_terminal_size().columns - 1]
        clear = " " * (len(self._shown) - len(text))
        end = "" if text else "\r"
        click.echo(f"\r{text}{clear}{end}", err=True, nl=False)
        self._shown = text


class Passing:
    """Lines for a file, at intervals, on how much of a known amount is done."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._started = self._said_at = clock()
        self._done = 0

    def tell(self, done: int, total: int) -> None:
        """Print a line if the last one is old. total: 0 if it is not known."""
        now = self._clock()
        if self._done == 0 or done < self._done:  # it begins, or is sent again
            self._started = self._said_at = now
        self._done = done
        if now - self._said_at >= SECONDS:
            how_far = f"{done * 100 // total} %" if total else f"{done:,}"
            click.echo(f"  {self._what}: {how_far} after {now - self._started:.0f} s", err=True)
            self._said_at = now


@contextmanager
def working(what: str) -> Iterator[None]:
    """Print lines on a computation of this process: that it goes on, and that it ended.

    Nothing is printed of a short one.
    """
    started, done, said = time.monotonic(), Event(), Event()

    def tell() -> None:
        pause = SHORT
        while not done.wait(pause):
            click.echo(f"  {what}: {time.monotonic() - started:.0f} s so far", err=True)
            said.set()
            pause = SECONDS

    thread = Thread(target=tell, name="working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if said.is_set():
        click.echo(f"  {what}: done after {time.monotonic() - started:.0f} s", err=True)


def _bar(progress: "Progress") -> str:
    share = progress.done / progress.total if progress.total > 0 else 0.0
    filled = round(BAR * min(1.0, max(0.0, share)))
    bar = "#" * filled + "-" * (BAR - filled)
    return f"{progress.phase} [{bar}] {progress.done}/{progress.total} {progress.unit}"
