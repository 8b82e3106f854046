"""Geometry of plots: where values lie, and what is not drawn."""

import pytest

from app.console import plots
from lethe.certificates.statement import CheckPart


def check(value: str, interval: tuple[str, str] | None, threshold: str | None) -> CheckPart:
    return CheckPart(1, "yeom:auc", "AUC", value, interval, threshold, True)


def test_a_line_rises_with_its_values() -> None:
    line = plots.line([("0", "0.5"), ("1", "0.75"), ("2", "no number"), ("3", "0.9")])
    assert line is not None
    assert [one.label for one in line.points] == ["0", "1", "3"]
    heights = [one.y for one in line.points]
    assert heights == sorted(heights, reverse=True)
    assert line.points[0].x == plots.LEFT
    assert line.points[-1].x == plots.WIDTH - plots.RIGHT
    assert line.path.count(",") == 3
    assert float(line.ticks[-1].label) <= 1


@pytest.mark.parametrize("values", [[], [("0", "1")], [("0", "x"), ("1", "nan"), ("2", "inf")]])
def test_less_than_two_numbers_are_no_line(values: list[tuple[str, str]]) -> None:
    assert plots.line(values) is None


def test_equal_values_are_drawn_in_the_middle() -> None:
    line = plots.line([("0", "3"), ("1", "3")])
    assert line is not None
    assert line.points[0].y == line.points[1].y == line.ticks[1].y


@pytest.mark.parametrize(
    ("threshold", "limits"),
    [
        ("between 0.4 and 0.6", 2),
        ("below 0.05 where at most 0.01 of non-members are flagged", 1),
        ("0.25", 1),
        ("equal to SHA-256 3f", 0),
        (None, 0),
    ],
)
def test_an_interval_is_drawn_with_its_limits(threshold: str | None, limits: int) -> None:
    found = plots.interval(check("0.5", ("0.45", "0.55"), threshold))
    assert found is not None
    assert len(found.limits) == limits
    assert found.value is not None
    assert 0 < found.low < found.value < found.high < plots.SPAN
    if threshold == "between 0.4 and 0.6":
        assert found.limits[0] < found.low < found.high < found.limits[1]


@pytest.mark.parametrize("interval", [None, ("x", "1"), ("0", "nan")])
def test_what_is_no_interval_is_not_drawn(interval: tuple[str, str] | None) -> None:
    assert plots.interval(check("0.5", interval, "0.25")) is None
    words = plots.interval(check("low", ("0", "1"), None))
    assert words is not None
    assert words.value is None


@pytest.mark.parametrize("digest", ["87e5e799f2a91258", "2c7cbf04", "12e3", "1234abcd", "5.4f"])
def test_a_digest_is_no_number(digest: str) -> None:
    """`87e5e799…` begins like 87e5 and is drawn nowhere."""
    found = plots.interval(check(f"{digest}ff (SHA-256)", ("0", "8.68E-19"), None))
    assert found is not None
    assert found.value is None


def named(name: str, value: str, interval: tuple[str, str] | None) -> CheckPart:
    return CheckPart(1, name, "AUC", value, interval, None, True)


def test_attacks_are_drawn_before_and_after() -> None:
    checks = [
        named("retained-set", "10", None),
        named("yeom:auc", "0.5131 (40 forget, 40 unseen rows)", ("0.4", "0.6")),
        named("control:yeom", "0.9 (40 forget)", ("0.8", "0.95")),
        named("control:canary", "0.9", ("0.8", "0.95")),
        named("yeom:tail", "0.1", ("0", "0.2")),
        named("lira:auc", "not measured", None),
        named("shokri:auc", "0.7", ("0.8", "0.9")),  # not inside its own interval
        named("song:auc", "1.5", ("0.8", "1.9")),
    ]
    found = plots.attacks(checks)
    assert [(one.name, one.is_after, one.value) for one in found] == [
        ("yeom", False, 0.9),
        ("yeom", True, 0.5131),
    ]
    assert plots.attacks([]) == []
