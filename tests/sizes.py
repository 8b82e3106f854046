"""Which tests `make test` leaves to `make test-full`, and why nothing is lost by it.

`make test` is what a newcomer runs, and has everything that protects correctness. `.ci/run` runs
both.
"""

import pytest

# Rooms and files, each with what of it `make test` still covers.
FULL = {
    "tests/benchmarks": "benchmarks are not the product",
    "tests/e2e": "processes over HTTP and SIGKILL; tests/faults stops at the same steps",
    "tests/faults/test_networks.py": "test_in_process.py stops at every step of a ridge head",
    "tests/interop": "certificates read by other tools; vectors of others are in tests/vectors",
    "tests/packaging/test_base_install.py": "installs; what imports what is in import-linter",
    "tests/packaging/test_compose.py": "starts all services",
    "tests/packaging/test_dockerfile.py": "installs and starts both images",
    "tests/workers/demo": "demonstrations; their parts are tested in their rooms",
}
# Here a difference between databases is the point: locks, leases, triggers, grants.
BOTH_DATABASES = ("tests/app/ledger", "tests/migrations", "tests/models")


def is_full(item: pytest.Item) -> bool:
    """Return whether only `make test-full` runs a test."""
    if item.nodeid.startswith(tuple(FULL)):
        return True
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    second = any(isinstance(one, str) and one == "postgresql" for one in given)
    return second and not item.nodeid.startswith(BOTH_DATABASES)
