"""Confinement of the operator's program: it may read its inputs, write its scratch, compute.

Namespaces (user, network, processes, mounts, IPC) take away the network and other processes,
Landlock all files except the named ones, read-only mounts the metadata of files (mode, times,
attributes), seccomp new processes, sockets and memory outside the address space, resource
limits the rest. Everything is set by the process itself, without privileges, before the
program starts. Nothing here imports more than the standard library: it runs in a process with
one thread.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.errors import RefusedError

REMEDY = "see the section on isolation in docs/scripts.md"


class IsolationError(RefusedError):
    """This machine cannot isolate a program. The message names what is missing."""


# --- system calls by number: <linux/landlock.h> has the same ones on every processor ---------
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
MOUNT_SETATTR = 442
LEAST_ABI = 3  # from Linux 6.2: with an older one a program could truncate files outside
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = READ_FILE | READ_DIR
CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_FILES, CLONE_THREAD = 0x00000400, 0x00010000
CLOSE_RANGE_UNSHARE = 2
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 1 << 14, 1 << 18
AT_RECURSIVE, MOUNT_ATTR_RDONLY = 0x8000, 1
# fcntl's write-lifetime hints: the kernel keeps them with the inode after the process ends.
KEPT_HINTS = (1036, 1038)
# Locks of one process never conflict: they are skipped, and the call succeeds. The kernel
# would keep each in memory of its own, as many as asked for. Those of open files are refused.
RECORD_LOCKS, OPEN_FILE_LOCKS = (6, 7), (37, 38)
SET_PIPE_SIZE = 1031
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
CAPABILITY_VERSION = 0x20080522
MOST_SIGNALS = 1024  # pending signals and timers
INSIDE = 65534  # the user inside: not 0, so that the program has no capability
# Mount points for the program's scratch. The first free one, the same on all workers: a
# program may write its path into its file.
PLACES = ("/mnt", "/srv", "/media")


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor as seccomp knows it: its audit name and its system call numbers.

    denied: calls that create processes and sockets, or reach into the kernel. holding: calls
    that create memory which the limit of the address space does not count.
    """

    audit: int
    clone: int
    clone3: int
    fcntl: int
    prctl: int
    denied: tuple[int, ...]
    holding: tuple[int, ...]


CLOSE_RANGE, MEMFD_SECRET = 436, 447
# denied: socket, socketpair, fork, vfork, ptrace, mount, unshare, setns, keys (3), bpf,
# perf_event_open, userfaultfd, io_uring_setup, which could open sockets unseen; and syslog,
# which reads what an earlier program had the kernel log, such as names of threads.
# holding: memfd_create, shmget, msgget, semget, mq_open, vmsplice, io_setup, inotify_init (2),
# fanotify_init, seccomp; and memfd_secret, landlock_create_ruleset.
PROCESSORS: Mapping[str, Processor] = {
    "x86_64": Processor(
        0xC000003E,
        clone=56,
        clone3=435,
        fcntl=72,
        prctl=157,
        denied=(41, 53, 57, 58, 101, 165, 272, 308, 248, 249, 250, 321, 298, 323, 425, 103),
        holding=(319, 29, 68, 64, 240, 278, 206, 253, 294, 300, 317),
    ),
    "aarch64": Processor(
        0xC00000B7,
        clone=220,
        clone3=435,
        fcntl=25,
        prctl=167,
        denied=(198, 199, 117, 40, 97, 268, 217, 218, 219, 280, 241, 282, 425, 116),
        holding=(279, 194, 186, 190, 180, 75, 0, 26, 262, 277),
    ),
}
# Files of the machine that numeric libraries read, and the time zone.
MACHINE = (
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/etc/ld.so.cache",
    "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
    "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/usr/share/zoneinfo",
)  # fmt: skip
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
SYSTEM = (*MACHINE, *LIBRARIES)
# Outcomes of the filter, and tests of bits. NO_BIT: the same instruction, the other way.
REFUSE, UNKNOWN, DONE = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x00050000
ALLOW, KILL = 0x7FFF0000, 0x80000000
ANY_BIT, NO_BIT = 0x45, 0x145
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Confinement:
    """The rights of a confined process. Missing paths are ignored.

    reads: files and trees that it may read. lists: directories it may list without reading
    their files. runs: files and trees it may execute. writes: trees in which it may create
    and change files. memory: bytes of address space; file: bytes of the largest file;
    threads: the most threads, unless the worker is root.
    """

    reads: tuple[str, ...]
    lists: tuple[str, ...]
    runs: tuple[str, ...]
    writes: tuple[str, ...]
    memory: int
    file: int
    threads: int = 512


def check() -> None:
    """Return if a program can be isolated here, as far as can be seen without trying.

    Raises IsolationError if the system, the processor or the kernel lacks something.
    """
    if sys.platform != "linux":
        raise _lacking("Linux", f"this is {sys.platform}: run the worker on Linux")
    if platform.machine() not in PROCESSORS:
        known = " or ".join(PROCESSORS)
        raise _lacking("a known processor", f"{platform.machine()}: use {known}")
    if (abi := landlock_abi()) < LEAST_ABI:
        raise _lacking(
            "Landlock",
            f"the kernel has version {max(abi, 0)} of at least {LEAST_ABI}: boot Linux 6.2 or "
            "newer with lsm=landlock,…",
        )
    place()


def place() -> str:
    """Return the directory that the scratch file system is mounted on. Raises as `check`."""
    for found in PLACES:
        if Path(found).is_dir() and not _in_use(found):
            return found
    raise _lacking("a place to mount", f"none of {', '.join(PLACES)} is free: make /mnt")


def landlock_abi() -> int:
    """Return the version of Landlock in the kernel, below 1 if there is none."""
    found: int = _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    return found


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it has ended."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def leave() -> None:
    """Enter new network, user, mount and IPC namespaces; children also enter a new PID one.

    Raises IsolationError if the system does not allow it.
    """
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID):
        raise _lacking(
            "user namespaces",
            f"{_reason()}: allow them (user.max_user_namespaces, AppArmor's "
            "kernel.apparmor_restrict_unprivileged_userns, the seccomp profile of a container)",
        )
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{INSIDE} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{INSIDE} {group} 1")
    except OSError as error:
        raise _lacking("user namespaces", f"no user can be mapped: {error.strerror}") from None
    die_with_parent()  # a change of credentials clears it


def freeze_mounts() -> None:
    """Make all file systems read-only to this process, in the namespace that `leave` entered.

    Landlock lets a program change the mode, the times and the attributes of its user's files:
    it could make keys world-readable, or store rows in metadata for its next run. Files that
    are open keep their old mounts. Raises IsolationError if the system does not allow it.
    """
    frozen = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    root = (-100, b"/", AT_RECURSIVE, frozen, ctypes.c_size_t(len(frozen)))
    if _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or _libc.syscall(
        MOUNT_SETATTR, *root
    ):
        raise _not_mounted()


def mount_scratch(size: int) -> str:
    """Return the path of an empty file system in memory that only this process tree sees.

    All others are read-only to this process from then on (`freeze_mounts`). size: in bytes.
    Raises IsolationError if nothing can be mounted.
    """
    where = place()
    freeze_mounts()
    # Files of huge pages could keep, in a pipe, more memory than the size says.
    options = f"size={size},mode=0700,nr_inodes=65536,huge=never".encode()
    if _libc.mount(b"tmpfs", where.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options):
        raise _not_mounted()
    return where


def confine(allowed: Confinement) -> None:
    """Give up all other rights, permanently, for this process and what it executes.

    Raises IsolationError if a step fails: nothing may run then.
    """
    _limit(resource.RLIMIT_AS, allowed.memory)
    _limit(resource.RLIMIT_FSIZE, allowed.file)
    _limit(resource.RLIMIT_CORE, 0)  # a dump would hold the rows
    _limit(resource.RLIMIT_NOFILE, 1024)
    _limit(resource.RLIMIT_NPROC, allowed.threads)
    _limit(resource.RLIMIT_MEMLOCK, 0)
    if sys.platform == "linux":  # only its module has these names
        _limit(resource.RLIMIT_MSGQUEUE, 0)
        _limit(resource.RLIMIT_SIGPENDING, MOST_SIGNALS)
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _lacking("no_new_privs", _reason())
    _restrict_files(allowed)
    _drop_capabilities()
    _restrict_calls()


def _drop_capabilities() -> None:
    """Give up what a new user namespace gives: mounts and namespaces are memory, too."""
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    if _libc.capset(header, bytes(24)):
        raise _lacking("capset", _reason())


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (limit, limit))


def _restrict_files(allowed: Confinement) -> None:
    """Landlock: deny all access to files, ports and others' signals except as allowed."""
    abi = landlock_abi()
    if abi < LEAST_ABI:
        raise _lacking("Landlock", f"the kernel has version {max(abi, 0)}")
    every = (1 << (16 if abi >= 5 else 15)) - 1
    network = 3 if abi >= 4 else 0  # bind and connect by TCP
    scoped = 3 if abi >= 6 else 0  # abstract sockets, signals
    attributes = struct.pack("=QQQ", every, network, scoped)[: 24 if abi >= 6 else 16]
    attributes = attributes if abi >= 4 else attributes[:8]
    rules: int = _libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        raise _lacking("Landlock", _reason())
    writes = every & ~(EXECUTE | MAKE_DEVICES | IOCTL_DEV)
    wanted = ((allowed.reads, READ), (allowed.lists, READ_DIR), (allowed.runs, READ | EXECUTE))
    for paths, access in (*wanted, (allowed.writes, writes)):
        _allow(rules, paths, access)
    if _libc.syscall(LANDLOCK_RESTRICT, rules, 0):
        raise _lacking("Landlock", _reason())
    os.close(rules)


def _allow(rules: int, paths: Iterable[str], access: int) -> None:
    for path in paths:
        try:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # it is missing, or not readable by this user
        try:
            own = access if Path(path).is_dir() else access & OF_FILES
            rule = struct.pack("=Qi", own, found)
            if own and _libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0):
                raise _lacking("Landlock", _reason())
        finally:
            os.close(found)


def _restrict_calls() -> None:
    """Seccomp: allow threads, but no new process, no socket and no memory beside the limit."""
    processor = PROCESSORS[platform.machine()]
    load, equal, greater, end = 0x20, 0x15, 0x35, 0x06
    steps: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, processor.audit),
        (end, 0, 0, KILL),
        (load, 0, 0, 0),
        (greater, 0, 1, 0x40000000),  # x32: the same calls by other numbers
        (end, 0, 0, REFUSE),
        (equal, 0, 1, processor.clone3),  # its flags are in memory: libraries then use clone
        (end, 0, 0, UNKNOWN),
    ]
    for number in (*processor.denied, *processor.holding, MEMFD_SECRET, LANDLOCK_CREATE):
        steps += [(equal, 0, 1, number), (end, 0, 0, REFUSE)]
    refused = (*KEPT_HINTS, SET_PIPE_SIZE, *OPEN_FILE_LOCKS)
    commands = [(equal, one, REFUSE) for one in refused]
    commands += [(equal, one, DONE) for one in RECORD_LOCKS]
    steps += _by_argument(processor.fcntl, 1, commands)
    steps += _by_argument(processor.prctl, 0, [(equal, PR_SET_SECCOMP, REFUSE)])
    # Each thread with files of its own could open as many as the limit allows.
    steps += _by_argument(CLOSE_RANGE, 2, [(ANY_BIT, CLOSE_RANGE_UNSHARE, REFUSE)])
    needed = [(NO_BIT, flag, REFUSE) for flag in (CLONE_THREAD, CLONE_FILES)]
    steps += _by_argument(processor.clone, 0, needed)
    steps.append((end, 0, 0, ALLOW))
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(steps), ctypes.addressof(held))
    if _libc.prctl(PR_SET_SECCOMP, 2, program, 0, 0):
        raise _lacking("seccomp", _reason())


def _by_argument(
    number: int, place: int, tests: list[tuple[int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Return the filter's steps for one call: tests (kind, value, outcome) of an argument."""
    load, equal, end = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 16 + 8 * place)]
    for kind, value, outcome in tests:
        yes, no = (1, 0) if kind == NO_BIT else (0, 1)
        steps += [(kind & 0xFF, yes, no, value), (end, 0, 0, outcome)]
    steps.append((end, 0, 0, ALLOW))
    return [(equal, 0, len(steps), number), *steps]


def _in_use(directory: str) -> bool:
    """Return whether the directory contains libraries that a program needs."""
    needed = (sys.prefix, sys.base_prefix, *sys.path, __file__)
    return any(Path(directory) in Path(one).resolve().parents for one in needed if one)


def _reason() -> str:
    return os.strerror(ctypes.get_errno())


def _not_mounted() -> IsolationError:
    return _lacking("mounts", f"{_reason()}: allow them in the container's profile")


def _lacking(what: str, why: str) -> IsolationError:
    return IsolationError(
        f"programs cannot be isolated here, {what} is missing ({why}); {REMEDY}"
    )
