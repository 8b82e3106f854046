"""The service's report: which change of a ratio fails, what a page holds, and what it must not."""

import getpass
import json
import platform
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.service import report
from benchmarks.service.__main__ import Part, resumed, source_digest
from benchmarks.soundness.report import BEGIN, END
from tests.docs.markdown import REPOSITORY

RUN: dict[str, Any] = {
    "quick": True,
    "machine": {"processor": "Some CPU, 2 cores"},
    "submission_ratio_sqlite": 0.5,
    "submission_ratio_sqlite_rounds": [0.49, 0.5, 0.51],
    "submissions_per_second_sqlite": 50.0,
    "bare_per_second_sqlite": 100.0,
    "verify_start_ratio": 2.0,
    "verify_start_ratio_rounds": [1.8, 2.0, 2.2],
    "artifact_unlink_growth": 1.0,
}


def failed(changes: dict[str, Any], committed: dict[str, Any] | None = None) -> set[str]:
    compared = report.compare(committed or RUN, {**RUN, **changes})
    return {one.name for one in compared if one.failed}


def test_an_equal_run_passes() -> None:
    assert failed({}) == set()
    assert len(report.compare(RUN, RUN)) == 3


@pytest.mark.parametrize(
    ("name", "fine", "bad"),
    [
        ("submission_ratio_sqlite", 0.46, 0.44),  # higher is better; at least 10 %
        ("verify_start_ratio", 3.1, 3.5),  # lower is better; both runs spread by 20 %
        ("artifact_unlink_growth", 1.3, 1.4),  # measured once
    ],
)
def test_worse_beyond_noise_fails_and_within_passes(name: str, fine: float, bad: float) -> None:
    assert failed({name: fine}) == set()
    assert failed({name: bad}) == {name}


def test_better_never_fails() -> None:
    better = {"submission_ratio_sqlite": 5.0, "verify_start_ratio": 0.2}
    assert failed(better) == set()


def test_a_noisy_run_is_given_more_room() -> None:
    rounds = [0.3, 0.44, 0.55]
    worse = {"submission_ratio_sqlite": 0.44, "submission_ratio_sqlite_rounds": rounds}
    assert failed(worse) == set()


def test_a_quick_run_is_compared_with_the_quick_run_of_a_full_one() -> None:
    full = {**RUN, "quick": False, "submission_ratio_sqlite": 0.9, "quick_run": RUN}
    assert failed({}, full) == set()
    assert failed({"quick": False}, full) == {"submission_ratio_sqlite"}


def test_a_ratio_that_is_gone_is_named() -> None:
    fresh = {name: value for name, value in RUN.items() if name != "verify_start_ratio"}
    with pytest.raises(ValueError, match="verify_start_ratio"):
        report.compare(RUN, fresh)


@pytest.mark.parametrize("name", ["other_ratio", "some_share_of_it", "x_growth_2m"])
def test_a_ratio_that_nobody_described_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        report.compare({**RUN, name: 1.0}, RUN)


def test_the_command_returns_whether_one_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("committed.json", "fresh.json")]
    files[0].write_text(json.dumps(RUN))
    files[1].write_text(json.dumps({**RUN, "verify_start_ratio": 9.0}))
    assert report.main(["check", *map(str, files)]) == 1
    assert "WORSE" in capsys.readouterr().out
    assert report.main(["check", str(files[0]), str(files[0])]) == 0


def test_the_page_keeps_its_prose_and_has_ratios_machine_and_figures(tmp_path: Path) -> None:
    page = tmp_path / "service.md"
    page.write_text(f"# Service\n\nprose\n\n{BEGIN}\nold\n{END}\nafter\n")
    (tmp_path / "service-flame-bare.svg").write_text("<svg/>")
    report.write_page(RUN, page)
    text = page.read_text()
    assert "prose" in text
    assert text.endswith("after\n")
    assert "old" not in text
    assert "Some CPU, 2 cores" in text
    assert (
        "| `submission_ratio_sqlite` | submissions to bare inserts, SQLite | 0.500 | ±2.0%"
        in text
    )
    assert "(service-submissions.svg)" in text
    assert "(service-flame-bare.svg)" in text
    assert "service-startup.svg" not in text  # nothing was measured of it
    first = (tmp_path / "service-submissions.svg").read_bytes()
    report.write_page(RUN, page)
    assert page.read_text() == text
    assert (tmp_path / "service-submissions.svg").read_bytes() == first


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "service.md"
    page.write_text("# Service\n")
    with pytest.raises(ValueError, match="markers"):
        report.write_page(RUN, page)


def test_the_machine_is_described_without_names_and_paths() -> None:
    described = " ".join(report.machine().values())
    assert "Python" in described
    assert "fastapi" in described
    for private in (platform.node(), getpass.getuser(), str(REPOSITORY)):
        assert not re.search(rf"\b{re.escape(private)}\b", described)


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    ran: list[str] = []
    kept = tmp_path / "build" / "full.json"

    def part(name: str, *, fails: bool = False) -> Part:
        def measure(folder: Path) -> dict[str, Any]:
            assert list(folder.iterdir()) == []
            ran.append(name)
            if fails:
                raise KeyboardInterrupt
            return {f"{name}_seconds": 0.1 + 0.2}

        return measure

    broken = {"a": part("a"), "b": part("b", fails=True)}
    with pytest.raises(KeyboardInterrupt):
        resumed({"quick": False}, broken, kept)
    whole = {"a": part("a"), "b": part("b")}
    found = resumed({"quick": False}, whole, kept)
    assert found == {"quick": False, "a_seconds": 0.1 + 0.2, "b_seconds": 0.1 + 0.2}
    assert ran == ["a", "b", "b"]
    assert not kept.exists()
    # Of another machine or other sizes nothing is taken.
    with pytest.raises(KeyboardInterrupt):
        resumed({"quick": False}, broken, kept)
    ran.clear()
    resumed({"quick": True}, whole, kept)
    assert ran == ["a", "b"]


def test_other_source_has_another_digest(tmp_path: Path) -> None:
    (tmp_path / "lethe").mkdir()
    digests = set()
    for content in ("a = 1\n", "a = 2\n"):
        (tmp_path / "lethe" / "a.py").write_text(content)
        digests.add(source_digest(tmp_path))
    (tmp_path / "lethe" / "a.py").rename(tmp_path / "lethe" / "b.py")
    digests.add(source_digest(tmp_path))
    assert len(digests) == 3
