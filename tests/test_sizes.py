"""What is left out of `make test` is there, under the name that `tests/sizes.py` has."""

from pathlib import Path

import pytest

from tests.sizes import BOTH_DATABASES, EVERY_CASE_ON_BOTH, FULL, ONE_CASE

REPOSITORY = Path(__file__).parent.parent


@pytest.mark.parametrize("name", [*FULL, *ONE_CASE, *BOTH_DATABASES, *EVERY_CASE_ON_BOTH])
def test_every_entry_names_a_test(name: str) -> None:
    path, _, function = name.partition("::")
    place = REPOSITORY / path
    assert place.exists()
    if function:
        assert f"\ndef {function}(" in place.read_text()


def test_only_tests_with_cases_have_a_first_case() -> None:
    for name in ONE_CASE:
        path, _, function = name.partition("::")
        before = (REPOSITORY / path).read_text().partition(f"\ndef {function}(")[0]
        assert "@pytest.mark.parametrize" in before.rpartition("\n\n\n")[2], name
