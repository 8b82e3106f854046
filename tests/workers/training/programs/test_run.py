"""Programs that do what they should not: an end, a clear reason, and nothing left behind."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from tests.workers.training.programs.small import NOISE, PLAIN, script
from workers.errors import RefusedError
from workers.training.isolation import confinement
from workers.training.isolation.confinement import IsolationError
from workers.training.programs import run
from workers.training.programs.outputs import OutputError
from workers.training.programs.program import OtherEnvironmentError
from workers.training.programs.run import ProgramError
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits

rng = np.random.default_rng(1)
FEATURES = rng.normal(size=(40, 3))
ROWS = FitRows(FEATURES, (FEATURES[:, 0] > 0).astype(np.int64))
LIMITS = Limits(seconds=60, memory=2 << 30, output=1 << 20)
ENTRY = f"train_{os.getpid()}.py"  # seen in the list of processes
WRITES = "import sys; from pathlib import Path; Path(sys.argv[2])"


def config(document: dict[str, Any]) -> dict[str, Any]:
    plain = {
        "output": "safetensors",
        "threads": 1,
        "tolerance": None,
        "predict": None,
        **document,
    }
    if plain["tolerance"] is not None:
        plain["tolerance"] = float(plain["tolerance"]).hex()
    return {"columns": 3, "classes": 2, "script": plain}


def program(text: str, **changes: Any) -> dict[str, Any]:
    """Return a program without distributions, whose entry no other test has."""
    files = {ENTRY: text, "lock.txt": ""}
    return config(script(text, **{"files": files, "entry": ENTRY, **changes}))


def left() -> list[str]:
    """Return the command lines of this test's processes that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            command = (path / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if ENTRY in command or ("programs.child" in command and parent == str(os.getpid())):
            found.append(command)
    return found


def test_a_program_sees_rows_and_seed_in_their_order_and_repeats_its_bytes() -> None:
    file = run.execute_twice(config(script()), ROWS, LIMITS)
    found = load(file)
    oracle = np.linalg.lstsq(ROWS.features, ROWS.labels.astype(float), rcond=None)[0]
    assert np.array_equal(found["weights"], oracle)
    assert found["seed"].tolist() == [7]
    other = FitRows(ROWS.features[1:], ROWS.labels[1:])
    assert run.execute(config(script()), other, LIMITS) != file


BAD = (
    ("while True: pass", "took more than 1 s.*LETHE_FIT_SECONDS"),
    ("import os\nwhile True: os.fork()", "status 1, PermissionError"),
    ("import socket; socket.socket()", "status 1, PermissionError"),
    ("x = bytearray(4 << 30)", "MemoryError.*LETHE_FIT_MEMORY_BYTES"),
    ("open('OUTSIDE/file', 'w')", "Read-only file system: 'OUTSIDE/file'"),
    ("import sys; open(sys.argv[1], 'w')", "PermissionError.*Permission denied"),
    ("import os; os.chmod('OUTSIDE/secret', 0o666)", "status 1, OSError: .*Read-only"),
    ("pass", "it wrote no file"),
    (f"{WRITES}.symlink_to('/etc/hostname')", "no plain file, such as a link"),
    (f"{WRITES}.write_bytes(bytes(2 << 20))", "File too large.*LETHE_FIT_OUTPUT_BYTES"),
    (f"{WRITES}.write_bytes(bytes(2 << 10))", "not a safetensors file"),
)
FURTHER = (  # the same means of isolation, in other ways
    ("while True: print('x' * 999)", "took more than 1 s"),
    ("import time, signal\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)", "than 1 s"),
    ("import os; os.posix_spawn('/bin/true', ['true'], {})", "PermissionError"),
    ("import socket; socket.socket(socket.AF_UNIX)", "status 1, PermissionError"),
    ("print(open('OUTSIDE/secret').read())", "PermissionError"),
    ("import os; os.truncate('OUTSIDE/secret', 0)", "Read-only"),
    ("import os; os.unlink('OUTSIDE/secret')", "Read-only"),
    ("import os; os.chmod('OUTSIDE', 0o777)", "Read-only"),
    ("import os; os.chown('OUTSIDE/secret', -1, os.getgid())", "Read-only"),
    ("import os; os.utime('OUTSIDE/secret', (1, 1))", "Read-only"),
    ("import os; os.setxattr('OUTSIDE/secret', 'user.kept', b'rows')", "Read-only"),
    (
        "import fcntl, struct, sys\nfcntl.fcntl(open(sys.executable), 1036, struct.pack('Q', 3))",
        "PermissionError",
    ),
    ("print(open('/proc/self/environ').read())", "PermissionError"),
    ("import os; os.kill(1, 9)", "PermissionError"),
    ("import numpy", "No module named 'numpy'.*lock file does not name"),
    ("raise SystemExit(3)", "the program ended with status 3"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
    (f"{WRITES}.mkdir()", "no plain file, such as a directory"),
    ("import os, sys; os.mkfifo(sys.argv[2])", "no plain file"),
)


@pytest.mark.parametrize(
    ("text", "said"),
    [*BAD, *(pytest.param(*one, marks=pytest.mark.full) for one in FURTHER)],
)
def test_bad_programs_end_with_a_reason(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    before = [one.stat() for one in (tmp_path, tmp_path / "secret")]
    limits = LIMITS if "than 1 s" not in said else Limits(1, 2 << 30, 1 << 20)
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=f"(?s){said.replace('OUTSIDE', str(tmp_path))}"):
        run.execute(program(text.replace("OUTSIDE", str(tmp_path))), ROWS, limits)
    assert time.monotonic() - begun < 30
    assert left() == []
    assert [one.name for one in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "secret"
    for one, was in zip((tmp_path, tmp_path / "secret"), before, strict=True):
        now = one.stat()
        assert (now.st_mode, now.st_mtime_ns) == (was.st_mode, was.st_mtime_ns)


def test_a_run_finds_nothing_that_the_one_before_set_aside(tmp_path: Path) -> None:
    """Otherwise the judge's run would find it too, and certify stored erased rows as gone."""
    (tmp_path / "note").write_text("")
    text = (
        "import json, os, struct, sys\n"
        f"note = {str(tmp_path / 'note')!r}\n"
        "rows = os.stat(sys.argv[1]).st_size\n"
        "try: os.utime(note, ns=(1, rows))\n"
        "except OSError: pass\n"
        "head = json.dumps({'a': {'dtype': 'I64', 'shape': [1], 'data_offsets': [0, 8]}})\n"
        "data = struct.pack('<Q', len(head)) + head.encode()\n"
        "data += struct.pack('<q', os.stat(note).st_mtime_ns)\n"
        "open(sys.argv[2], 'wb').write(data)\n"
    )
    kept = (tmp_path / "note").stat().st_mtime_ns
    for rows in (ROWS, FitRows(ROWS.features[1:], ROWS.labels[1:])):
        assert load(run.execute(program(text), rows, LIMITS))["a"].tolist() == [kept]


def test_threads_may_be_started_and_scratch_files_written() -> None:
    text = (
        "import sys, threading\n"
        "threads = [threading.Thread(target=print) for _ in range(20)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
        "open('note', 'w').write('x')\n"
        "import json, struct\n"
        "head = json.dumps({'a': {'dtype': 'I8', 'shape': [1], 'data_offsets': [0, 1]}})\n"
        "data = struct.pack('<Q', len(head)) + head.encode() + bytes([len(open('note').read())])\n"
        "open(sys.argv[2], 'wb').write(data)\n"
    )
    assert load(run.execute(program(text), ROWS, LIMITS))["a"].tolist() == [1]


def test_libraries_can_read_the_share_of_processors() -> None:
    """joblib, and so scikit-learn, opens these files if they are there, and fails otherwise."""
    names = ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
    text = (
        "import os\n"
        f"names = [f'/sys/fs/cgroup/{{name}}' for name in {names}]\n"
        "for one in filter(os.path.exists, names): open(one).read()\n"
        "raise SystemExit('all read')\n"
    )
    with pytest.raises(ProgramError, match="status 1: all read"):
        run.execute(program(text), ROWS, LIMITS)


def test_no_message_quotes_a_row() -> None:
    needle = FEATURES[0, 0].tobytes()
    text = f"import sys\nraise ValueError(open(sys.argv[1], 'rb').read().find({needle!r}) > 0)"
    with pytest.raises(ProgramError, match="ValueError: False"):  # of rows that are nobody's
        run.execute(program(text), ROWS, LIMITS)
    only = f"import sys\nif {needle!r} in open(sys.argv[1], 'rb').read(): raise ValueError('x')"
    with pytest.raises(ProgramError, match="status 1, ValueError, but not on made-up rows;"):
        run.execute(program(only), ROWS, LIMITS)
    named = "raise type('Row42', (Exception,), {})('x')"  # a program may make up a name
    with pytest.raises(ProgramError, match="ended with status 1: Row42: x;"):
        run.execute(program(named), ROWS, LIMITS)


MISSING = {
    "unshare": ("user namespaces", "confinement._libc.unshare = lambda *_: -1"),
    "mount": ("mounts", "confinement._libc.mount = lambda *_: -1"),
    "read-only mounts": (
        "mounts",
        "real = confinement._libc.syscall\n"
        "confinement._libc.syscall = lambda n, *a: -1 if n == 442 else real(n, *a)",
    ),
    "landlock": (
        "Landlock",
        "real = confinement._libc.syscall\n"
        "confinement._libc.syscall = lambda n, *a: -1 if n == 446 else real(n, *a)",
    ),
    "old landlock": ("Landlock", "confinement.landlock_abi = lambda: 2"),
    "seccomp": (
        "seccomp",
        "real = confinement._libc.prctl\n"
        "confinement._libc.prctl = lambda n, *a: -1 if n == 22 else real(n, *a)",
    ),
    "no_new_privs": (
        "no_new_privs",
        "real = confinement._libc.prctl\n"
        "confinement._libc.prctl = lambda n, *a: -1 if n == 38 else real(n, *a)",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("unshare", "landlock") else pytest.mark.full)
        for name in MISSING
    ],
)
def test_without_a_piece_of_the_isolation_nothing_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, planted = MISSING[name]
    source = f"from workers.training.isolation import confinement\nfrom workers.training.programs import child\n{planted}\nchild.main()"
    monkeypatch.setattr(run, "CHILD", (sys.executable, "-B", "-c", source))
    with pytest.raises(IsolationError, match=f"{what} is missing.*docs/scripts.md"):
        run.execute(program("raise SystemExit('it ran')"), ROWS, LIMITS)
    assert left() == []


def test_what_the_worker_can_see_at_once_starts_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "CHILD", ("/does/not/exist",))
    for name, planted, what in (
        ("landlock_abi", lambda: 2, "Landlock is missing"),
        ("PLACES", (), "a place to mount is missing"),
        ("PROCESSORS", {}, "a known processor is missing"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(confinement, name, planted)
            with pytest.raises(IsolationError, match=what):
                run.execute(program("pass"), ROWS, LIMITS)


def test_another_environment_than_the_lock_file_runs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "CHILD", ("/does/not/exist",))
    for lock, said in (
        ("numpy==1.0.0\n", r"lock.txt names numpy 1.0.0, which is \d.* on this worker"),
        ("no-such-thing==1\n", "names no-such-thing 1, which is not installed"),
    ):
        files = {ENTRY: "pass", "lock.txt": lock}
        with pytest.raises(OtherEnvironmentError, match=said):
            run.execute(program("", files=files), ROWS, LIMITS)


def test_two_runs_that_differ_need_a_tolerance_of_twice_their_difference() -> None:
    noisy = PLAIN.replace("NOISE", NOISE)
    with pytest.raises(ProgramError, match=r"differ by .*weaker class retrained"):
        run.execute_twice(program(noisy), ROWS, LIMITS)
    assert run.execute_twice(program(noisy, tolerance=1e-3), ROWS, LIMITS)
    with pytest.raises(ProgramError, match="more than half of the tolerance"):
        run.execute_twice(program(noisy, tolerance=1e-15), ROWS, LIMITS)


def test_a_form_that_was_not_registered_is_refused() -> None:
    with pytest.raises(OutputError, match="not a valid ONNX model"):
        run.execute(program(PLAIN.replace("NOISE", "0"), output="onnx"), ROWS, LIMITS)


@pytest.mark.full
def test_a_program_ends_with_its_worker() -> None:
    code = (
        "from tests.workers.training.programs.test_run import LIMITS, ROWS, program, run\n"
        f"import tests.workers.training.programs.test_run as own; own.ENTRY = {ENTRY!r}\n"
        "run.execute(program('import time; time.sleep(60)'), ROWS, LIMITS)"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=run.ROOT)
    try:
        assert soon(lambda: any(f"/{ENTRY}" in one for one in left()))  # the program itself
    finally:
        worker.kill()
        worker.wait()
    assert soon(lambda: not left())


def soon(found: Callable[[], object]) -> bool:
    """Return whether something is found within the time that a busy machine needs."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found():
            return True
        time.sleep(0.1)
    return False
