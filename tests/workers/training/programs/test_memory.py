"""Memory that a program could take beside its address space: refused, or bounded."""

import platform

import pytest

from tests.workers.training.programs.test_run import ROWS, program
from workers.training.isolation import confinement
from workers.training.programs import run
from workers.training.programs.run import ProgramError
from workers.training.recipes.process import Limits

LIMITS = Limits(seconds=60, memory=1 << 30, output=1 << 20)
# By the numbers of <asm/unistd_64.h> and <asm-generic/unistd.h>. Each creates an object that
# holds memory. Arguments: such that the call succeeds where nothing refuses it.
CALLS = {
    "x86_64": {
        "memfd_create": (319, "b'm', 0"),
        "memfd_secret": (447, "0"),
        "shmget": (29, "0, 4096, 0o600"),
        "msgget": (68, "0, 0o600"),
        "semget": (64, "0, 1, 0o600"),
        "mq_open": (240, "b'm', 0o102, 0o600, 0"),
        "vmsplice": (278, "pipe[1], (c_void_p * 2)(addressof(page), 4096), 1, 0"),
        "io_setup": (206, "1, byref(c_void_p())"),
        "inotify_init": (253, ""),
        "inotify_init1": (294, "0"),
        "landlock_create_ruleset": (444, "byref(c_uint64(1)), 8, 0"),
        "seccomp": (317, "1, 0, allow"),
        "prctl, PR_SET_SECCOMP": (157, "22, 2, allow, 0, 0"),
        "socketpair": (53, "1, 1, 0, byref(c_uint64())"),
        "fcntl, F_SETPIPE_SZ": (72, "pipe[0], 1031, 1 << 20"),
        "fcntl, F_OFD_SETLK": (72, "own, 37, lock"),
        "close_range, CLOSE_RANGE_UNSHARE": (436, "900, 901, 2"),
        "clone, a thread with its own files": (56, "0x10100, 0, 0, 0, 0"),
    },
    "aarch64": {
        "memfd_create": (279, "b'm', 0"),
        "memfd_secret": (447, "0"),
        "shmget": (194, "0, 4096, 0o600"),
        "msgget": (186, "0, 0o600"),
        "semget": (190, "0, 1, 0o600"),
        "mq_open": (180, "b'm', 0o102, 0o600, 0"),
        "vmsplice": (75, "pipe[1], (c_void_p * 2)(addressof(page), 4096), 1, 0"),
        "io_setup": (0, "1, byref(c_void_p())"),
        "inotify_init1": (26, "0"),
        "landlock_create_ruleset": (444, "byref(c_uint64(1)), 8, 0"),
        "seccomp": (277, "1, 0, allow"),
        "prctl, PR_SET_SECCOMP": (167, "22, 2, allow, 0, 0"),
        "socketpair": (199, "1, 1, 0, byref(c_uint64())"),
        "fcntl, F_SETPIPE_SZ": (25, "pipe[0], 1031, 1 << 20"),
        "fcntl, F_OFD_SETLK": (25, "own, 37, lock"),
        "close_range, CLOSE_RANGE_UNSHARE": (436, "900, 901, 2"),
    },
}
# CLONE_THREAD without CLONE_SIGHAND, which the kernel refuses with EINVAL: no thread runs here.
TRIES = """
import os, struct
from ctypes import *

c = CDLL(None, use_errno=True)
pipe, page = os.pipe(), create_string_buffer(4096)
own = os.open("own", os.O_CREAT | os.O_RDWR)
lock = create_string_buffer(struct.pack("hhqqi", 1, 0, 0, 1, 0) + bytes(64))
step = create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
allow = create_string_buffer(struct.pack("@HP", 1, addressof(step)))
if c.syscall(NUMBER, ARGUMENTS) >= 0: raise SystemExit("succeeded")
raise SystemExit("errno %d" % get_errno())
"""


def ended(text: str, limits: Limits = LIMITS) -> str:
    """Return the last line of a program that fails."""
    with pytest.raises(ProgramError) as found:
        run.execute(program(text), ROWS, limits)
    return str(found.value)


@pytest.mark.parametrize("name", CALLS.get(platform.machine(), {}))
def test_no_call_creates_memory_beside_the_address_space(name: str) -> None:
    number, arguments = CALLS[platform.machine()][name]
    text = TRIES.replace("NUMBER, ARGUMENTS", f"{number}, {arguments}".rstrip(", "))
    assert "errno 1;" in ended(text)


def test_locks_succeed_and_take_no_memory() -> None:
    """No other process shares the files, so that no lock of one process ever conflicts."""
    text = (
        "import fcntl, os, sqlite3, struct\n"
        "base = sqlite3.connect('base'); base.execute('create table t (a)')\n"
        "base.execute('insert into t values (7)'); base.commit()\n"
        "rows = base.execute('select a from t').fetchall()\n"
        "own = os.open('own', os.O_CREAT | os.O_RDWR)\n"
        "fcntl.lockf(own, fcntl.LOCK_EX, 1)\n"
        "asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 1, 0)\n"
        "kind = struct.unpack('h', fcntl.fcntl(own, 36, asked)[:2])[0]\n"  # F_OFD_GETLK
        "raise SystemExit('%s %s' % (rows, kind == fcntl.F_UNLCK))\n"
    )
    assert "[(7,)] True;" in ended(text)


def test_the_scratch_is_no_larger_than_two_files_and_the_rows() -> None:
    text = (
        "import os\n"
        "taken = 0\n"
        "try:\n"
        "    for place in range(999):\n"
        "        taken += os.write(os.open(str(place), os.O_CREAT | os.O_WRONLY), bytes(1 << 20))\n"
        "except OSError as error: raise SystemExit('%d %d' % (error.errno, taken >> 20))\n"
    )
    assert "status 1: 28 " in (said := ended(text))  # ENOSPC
    assert int(said.partition("status 1: 28 ")[2].partition(";")[0]) <= 18


def test_a_program_has_few_signals_and_timers() -> None:
    text = (
        "import resource\n"
        "from ctypes import *\n"
        "c = CDLL(None, use_errno=True)\n"
        "event = create_string_buffer(64); event[12] = 1\n"  # SIGEV_NONE
        "most = 0\n"
        "while most < 5000 and not c.timer_create(1, event, byref(c_void_p())): most += 1\n"
        "limits = [resource.getrlimit(one)[0] for one in (11, 12)]\n"
        "raise SystemExit('%d %s' % (most, limits))\n"
    )
    assert f"{confinement.MOST_SIGNALS} [{confinement.MOST_SIGNALS}, 0];" in ended(text)
