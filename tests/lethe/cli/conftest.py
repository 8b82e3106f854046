"""One certificate, and the files that come with it."""

from pathlib import Path

import pytest

from tests.lethe.certificates.build import Certified, Office


@pytest.fixture(scope="package")
def certified() -> Certified:
    return Office().certify()


@pytest.fixture
def files(certified: Certified, tmp_path: Path) -> Path:
    certified.write(tmp_path)
    return tmp_path
