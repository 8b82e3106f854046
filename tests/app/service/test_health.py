"""/readyz names each part that is not ready, at once, and nothing of anybody."""

import logging
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.ledger import lock
from app.ledger.guard import GuardBusyError, SigningGuard
from app.ledger.lock import LockStuckError
from app.ledger.sequencer import Ledger
from app.problems import NotReadyError
from app.service import health
from app.service.context import Services, open_services
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.errors import MasterKeyError
from app.vault.master import FILE, create_key
from app.witnesses import standing
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from tests.app.ledger.samples import entry
from tests.installation import install

PARTS = [
    "database",
    "lock",
    "log",
    "checkpoint",
    "guard",
    "keys",
    "space",
    "artifacts",
    "witnesses",
    "broker",
]


@pytest.fixture
def services(settings: Settings, ledger: Ledger, fitted: Any) -> Iterator[Services]:
    with install(settings) as made:
        yield made.services


def failed(services: Services) -> str:
    services.seen.clear()  # what was found a moment ago is good for a moment
    with pytest.raises(NotReadyError) as error:
        health.ready(services)
    return str(error.value.members["failed"])


def test_every_part_is_named(services: Services) -> None:
    assert health.ready(services) == {**dict.fromkeys(PARTS, "ok"), "messages-refused": "0"}


@pytest.mark.parametrize(
    "name",
    [
        "issuer.key",
        "issuer.pem",
        "log.key",
        "entries.key",
        "revoked.list",
        FILE,
        "log.guard.json",
    ],
)
def test_a_removed_key_file_is_named_at_once(services: Services, name: str) -> None:
    health.ready(services)
    path = services.settings.keys_dir / name
    kept = path.read_bytes()
    path.unlink()
    if name != "log.guard.json":
        with pytest.raises(NotReadyError) as error:  # without waiting for anything to grow old
            health.ready(services)
        assert error.value.members["failed"] == "keys"
    else:
        assert failed(services) == "guard"
    path.write_bytes(kept)
    services.seen.clear()
    health.ready(services)


@pytest.mark.parametrize("name", ["issuer.key", "log.key", "entries.key"])
def test_a_changed_key_is_named(services: Services, name: str) -> None:
    path = services.settings.keys_dir / name
    other = services.settings.keys_dir / "log.key" if name == "issuer.key" else path
    changed = {
        "issuer.key": other.read_bytes(),
        "log.key": (services.settings.keys_dir / "issuer.key").read_bytes(),
        "entries.key": b"A" * len(path.read_bytes()),
    }
    path.write_bytes(changed[name])
    assert failed(services) == "keys"


def test_a_changed_master_key_is_named_by_who_runs_and_by_who_starts_with_it(
    settings: Settings, services: Services
) -> None:
    path = services.settings.keys_dir / FILE
    path.unlink()
    create_key(path)
    assert failed(services) == "keys"
    with pytest.raises(MasterKeyError, match=r"master\.key is not a master key that opens"):
        open_services(settings)


def test_a_missing_artifact_is_named(services: Services) -> None:
    folder = services.settings.data_dir / "artifacts"
    assert services.artifacts.missing(services.engine) == 0
    moved = folder.with_name("elsewhere")
    shutil.move(folder, moved)
    assert failed(services) == "artifacts"
    shutil.move(moved, folder)
    services.seen.clear()
    health.ready(services)


def raising(error: Exception) -> Callable[..., None]:
    def check(*_: object) -> None:
        raise error

    return check


def test_locks_and_a_full_disk_are_named(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lock, "require_lock_moves", raising(LockStuckError("held")))
        patch.setattr(SigningGuard, "require_free", raising(GuardBusyError("held")))
        patch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
        assert failed(services) == "lock, guard, space"


def test_entries_that_stay_without_a_checkpoint_are_named(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.ledger.transact(lambda tx: tx.append(entry(1)), checkpoint=False)
    health.ready(services)  # they may be being signed
    monkeypatch.setattr(health, "LAG_S", -1.0)
    monkeypatch.setattr(health, "FRESH_S", 0.0)
    with pytest.raises(NotReadyError) as error:
        health.ready(services)
    assert error.value.members["failed"] == "checkpoint"
    services.ledger.publish_checkpoint()
    health.ready(services)


def test_a_cause_is_logged_once_and_its_end_too(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    path = services.settings.keys_dir / "issuer.key"
    kept = path.read_bytes()
    path.unlink()
    with caplog.at_level(logging.WARNING, "app.service.health"):
        assert [failed(services) for _ in range(2)] == ["keys", "keys"]
        services.seen["told"] = (0.0, frozenset({"keys"}))
        path.write_bytes(kept)
        health.ready(services)
    assert "issuer.key is missing" in caplog.text
    assert caplog.text.count("ready again: keys") == 1


def test_what_costs_something_is_asked_once_a_moment(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ArtifactStore, "missing", lambda *_: asked.append(1))
    for _ in range(5):
        health.ready(services)
    assert asked == [1]


def test_proof_of_another_history_is_named_and_a_claim_is_not(services: Services) -> None:
    ledger = services.ledger
    standing.note_problem(ledger, "w", "contradicting", "no note")
    services.seen.clear()
    assert health.ready(services)["witnesses"] == "ok"
    other = Checkpoint(ledger.origin, ledger.latest().size + 1, bytes(32))
    shown = sign_checkpoint(other, ledger.signers.signers[0])
    standing.note_problem(ledger, "w", standing.FORKED, shown)
    assert failed(services) == "witnesses"
