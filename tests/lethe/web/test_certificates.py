"""Each test of the verifier in Python, with the verifier in JavaScript beside it."""

from collections.abc import Iterator

import pytest

from tests.lethe.certificates import build
from tests.lethe.certificates.test_verify import *  # noqa: F403
from tests.lethe.web.second import needs_node, verify_both

pytestmark = needs_node


@pytest.fixture(autouse=True, scope="module")
def _second() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "verify_certificate", verify_both)
        yield
