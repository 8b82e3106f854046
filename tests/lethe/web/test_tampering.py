"""No bit of a file changes unnoticed, and whatever the input holds, both verifiers agree."""

from collections.abc import Iterator

import pytest

from tests.lethe.certificates import build
from tests.lethe.certificates.test_tampering import *  # noqa: F403
from tests.lethe.web.second import needs_node, verify_both

pytestmark = needs_node


@pytest.fixture(autouse=True, scope="module")
def _second() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "verify_certificate", verify_both)
        yield
