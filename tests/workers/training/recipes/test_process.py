"""A fit in its own process: equal bytes, and an end to hanging, dying or greedy fits."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.training.recipes import prepared, process
from workers.training.recipes.files import decode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here
from workers.training.recipes.process import FitError, Limits, fit, try_twice
from workers.training.recipes.recipe import Recipe, RecipeStep

LIMITS = Limits(seconds=120, memory=4 << 30)
PROCESSES = Path("/proc")
FOREST = "sklearn.ensemble.RandomForestClassifier"
rng = np.random.default_rng(0)
FEATURES = rng.normal(size=(300, 4))
ROWS = FitRows(FEATURES, (FEATURES[:, 0] > 0).astype(np.int64))


def one(name: str, **parameters: object) -> Recipe:
    return Recipe((RecipeStep(name, parameters),), 0, None)


def children(parent: int | None = None) -> list[str]:
    """Return the processes of fits that run now, of this process or of its templates."""
    found, templates = [], []
    own = str(parent or os.getpid())
    listed = [(path.name, *_parent_and_command(path)) for path in PROCESSES.glob("[0-9]*")]
    for pid, above, command in listed:
        if above == own and b"recipes.template" in command:
            templates.append(pid)
    for pid, above, command in listed:
        started = above == own and b"recipes.child" in command
        if started or (above in templates and b"recipes.template" in command):
            found.append(pid)
    return found


def inside(outer: list[str]) -> list[str]:
    """Return the processes that fit: the first ones of the namespaces that others wait for."""
    listed = [(path.name, *_parent_and_command(path)) for path in PROCESSES.glob("[0-9]*")]
    return [pid for pid, above, _ in listed if above in outer]


def _parent_and_command(path: Path) -> tuple[str, bytes]:
    try:
        parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
        return parent, (path / "cmdline").read_bytes()
    except OSError:
        return "", b""


WAYS = pytest.mark.parametrize("way", ["forked", "started"], indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a fit's process starts: both ways have the same limits and outcomes."""
    if request.param == "started":
        monkeypatch.delattr(os, "pidfd_open")
    return str(request.param)


@WAYS
def test_the_bytes_are_those_of_a_fit_here(way: str) -> None:
    recipe = one(FOREST, n_estimators=5)
    assert try_twice(recipe, ROWS, LIMITS) == fit_here(recipe, ROWS, 1)
    assert children() == []


def test_another_process_predicts_by_the_file() -> None:
    file = fit_here(one(FOREST, n_estimators=5), ROWS, 1)
    found = process.predict(file, FEATURES, LIMITS)
    assert np.array_equal(found, decode(file).predict(FEATURES))
    with pytest.raises(RefusedError):
        process.predict(file[:-1], FEATURES, LIMITS)
    assert children() == []


@WAYS
@pytest.mark.parametrize(
    ("recipe", "limits", "said"),
    [
        (
            one(FOREST, n_estimators=10**6),
            Limits(2, 4 << 30),
            "more than 2 s.*LETHE_FIT_SECONDS",
        ),
        (
            one("sklearn.preprocessing.PolynomialFeatures", degree=30),
            Limits(120, 2 << 30),
            "LETHE_FIT_MEMORY_BYTES",
        ),
        (one("sklearn.naive_bayes.MultinomialNB"), LIMITS, "Negative values in data"),
        (one("xgboost.XGBClassifier", max_depth="deep"), LIMITS, "max_depth"),
    ],
    ids=["hangs", "memory", "rows", "parameter"],
)
def test_what_fails_ends_and_says_why(
    recipe: Recipe, limits: Limits, said: str, way: str
) -> None:
    if recipe.steps[0].estimator.endswith("PolynomialFeatures"):
        recipe = Recipe((*recipe.steps, RecipeStep(FOREST, {})), 0, None)
        rows = FitRows(np.resize(FEATURES, (3000, 8)), np.resize(ROWS.labels, 3000))
    else:
        rows = ROWS
    begun = time.monotonic()
    with pytest.raises(FitError, match=said):
        fit(recipe, rows, 1, limits)
    assert time.monotonic() - begun < 60
    assert children() == []


def test_a_parameter_is_refused_by_its_name() -> None:
    with pytest.raises(RefusedError, match="trees of"):
        fit(one(FOREST, trees=3), ROWS, 1, LIMITS)


def test_a_message_quotes_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = b'-{"error": "ValueError"}'
    monkeypatch.setattr(prepared, "answer", lambda *_: (refused, 0))
    with pytest.raises(FitError, match=r"\(ValueError, but not on made-up rows\)"):
        fit(one(FOREST), ROWS, 1, LIMITS)


def test_a_process_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(process, "sys", type("Sys", (), {"executable": "/bin/false"}))
    with pytest.raises(FitError, match=r"died \(status 1\)"):
        fit(one(FOREST), ROWS, 1, LIMITS)


def planted(monkeypatch: pytest.MonkeyPatch, *answers: bytes) -> list[int]:
    """Make fits answer these bytes in turn; return the list of their threads."""
    left, asked = list(answers), []

    def answer(recipe: Recipe, table: FitRows, threads: int, limits: Limits) -> bytes:
        asked.append(threads)
        return left.pop(0)

    monkeypatch.setattr(process, "fit", answer)
    return asked


def test_bytes_that_depend_on_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    most = process.threads_of(one(FOREST))
    asked = planted(monkeypatch, b"a", b"b", b"a")
    with pytest.raises(FitError, match='add "threads": 1'):
        try_twice(one(FOREST), ROWS, LIMITS)
    assert asked == [1, most, 1]


def test_bytes_that_chance_decides_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, b"a", b"b", b"c")
    with pytest.raises(FitError, match="choose other parameters"):
        try_twice(one(FOREST), ROWS, LIMITS)
    planted(monkeypatch, b"a", b"b")
    with pytest.raises(FitError, match="choose other parameters"):
        try_twice(Recipe(one(FOREST).steps, 0, 1), ROWS, LIMITS)


def test_a_fit_dies_with_the_process_that_asked_for_it() -> None:
    code = (
        "import numpy as np, sys\n"
        "from workers.training.recipes.process import *\n"
        "from workers.training.recipes.recipe import RecipeStep\n"
        f"recipe = Recipe((RecipeStep({FOREST!r}, {{'n_estimators': 10**6}}),), 0, None)\n"
        "fit(recipe, FitRows(np.ones((500, 4)), np.arange(500) % 2), 1, Limits(300, 4 << 30))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    found: list[str] = []
    while not found:
        found = inside(children(parent.pid))
        assert parent.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while _command(found[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _command(found[0])


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("planted", "outcome"),
    [
        ("", "PermissionError PermissionError OSError"),
        ("confinement._libc.unshare = lambda *_: -1", "socket read OSError"),
    ],
)
def test_a_fit_gives_up_network_and_files_where_the_machine_allows_it(
    planted: str, outcome: str, tmp_path: Path
) -> None:
    """On other machines it still runs, and still writes no file. Data may be in a prefix."""
    (tmp_path / "secret").write_text("x")
    code = f"""
import resource, socket, sys
from workers.training.isolation import confinement
from workers.training.recipes import child
{planted}
sys.prefix = {str(tmp_path)!r}
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
child._confine(4 << 30)
import numpy
def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return None
print(
    tried(socket.socket) or "socket",
    tried(lambda: open({str(tmp_path / "secret")!r}).read()) or "read",
    tried(lambda: open({str(tmp_path / "file")!r}, "w", buffering=1).write("x\\n")) or "written",
)
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=process.ROOT,
    )
    assert found.stdout.strip() == outcome


@WAYS
def test_a_forked_fit_is_kept_in_as_a_started_one(way: str) -> None:
    """It has imported libraries with threads of their own, and has to leave them behind."""
    said: list[str] = []

    def hang() -> None:
        try:
            fit(one(FOREST, n_estimators=10**6), ROWS, 2, Limits(6, 4 << 30))
        except FitError as error:
            said.append(str(error))

    thread = threading.Thread(target=hang)
    thread.start()
    seen: set[tuple[str, ...]] = set()
    names = ("Seccomp:", "NoNewPrivs:", "network")
    alone = {"Seccomp:": "2", "NoNewPrivs:": "1", "network": "other"}
    while thread.is_alive() and tuple(alone.values()) not in seen:
        for pid in inside(children()):
            found = _confined(pid)
            seen.add(tuple(found.get(name, "") for name in names))
        time.sleep(0.05)
    thread.join()
    assert tuple(alone.values()) in seen, seen
    assert "more than 6 s" in said[0]
    assert children() == []


def _confined(pid: str) -> dict[str, str]:
    """Return the kernel's status of a process."""
    try:
        lines = (PROCESSES / pid / "status").read_text().splitlines()
        network = (PROCESSES / pid / "ns/net").readlink()
    except OSError:
        return {}
    found = dict(line.split()[:2] for line in lines if len(line.split()) > 1)
    same = network == (PROCESSES / "self/ns/net").readlink()
    return {**found, "network": "same" if same else "other"}
