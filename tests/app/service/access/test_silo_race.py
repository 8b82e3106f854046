"""A silo's key changes while another process is about to log it: the log keeps the newer one."""

import json
from typing import Any

import pytest

from app.ledger.sequencer import Ledger
from app.service.access import silo_keys
from app.service.access.rotate_silo import revoke_silo, rotate_silo
from app.settings import Settings
from lethe.signing.keys import generate_key, private_pem, public_pem
from tests import small_network
from tests.app.service.access.test_silo_keys import database_url
from tests.installation import Installation, install
from tests.small import pack
from workers.silos import keys

__all__ = ["database_url"]


def register(made: Installation, ref: str) -> Any:
    return made.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(small_network.rows()))},
        data={"manifest": json.dumps(small_network.manifest(ref=ref))},
    )


def test_a_key_revoked_during_a_registration_is_not_named(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with install(settings.model_copy(update={"silos": 1})) as made:
        services = made.services
        key = generate_key("ed25519")
        silo_keys.private_path(made.settings, 0).write_text(private_pem(key))
        silo_keys.public_path(made.settings, 0).write_text(public_pem(key))
        assert register(made, "first").status_code == 201
        old = silo_keys.stored(made.settings)[0]
        new = rotate_silo(made.settings, services.ledger, 0)
        honest = services.committer.submit

        def beside(effect: Any) -> Any:
            assert revoke_silo(made.settings, services.ledger, 0) == old
            return honest(effect)

        with monkeypatch.context() as patch:
            patch.setattr(services.committer, "submit", beside)
            assert register(made, "second").status_code == 201
        for ref in ("first", "second"):
            assert silo_keys.accepted(services, ref) == {0: (new,)}
            assert silo_keys.previous(services.ledger, ref) == {}


def test_a_worker_that_starts_while_its_key_is_replaced_does_not_bring_it_back(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with install(settings.model_copy(update={"silos": 1})) as made:
        services, honest = made.services, silo_keys.networks
        keys.register(made.settings, 0)
        assert register(made, "m").status_code == 201
        new: list[str] = []

        def replaced(ledger: Ledger) -> list[str]:
            monkeypatch.setattr(silo_keys, "networks", honest)
            new.append(rotate_silo(made.settings, ledger, 0))
            revoke_silo(made.settings, ledger, 0)
            return honest(ledger)

        monkeypatch.setattr(silo_keys, "networks", replaced)
        silo_keys.renew(services, [0])
        assert silo_keys.accepted(services, "m") == {0: (new[0],)}


def test_a_first_key_that_is_rotated_before_it_is_logged_is_not_logged_after_it(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with install(settings.model_copy(update={"silos": 1})) as made:
        services, honest = made.services, silo_keys.revoked
        assert register(made, "m").status_code == 201  # its silo has not started yet
        keys.register(made.settings, 0)
        old = silo_keys.stored(made.settings)[0]
        new: list[str] = []

        def rotated(ledger: Ledger) -> set[tuple[int, str]]:
            monkeypatch.setattr(silo_keys, "revoked", honest)
            new.append(rotate_silo(made.settings, ledger, 0))
            return honest(ledger)

        monkeypatch.setattr(silo_keys, "revoked", rotated)
        assert silo_keys.accepted(services, "m") == {0: (new[0], old)}


@pytest.mark.parametrize("how", ["pinned", "renew"])
def test_a_key_revoked_while_another_process_logs_it_is_not_the_last(
    how: str, settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process has read the key's file by then."""
    with install(settings.model_copy(update={"silos": 1})) as made:
        services = made.services
        assert register(made, "first").status_code == 201
        key = generate_key("ed25519")
        silo_keys.private_path(made.settings, 0).write_text(private_pem(key))
        silo_keys.public_path(made.settings, 0).write_text(public_pem(key))
        honest, changed = services.ledger.transact, list[str]()

        def after_another(*effect: Any, **more: Any) -> Any:
            if not changed:
                changed.append("begun")
                old = silo_keys.stored(made.settings)[0]
                changed.append(rotate_silo(made.settings, services.ledger, 0))
                assert revoke_silo(made.settings, services.ledger, 0) == old
            return honest(*effect, **more)

        monkeypatch.setattr(services.ledger, "transact", after_another)
        if how == "pinned":
            silo_keys.pinned(services, "first")
        else:
            silo_keys.renew(services, [0])
        assert silo_keys.logged(services.ledger, "first") == {0: changed[1]}
        assert silo_keys.accepted(services, "first") == {0: (changed[1],)}
