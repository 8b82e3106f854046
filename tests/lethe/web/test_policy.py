"""Trust policies by both verifiers: the tests of the first, with the second beside it."""

from collections.abc import Iterator

import pytest

from lethe.log.policy import parse_policy
from tests.lethe.log import test_policy
from tests.lethe.log.test_policy import *  # noqa: F403
from tests.lethe.log.test_policy import met as first_met
from tests.lethe.web.second import ask, base64, both, needs_node

pytestmark = needs_node


def met_by_both(text: str, *signed: int) -> bool:
    first = first_met(text, *signed)
    data = base64(text.encode("utf-8", "surrogateescape"))
    assert ask("policy", data=data, signed=list(signed)) is first
    return bool(first)


@pytest.fixture(autouse=True, scope="module")
def _second() -> Iterator[None]:
    def second(data: bytes) -> None:
        ask("policy", data=base64(data), signed=[])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_policy, "parse_policy", both(parse_policy, second))
        patch.setattr(test_policy, "met", met_by_both)
        yield
