"""A worker whose parent keeps the pipe open ends like any other program."""

import subprocess
import sys

ENDS = """
import threading, time
from workers.cli.worker import end_with_parent
threading.Thread(target=end_with_parent, daemon=True).start()
time.sleep(0.3)
"""


def test_it_ends_while_a_thread_waits_for_its_parent() -> None:
    """That thread held the lock of sys.stdin, and the worker died with _enter_buffered_busy."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDS], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert (process.wait(60), said) == (0, "")
