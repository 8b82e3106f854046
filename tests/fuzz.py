"""Property tests of two sizes: `make coverage` draws a fifth of what `make test-full` draws."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

F = TypeVar("F", bound=Callable[..., Any])
THOROUGH = os.environ.get("LETHE_TEST_SIZE") == "full"


def fuzz(examples: int, **options: Any) -> Callable[[F], F]:
    """Return a decorator in place of `settings`: `examples` in `make test-full`."""
    drawn = examples if THOROUGH else examples // 5

    def decorate(test: F) -> F:
        sized: F = settings(max_examples=drawn, deadline=None, **options)(test)
        marked: F = pytest.mark.thorough(sized)
        return marked

    return decorate
