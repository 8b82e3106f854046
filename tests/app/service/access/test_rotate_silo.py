"""A silo's key is rotated by command, with an overlap, and each step can be repeated."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli.service_key import service_key
from app.keys.alone import KeysBusyError
from app.ledger.journal import record_model_event
from app.ledger.startup import load_ledger
from app.problems import ConflictError
from app.reconcile.model_events import model_events
from app.service.access import rotate_silo as rotation
from app.service.access import silo_keys
from app.service.access.rotate_silo import revoke_silo, rotate_silo
from app.service.access.silo_keys import SiloSpan
from app.service.context import Services
from lethe.files import sync_directory
from lethe.signing.keys import generate_key, private_pem, public_pem
from tests.app.cli.test_backup import point_at
from tests.app.service.access.test_silo_keys import database_url, events, services

__all__ = ["database_url", "services"]


@pytest.fixture
def first(services: Services) -> str:
    """Give silo 0 a key that the log has; returns its digest."""
    key = generate_key("ed25519")
    silo_keys.private_path(services.settings, 0).write_text(private_pem(key))
    silo_keys.public_path(services.settings, 0).write_text(public_pem(key))
    return silo_keys.pinned(services, "m")[0]


def files(services: Services) -> set[str]:
    return {path.name for path in services.settings.keys_dir.glob("silo-*")}


def entries_at(services: Services) -> list[int]:
    return [index for index, _ in model_events(services.ledger, "m", silo_keys.CHANGED)]


def test_a_key_that_was_revoked_for_a_model_is_accepted_for_none(
    services: Services, first: str
) -> None:
    new = rotate_silo(services.settings, services.ledger, 0)
    said = silo_keys.entries({0: new}, {0: first})
    services.ledger.transact(lambda tx: record_model_event(tx, "other", "model.silos", said))
    assert silo_keys.accepted(services, "other") == {0: (new, first)}
    revoke_silo(services.settings, services.ledger, 0)
    assert silo_keys.accepted(services, "m") == {0: (new,)}
    assert silo_keys.accepted(services, "other") == {0: (new,)}


def test_by_command_with_an_entry_for_each_network(
    services: Services, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(services.settings, monkeypatch)
    monkeypatch.setenv("LETHE_ORIGIN", services.settings.origin)

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(service_key, arguments)

    begun = command("rotate", "silo", "0")
    assert begun.exit_code == 0, (begun.output, begun.exception)
    new = silo_keys.stored(services.settings)[0]
    assert new in begun.output
    assert silo_keys.accepted(services, "m") == {0: (new, first)}
    assert silo_keys.registered(services.settings, services.ledger) == {
        "silo-0": new,
        "previous-silo-0": first,
    }
    again = command("rotate", "silo", "0")
    assert isinstance(again.exception, ConflictError)
    ended = command("revoke", "silo", "0")
    assert ended.exit_code == 0, (ended.output, ended.exception)
    assert first in ended.output
    assert silo_keys.accepted(services, "m") == {0: (new,)}
    assert silo_keys.revoked(services.ledger) == {(0, first)}
    assert events(services) == [
        {"silo-0": first},
        {"silo-0": new, "previous-silo-0": first},
        {"silo-0": new},
    ]
    assert events(services, "n") == []
    assert files(services) == {"silo-0.key", "silo-0.pem"}
    begun_at, rotated_at, ended_at = entries_at(services)
    assert silo_keys.spans(services.ledger) == [
        SiloSpan(0, first, begun_at, rotated_at, ended_at),
        SiloSpan(0, new, rotated_at),
    ]
    listed = [json.loads(line) for line in command("list", "--json").output.splitlines()]
    assert [one for one in listed if one["role"] == "silo 0"] == [
        {
            "role": "silo 0",
            "keyid": key,
            "from_entry": span[0],
            "replaced_at": span[1],
            "revoked_at": span[2],
            "reason": None,
        }
        for key, span in (
            (first, (begun_at, rotated_at, ended_at)),
            (new, (rotated_at, None, None)),
        )
    ]
    assert isinstance(command("revoke", "silo", "0").exception, ConflictError)
    assert isinstance(command("rotate", "silo", "1").exception, ConflictError)


def test_a_revoked_key_is_not_logged_for_a_new_model(services: Services, first: str) -> None:
    path = silo_keys.public_path(services.settings, 0)
    old = path.read_bytes()
    rotate_silo(services.settings, services.ledger, 0)
    revoke_silo(services.settings, services.ledger, 0)
    new = silo_keys.stored(services.settings)[0]
    assert silo_keys.registered(services.settings, services.ledger) == {"silo-0": new}
    path.write_bytes(old)
    assert silo_keys.stored(services.settings) == {0: first}
    assert silo_keys.registered(services.settings, services.ledger) == {}
    silo_keys.renew(services, [0])
    assert silo_keys.logged(services.ledger, "m") == {0: new}


class Killed(BaseException):
    """The process ends here."""


def die_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> None:
    """End the process at the so many-th call of a function of the rotation."""
    honest, calls = getattr(rotation, name), [0]

    def dying(*given: object, **named: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return honest(*given, **named)

    monkeypatch.setattr(rotation, name, dying)


def repeat(run: Callable[[], str], monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    with monkeypatch.context() as patch:
        die_at(patch, name, at)
        with pytest.raises(Killed):
            run()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("write_durably", 1),
        ("record_model_event", 1),
        ("write_durably", 2),
        ("write_durably", 3),
    ],
)
def test_a_killed_rotation_goes_on(
    services: Services, first: str, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    settings, ledger = services.settings, services.ledger
    repeat(lambda: rotate_silo(settings, ledger, 0), monkeypatch, name, call)
    # Its worker, which starts now, signs with the registered key, and that counts.
    silo_keys.renew(services, [0])
    assert silo_keys.stored(settings)[0] == first
    assert first in silo_keys.accepted(services, "m")[0]
    new = rotate_silo(settings, load_ledger(settings, services.engine), 0)
    assert silo_keys.accepted(services, "m") == {0: (new, first)}
    assert silo_keys.stored(settings) == {0: new}


@pytest.mark.parametrize(
    ("name", "call"), [("record_model_event", 1), ("sync_directory", 1), ("read_private", 2)]
)
def test_a_killed_revocation_goes_on(
    services: Services, first: str, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    settings, ledger = services.settings, services.ledger
    new = rotate_silo(settings, ledger, 0)
    repeat(lambda: revoke_silo(settings, ledger, 0), monkeypatch, name, call)
    assert new in silo_keys.accepted(services, "m")[0]
    assert revoke_silo(settings, load_ledger(settings, services.engine), 0) == first
    assert silo_keys.accepted(services, "m") == {0: (new,)}
    assert files(services) == {"silo-0.key", "silo-0.pem"}


def test_a_rotation_begins_after_a_killed_revocation(
    services: Services, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, ledger = services.settings, services.ledger
    second = rotate_silo(settings, ledger, 0)
    repeat(lambda: revoke_silo(settings, ledger, 0), monkeypatch, "read_private", 2)
    third = rotate_silo(settings, ledger, 0)
    assert silo_keys.accepted(services, "m") == {0: (third, second)}
    assert revoke_silo(settings, ledger, 0) == second
    with pytest.raises(ConflictError, match="only one valid key"):
        revoke_silo(settings, ledger, 0)


def test_no_other_rotation_begins_before_a_revocation_has_ended(
    services: Services, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step replaces the key's file: a lock of that file would be another's by then."""
    settings, ledger = services.settings, services.ledger
    second = rotate_silo(settings, ledger, 0)
    honest, tried = sync_directory, list[str]()

    def late(folder: Path) -> None:
        with pytest.raises(KeysBusyError, match="another command changes the keys"):
            rotate_silo(settings, ledger, 0)
        tried.append(folder.name)
        honest(folder)

    monkeypatch.setattr(rotation, "sync_directory", late)
    assert revoke_silo(settings, ledger, 0) == first
    monkeypatch.undo()
    assert len(tried) == 2  # for the public key that went, and the private one that came
    assert silo_keys.accepted(services, "m") == {0: (second,)}
    assert rotate_silo(settings, ledger, 0) != second


def test_a_worker_that_starts_does_not_move_the_key_of_a_rotation_that_has_begun(
    services: Services, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had read the next key of a killed revocation: the silo's own key would be gone."""
    settings, ledger = services.settings, services.ledger
    rotate_silo(settings, ledger, 0)
    repeat(lambda: revoke_silo(settings, ledger, 0), monkeypatch, "read_private", 2)
    honest, done = Path.replace, list[str]()

    def late(path: Path, target: Path) -> Path:
        if path == silo_keys.next_path(settings, 0) and not done:
            done.append("worker")
            # Meanwhile: a rotation that has made its key, and not registered it.
            with suppress(KeysBusyError):
                repeat(
                    lambda: rotate_silo(settings, ledger, 0),
                    monkeypatch,
                    "record_model_event",
                    1,
                )
        return honest(path, target)

    monkeypatch.setattr(Path, "replace", late)
    rotation.promote(settings, 0)
    monkeypatch.setattr(Path, "replace", honest)
    assert done
    own = silo_keys.read_private(silo_keys.private_path(settings, 0))
    assert own is not None
    assert own.public_key() == silo_keys.public_key(settings, 0)


def test_a_previous_key_that_is_none_holds_up_no_rotation(
    services: Services, first: str
) -> None:
    silo_keys.previous_path(services.settings, 0).write_text("x")
    new = rotate_silo(services.settings, services.ledger, 0)
    assert silo_keys.accepted(services, "m") == {0: (new, first)}


@pytest.mark.parametrize("which", ["of their own", "the one in use"])
def test_a_next_key_that_somebody_put_there_is_not_announced(
    services: Services, first: str, which: str
) -> None:
    path = silo_keys.next_path(services.settings, 0)
    in_use = silo_keys.private_path(services.settings, 0).read_text()
    own = private_pem(generate_key("ed25519"))
    path.write_text(own if which == "of their own" else in_use)
    planted = silo_keys.read_private(path)
    assert planted is not None
    new = rotate_silo(services.settings, services.ledger, 0)
    assert new != silo_keys.digest_of(planted.public_key())
    assert silo_keys.accepted(services, "m") == {0: (new, first)}


def test_a_previous_key_that_somebody_put_there_counts_for_no_new_model(
    services: Services, first: str
) -> None:
    settings, ledger = services.settings, services.ledger
    path = silo_keys.previous_path(settings, 0)
    path.write_text(public_pem(generate_key("ed25519")))
    assert silo_keys.registered(settings, ledger) == {"silo-0": first}
    revoke_silo(settings, ledger, 0)  # the file goes, and a rotation begins as always
    new = rotate_silo(settings, ledger, 0)
    assert silo_keys.registered(settings, ledger) == {"silo-0": new, "previous-silo-0": first}
    path.write_text(public_pem(generate_key("ed25519")))  # in place of the rotation's
    assert silo_keys.registered(settings, ledger) == {"silo-0": new}


def test_a_silos_key_that_is_elsewhere_is_not_rotated_here(
    services: Services, first: str, tmp_path: Path
) -> None:
    elsewhere = services.settings.model_copy(update={"silo_key_dir": str(tmp_path)})
    with pytest.raises(ConflictError, match="LETHE_SILO_KEY_DIR"):
        rotate_silo(elsewhere, services.ledger, 0)
    assert silo_keys.accepted(services, "m") == {0: (first,)}
    assert not silo_keys.next_path(elsewhere, 0).exists()
