"""`make test` runs tests that together reach most of what all reach, in bounded time."""

from tests.quick import chosen
from tests.sizes import QUICK

SECONDS = {"slow": 9.0, "a": 1.0, "b": 1.0, "both": 1.5, "none": 0.1}
REACHED = {
    "slow": {"m.py": 0b1111},
    "a": {"m.py": 0b0001},
    "b": {"m.py": 0b0010, "n.py": 0b1},
    "both": {"m.py": 0b0111},
    "none": {"m.py": 0b0001},
}


def test_the_fastest_that_reach_all_are_chosen() -> None:
    assert chosen(REACHED, SECONDS, 100) == ["b", "slow"]


def test_what_takes_too_long_is_left_out() -> None:
    assert chosen(REACHED, SECONDS, 5) == ["b", "both"]
    assert chosen(REACHED, SECONDS, 1) == ["none"]


def test_the_list_has_tests_of_each_package() -> None:
    rooms = {"/".join(name.split("/")[:2]) for name in QUICK}
    assert rooms >= {"tests/lethe", "tests/app", "tests/workers", "tests/migrations"}
