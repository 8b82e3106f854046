"""The browser that these tests drive: Debian's Chromium, or Google's. `make test-browser` gets it."""

import shutil
from importlib.util import find_spec

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVEN = [  # what each module of these tests is marked with
    pytest.mark.full,
    pytest.mark.skipif(
        PROGRAM is None or find_spec("playwright") is None,
        reason="drives Chromium: make test-browser",
    ),
]
