"""The threads of a process share two heaps of glibc."""

import ctypes
import subprocess
import sys

import pytest

HEAPS = """
import ctypes, sys, threading
from app.heaps import share_heaps

if sys.argv[1] == "shared":
    share_heaps()
libc, began = ctypes.CDLL(None), threading.Barrier(12)
libc.malloc.restype = ctypes.c_void_p

def allocate():
    libc.malloc(1000)
    began.wait()
    libc.malloc(1000)

threads = [threading.Thread(target=allocate) for _ in range(12)]
for one in threads:
    one.start()
for one in threads:
    one.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_threads_share_two_heaps() -> None:
    """With one each, a process would keep the peak of every thread for ever."""

    def heaps(how: str) -> int:
        command = [sys.executable, "-c", HEAPS, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.count("<heap nr=")

    assert heaps("shared") == 2
    assert heaps("own") > 2
