"""The log has each silo's key from its first use on, and a change of it as a change."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.reconcile.model_events import model_events
from app.service.access import silo_keys
from app.service.context import Services, open_services
from app.settings import Settings
from lethe.signing.keys import fingerprint, generate_key, public_pem
from models import Model


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what is logged is read from the leaves."""
    return sqlite_url


@pytest.fixture
def services(settings: Settings, ledger: Ledger) -> Services:
    """Services over two silos without keys, with a network `m` and a ridge head `n`."""
    made = replace(open_services(settings), settings=settings.model_copy(update={"silos": 2}))
    with Session(made.engine) as session:
        for ref, config in (("m", {"family": "network"}), ("n", {})):
            model = Model(
                ref=ref,
                config=config,
                method="retrain",
                classes=[],
                extractor={},
                tombstone_key=b"k",
            )
            session.add(model)
        session.commit()
    return made


Put = Callable[[int], str]


@pytest.fixture
def put(services: Services) -> Put:
    """Register a new key of a silo, over any that is there; returns its digest."""

    def register(silo: int) -> str:
        key = Ed25519PrivateKey.generate()
        path = silo_keys.public_path(services.settings, silo)
        path.write_text(public_pem(key))
        return silo_keys.digest_of(key.public_key())

    return register


def events(services: Services, ref: str = "m") -> list[dict[str, str]]:
    return [dict(leaf.digests) for _, leaf in model_events(services.ledger, ref)]


def test_a_key_is_named_by_what_its_fingerprint_begins() -> None:
    key = Ed25519PrivateKey.generate()
    assert silo_keys.digest_of(key.public_key())[:16] == fingerprint(key)


def test_a_key_is_logged_once_and_no_file_replaces_it(services: Services, put: Put) -> None:
    assert silo_keys.pinned(services, "m") == {}
    first = put(0)
    assert silo_keys.pinned(services, "m") == {0: first}
    swapped, second = put(0), put(1)
    assert silo_keys.stored(services.settings) == {0: swapped, 1: second}
    assert silo_keys.pinned(services, "m") == {0: first, 1: second}
    assert silo_keys.pinned(services, "m") == {0: first, 1: second}
    assert events(services) == [{"silo-0": first}, {"silo-1": second}]


def test_a_silo_that_starts_has_its_key_logged_for_each_network(
    services: Services, put: Put
) -> None:
    first, other = put(0), put(1)
    for _ in range(2):
        silo_keys.renew(services, [0])
    assert events(services) == [{"silo-0": first}]
    assert events(services, "n") == []
    silo_keys.pinned(services, "m")
    again = put(0)
    silo_keys.renew(services, [0, 1])
    assert silo_keys.logged(services.ledger, "m") == {0: again, 1: other}
    assert events(services) == [{"silo-0": first}, {"silo-1": other}, {"silo-0": again}]


@pytest.mark.parametrize("text", ["", public_pem(generate_key("ecdsa-p256-sha256"))])
def test_what_is_no_silos_key_is_not_logged(services: Services, text: str) -> None:
    silo_keys.public_path(services.settings, 0).write_text(text)
    assert silo_keys.pinned(services, "m") == {}
    assert events(services) == []
