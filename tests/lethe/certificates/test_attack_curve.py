"""The value of `ATTACK:roc`: read and written by the same rules, and nothing else is a curve."""

import pytest

from lethe.certificates.attack_curve import MOST, AttackCurve, parse, spelled, summary

CURVE = AttackCurve(
    40, 50, ((0, 0), (3, 1), (50, 40)), ((0, 0), (0, 30), (50, 40)), ("0.2093", "0.2341")
)
GOOD = spelled(CURVE)


def test_what_is_written_is_read() -> None:
    assert parse(GOOD) == CURVE
    assert CURVE.rates(CURVE.after) == ((0.0, 0.0), (0.06, 0.025), (1.0, 1.0))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("3/1", "51/1"),  # more rows than there are
        ("3/1", "3/41"),
        ("3/1", "03/1"),
        ("3/1", "0/0"),  # twice the same
        ("after 0/0", "after 1/0"),
        ("50/40; band", "49/40; band"),
        ("3/1", "-3/1"),
        ("3/1 ", "3/1  "),
        ("0.2093", "nan"),
        ("0.2093", "0.2.3"),
        ("0.2093", "99"),
        ("40 forget", "0 forget"),
        ("40 forget", "\u0664\u0660 forget"),
        ("at 95 %", "at 50 %"),
        ("before", "during"),
    ],
)
def test_what_is_no_curve_is_none(old: str, new: str) -> None:
    assert parse(GOOD.replace(old, new, 1)) is None
    for other in ("", "0.5131 (40 forget, 40 unseen rows)", f"{GOOD} ", GOOD[1:]):
        assert parse(other) is None


def test_a_line_for_people_has_no_points() -> None:
    assert summary(GOOD).startswith("3 points on 40 forget and 50 unseen rows, band of ±0.2093")
    assert "3/1" not in summary(GOOD)
    assert summary("0.5131 (3/1)") == "0.5131 (3/1)"


def test_a_curve_has_a_bounded_number_of_points() -> None:
    many = tuple((number, number) for number in range(MOST))
    end = (MOST - 1, MOST - 1)
    assert parse(spelled(AttackCurve(*end, many, many, ("0.1", "0.1")))) is not None
    more = (*many, (MOST, MOST))
    assert parse(spelled(AttackCurve(MOST, MOST, more, more, ("0.1", "0.1")))) is None


def test_the_band_holds_the_curve_and_stays_in_the_square() -> None:
    lower, upper = CURVE.band(CURVE.after)
    assert lower[0] == upper[0] == (0.0, 0.0)
    assert lower[-1][0] == upper[-1][0] == 1.0
    for edge in (lower, upper):
        assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in edge)
        assert list(edge) == sorted(edge)
    at_zero = upper[2]  # the first step begins left of the square
    assert at_zero[0] == 0.0
    assert at_zero[1] == pytest.approx(0.025 + 0.2341)


@pytest.mark.parametrize("points", ["0/01/15/5", "1" + "/111" * 200 + "/1"])
def test_points_that_run_into_one_another_are_none(points: str) -> None:
    """Nor are they tried in all ways in which their digits could be divided."""
    for value in (GOOD.replace("0/0 3/1 50/40", points), GOOD.replace("0/0 3/1", f"{points}!")):
        assert points in value
        assert parse(value) is None
        assert summary(value) == value
