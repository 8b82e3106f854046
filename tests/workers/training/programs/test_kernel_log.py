"""What a run has the kernel write into its log, the next run may not read there.

A call such as futex with an odd operand writes the name of the thread, which is 15 bytes of
the program's choice.
"""

import platform
import subprocess
import sys

import pytest

from workers.training.isolation import confinement

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in confinement.PROCESSORS,
    reason="the filter is of Linux, on a known processor",
)
# The kernel itself answers EPERM if kernel.dmesg_restrict is set. Here an older filter answers
# ENOSYS in its place; of two filters that refuse, the last one decides.
OUTER = """
import ctypes, struct
from workers.training.isolation import confinement

steps = [(0x20, 0, 0, 0), (0x15, 0, 1, SYSLOG), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]
held = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in steps))
libc = ctypes.CDLL(None)
assert not libc.prctl(38, 1, 0, 0, 0)
assert not libc.prctl(22, 2, struct.pack("@HP", 4, ctypes.addressof(held)), 0, 0)

from tests.workers.training.programs.test_memory import TRIES, ended
print(ended(TRIES.replace("NUMBER, ARGUMENTS", "SYSLOG, 3, page, 4096")))
"""


def test_a_program_cannot_read_the_kernels_log() -> None:
    number = {"x86_64": "103", "aarch64": "116"}[platform.machine()]
    done = subprocess.run(
        [sys.executable, "-c", OUTER.replace("SYSLOG", number)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "errno 1;" in done.stdout
