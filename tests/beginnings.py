"""Installations that a test may begin with a copy of.

Making keys, registering, fitting and the first masked round take longer than most of what is
tested after them. So a test worker makes each beginning once on each kind of database. What
tests share is files that nothing has open, keys and rows; each test writes into its own copy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.ledger.startup import init_log
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from models.database.session import make_engine
from tests.installation import Installation, install
from tests.remote import Remote
from tests.workers.secure_sum.client.federation import Masked


def fit(installation: Installation) -> PrivateKey:
    """Register a requester's key and the small model, and fit it; returns the key."""
    installation.ready()
    return installation.caller.key


def certify(installation: Installation) -> PrivateKey:
    """Have record r1 erased of the fitted model; returns the requester's key."""
    key = fit(installation)
    assert installation.caller.erase_records("r1").status_code == 202
    installation.drain()
    return key


def contribute(installation: Installation) -> Remote:
    """Register five clients' keys and a model without rows, and learn their statistics."""
    remote = Remote(installation)
    remote.register()
    remote.contribute_all()
    return remote


def enrol(installation: Installation) -> Masked:
    """Register five clients' keys and a masked model that learned nothing yet."""
    return Masked(installation)


def teach(installation: Installation) -> Masked:
    """Let the masked model learn all rows of four of the clients, in one round."""
    masked = Masked(installation)
    round_id = masked.round("c0", "c1", "c2", "c3")
    assert masked.view(round_id)["state"] == "done", masked.view(round_id)
    return masked


BEGUN = "begun"  # keys and an empty log: where `ledger` begins without any of the others

# A test that asks for a fixture of one of these names begins there.
BEGINNINGS: dict[str, Callable[[Installation], Any]] = {
    "fitted": fit,
    "with_certificate": certify,
    "contributed": contribute,
    "enrolled": enrol,
    "taught": teach,
}


def beginning(request: pytest.FixtureRequest) -> str | None:
    """Return the name of the beginning that a test asks for; None if it asks for no ledger."""
    found = [name for name in BEGINNINGS if name in request.fixturenames]
    assert len(found) <= 1, f"a test has one beginning, not {found}"
    if found:
        return found[0]
    return BEGUN if "ledger" in request.fixturenames else None


@dataclass(frozen=True)
class Original:
    """What is copied: a database and a data directory, closed; and what the maker returned."""

    database_url: str
    data_dir: Path
    made: Any


class Originals:
    """The beginnings on one kind of database, each made when it is first asked for."""

    def __init__(self, origin: str, directory: Path, fresh: Callable[[str], str]) -> None:
        self._origin, self._directory, self._fresh = origin, directory, fresh
        self._made: dict[str, Original] = {}

    def of(self, name: str) -> Original:
        """Return a beginning, by its name."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Original:
        url, data_dir = self._fresh(name), self._directory / name
        settings = Settings(
            database_url=url, data_dir=data_dir, origin=self._origin, decide="at-once"
        )
        engine = make_engine(url)
        init_log(settings, engine)
        engine.dispose()
        made = None
        if name != BEGUN:
            with install(settings) as installation:
                made = BEGINNINGS[name](installation)
        # SQLite removes it when all have closed: until then the file is not the whole database.
        assert not Path(f"{engine.url.database}-wal").exists()
        return Original(url, data_dir, made)
