"""A soak finds nothing in the product, and finds what leaks, is lost or dies on purpose."""

import json
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col, delete

from benchmarks.soak import __main__ as soak
from benchmarks.soak import report
from benchmarks.soak.growth import LOGGED, Sample, trends
from benchmarks.soak.load import Load
from benchmarks.soak.service import LASTING, Service
from benchmarks.soundness.report import BEGIN, END
from models import ErasureRequest, Tombstone
from models.database.session import opened_engine

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"
SECONDS = 8.0


def samples(value: Callable[[int], float], name: str = "api memory MiB") -> list[Sample]:
    """Return twenty samples of one value, ten log entries apart."""
    return [Sample(30.0 * n, 10 * n, {name: value(n)}) for n in range(20)]


@pytest.mark.parametrize(
    ("value", "grown"),
    [
        (lambda n: 100.0 + n % 3, False),
        (lambda n: 100.0 if n < 5 else 150.0, False),  # warm-up
        (lambda n: 100.0 + 2 * n, True),
        (lambda n: 100.0 if n < 15 else 130.0, True),
    ],
)
def test_what_rises_after_the_warm_up_has_grown(
    value: Callable[[int], float], grown: bool
) -> None:
    assert [one.grown for one in trends(samples(value))] == [grown]


@pytest.mark.parametrize(
    ("value", "grown"), [(lambda n: 50.0 * n, False), (lambda n: 3.0 * n * n, True)]
)
def test_what_the_log_needs_grows_as_the_log_does(
    value: Callable[[int], float], grown: bool
) -> None:
    name = "rows of certificates"
    assert name in LOGGED
    assert [one.grown for one in trends(samples(value, name))] == [grown]


def test_ten_files_that_stay_open_have_grown() -> None:
    leak = samples(lambda n: 25.0 + n, "api open files")
    assert [one.grown for one in trends(leak)] == [True]


def test_a_value_that_appears_late_has_grown() -> None:
    late = samples(lambda _: 1.0)
    leaked = {"data/leaked files": 30.0}
    late[-5:] = [replace(one, held={**one.held, **leaked}) for one in late[-5:]]
    assert [one.name for one in trends(late) if one.grown] == ["data/leaked files"]


def test_few_samples_show_no_growth() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        trends(samples(lambda _: 1.0)[:7])


def test_a_short_soak_loses_nothing_and_kills(tmp_path: Path) -> None:
    service = Service(tmp_path, {})
    found = soak.run(service, SECONDS, rate=2.0, kill_s=3.0)
    assert {name: found[name] for name in report.VERDICT if name != "grown"} == {
        "lost": [], "duplicated": [], "stuck": [], "fsck_failures": [], "wrong": [], "ended": []
    }  # fmt: skip
    assert found["kills"] > 0
    assert found["done"]["certified"] > 3
    assert found["done"]["readings"] > 0


def test_what_leaks_is_lost_or_dies_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path, {})
    run = Load.run

    def break_things(load: Load, seconds: float) -> None:
        leaking = threading.Event()

        def leak() -> None:
            number = 0
            while not leaking.wait(SECONDS / 100):
                number += 1
                (service.data / "artifacts" / f"left-{number}").write_bytes(b"x")

        thread = threading.Thread(target=leak)
        thread.start()
        service.running["worker", LASTING].send_signal(signal.SIGKILL)
        run(load, seconds)
        leaking.set()
        thread.join()
        url = f"sqlite:///{service.data / 'lethe.db'}"
        first = next(value[0] for kind, value in load.told if kind == "request")
        with opened_engine(url) as engine, engine.begin() as connection:
            one = col(ErasureRequest.id) == first
            connection.execute(update(ErasureRequest).where(one).values(state="executing"))
            connection.execute(delete(Tombstone))
        load.told.append(("model", "a model that nobody registered"))

    monkeypatch.setattr(Load, "run", break_things)
    found = soak.run(service, SECONDS, rate=2.0, kill_s=60.0)
    assert "data/artifacts files" in found["grown"]
    assert found["ended"] == [f"worker ({LASTING}) ended with -9"]
    assert found["lost"] == [
        "model: the log has no registration of a model that nobody registered"
    ]
    assert found["stuck"] == ["1 requests are executing"]
    assert found["fsck_failures"]


def test_the_page_is_what_the_file_says() -> None:
    known = json.loads((PAGES / report.FILE).read_text())
    page = (PAGES / report.PAGE).read_text()
    between = page.partition(BEGIN)[2].partition(END)[0]
    assert between == f"\n\n{report.render(known)}\n"
    for found in known.values():
        assert {name: found[name] for name in report.VERDICT} == {
            name: [] for name in report.VERDICT
        }


def test_a_new_soak_leaves_the_other_on_the_page(tmp_path: Path) -> None:
    (tmp_path / report.PAGE).write_text(f"# Soak\n\nProse.\n\n{BEGIN}\n{END}\n")
    for on in ("servers", "files"):
        report.renew(tmp_path, on, made_up())
    page = (tmp_path / report.PAGE).read_text()
    assert "Prose." in page
    assert page.index(report.PLACES["files"]) < page.index(report.PLACES["servers"])
    assert (tmp_path / report.FIGURE.format("files")).exists()


def made_up() -> dict[str, Any]:
    """Return a report as `run` returns it."""
    seen = samples(lambda n: 100.0 + n)
    return {
        "machine": {"python": "Python"}, "seconds": 600, "entries": 200, "kills": 3,
        "done": {"certified": 5}, **{name: [] for name in report.VERDICT},
        "trends": [asdict(one) for one in trends(seen)],
        "samples": [asdict(one) for one in seen],
    }  # fmt: skip
