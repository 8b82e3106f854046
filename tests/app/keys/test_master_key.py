"""The master key is rotated with an overlap; sealed data and tags stay valid."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.backup import archive
from app.backup.check import fsck_installation
from app.backup.keys import KeysCopy
from app.cli.backup import backup, restore
from app.cli.migrate import migrate
from app.cli.service_key import service_key
from app.keys import rotate_master as rotation
from app.keys.issuer import KeysChangedError
from app.keys.master import master_keys
from app.keys.rotate_master import revoke_master, rotate_master
from app.ledger.startup import load_ledger
from app.problems import ConflictError
from app.service.context import open_services
from app.settings import Settings
from app.vault.errors import MasterKeyError
from app.vault.master import FILE, NEXT_FILE, RootSecret, read_key
from app.vault.root import FILE as ROOT
from app.vault.root import open_root, read_roots, seal_root, write_roots
from lethe.cli.log import log as log_commands
from lethe.signing.keys import PrivateKey
from tests.app.cli.test_backup import detail, elsewhere, point_at, run
from tests.installation import Installation, install

__all__ = ["elsewhere"]

AAD = b"place"


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


def with_key(settings: Settings, key: bytes, following: bytes | None = None) -> Settings:
    """Return the settings of processes with the master key in the environment."""
    given = {"master_key": text_of(key)}
    if following is not None:
        given["master_key_next"] = text_of(following)
    return Settings(**{**settings.model_dump(), **given})


def opens(settings: Settings, made: Installation) -> bool:
    """Return whether a process with these settings opens what `made` sealed."""
    blob = made.services.root_secret.seal(b"x", AAD)
    try:
        root_secret = RootSecret.load(settings)
    except MasterKeyError:
        return False
    assert root_secret.tag("client", "x") == made.services.root_secret.tag("client", "x")
    return root_secret.open(blob, AAD) == b"x"


def findings(made: Installation) -> list[str]:
    report = fsck_installation(made.settings, load_ledger(made.settings, made.services.engine))
    return [one.detail for one in report.findings]


def command(*arguments: str) -> Result:
    return CliRunner().invoke(service_key, arguments)


def test_a_key_in_a_file_is_replaced_while_processes_work(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, keys = ready.settings, ready.settings.keys_dir
    point_at(settings, monkeypatch)
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    old = read_key(keys / FILE)
    assert ready.caller.erase_records("r1").status_code == 202  # accepted under the old key

    begun = command("rotate", "master")
    assert begun.exit_code == 0, (begun.output, begun.exception)
    new = read_key(keys / NEXT_FILE)
    for key in (old, new):
        assert opens(with_key(settings, key), ready)
    assert not findings(ready)
    ended = command("revoke", "master", "--reason", "key-compromise")
    assert ended.exit_code == 0, (ended.output, ended.exception)

    assert read_key(keys / FILE) == new != old
    assert not (keys / NEXT_FILE).exists()
    assert not opens(with_key(settings, old), ready)
    assert opens(settings, ready)
    ready.drain()  # a process started before
    listed = [json.loads(line) for line in command("list", "--json").output.splitlines()]
    masters = [one for one in listed if one["role"] == "master"]
    assert [one["reason"] for one in masters] == ["key-compromise", None]
    assert masters[0]["revoked_at"] > masters[0]["replaced_at"] == masters[1]["from_entry"]
    assert text_of(old) not in begun.output + ended.output
    assert text_of(new) not in begun.output + ended.output
    assert ready.caller.http.get("/readyz").status_code == 200
    assert not findings(ready)
    with install(settings) as started:  # tags made under the old key still match
        started.caller.key = ready.caller.key
        answer = started.caller.erase_records("r1")
        assert answer.json()["type"].endswith(":already-erased"), answer.text
        assert started.caller.erase_records("r2").status_code == 202
        started.drain()
        started.check()


def test_a_key_of_the_environment_is_replaced_by_another(ready: Installation) -> None:
    """And a key in a file by one in the environment, which leaves no file behind."""
    settings, ledger, keys = ready.settings, ready.services.ledger, ready.settings.keys_dir
    first, second, third = read_key(keys / FILE), b"2" * 32, b"3" * 32
    rotate_master(
        Settings(**{**settings.model_dump(), "master_key_next": text_of(second)}), ledger
    )
    with pytest.raises(ConflictError, match="set LETHE_MASTER_KEY to it"):
        revoke_master(settings, ledger, "superseded")
    revoke_master(with_key(settings, second), ledger, "superseded")
    assert not (keys / FILE).exists()
    assert not opens(with_key(settings, first), ready)

    with pytest.raises(ConflictError, match="set LETHE_MASTER_KEY_NEXT"):
        rotate_master(with_key(settings, second), ledger)
    with pytest.raises(ConflictError, match="is the one in use"):
        rotate_master(with_key(settings, second, second), ledger)
    with pytest.raises(MasterKeyError, match="does not open"):
        rotate_master(with_key(settings, first, third), ledger)
    rotate_master(with_key(settings, second, third), ledger)
    with pytest.raises(ConflictError, match="two master keys"):
        rotate_master(with_key(settings, third, first), ledger)
    with pytest.raises(ConflictError, match="first give that to each process"):
        revoke_master(with_key(settings, second), ledger, "superseded")
    revoke_master(with_key(settings, third), ledger, "superseded")
    assert [opens(with_key(settings, one), ready) for one in (first, second, third)] == [
        *(False, False, True)
    ]
    with pytest.raises(ConflictError, match="one master key is in use"):
        revoke_master(with_key(settings, third), ledger, "superseded")


class Killed(BaseException):
    """The process ends here."""


def die(*_: object, **__: object) -> None:
    raise Killed


def after(call: Callable[..., object]) -> Callable[..., object]:
    """Return `call` wrapped so that the process dies after it."""

    def dying(*given: object, **named: object) -> None:
        call(*given, **named)
        raise Killed

    return dying


@pytest.mark.parametrize("step", ["create_key", "write_roots", "record_master_key_event"])
@pytest.mark.parametrize("place", [lambda _: die, after], ids=["before", "after"])
def test_a_killed_rotation_leaves_a_key_that_opens_and_can_be_repeated(
    ready: Installation,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    place: Callable[[Callable[..., object]], Callable[..., object]],
) -> None:
    settings, keys = ready.settings, ready.settings.keys_dir
    old = with_key(settings, read_key(keys / FILE))
    with monkeypatch.context() as patch:
        patch.setattr(rotation, step, place(getattr(rotation, step)))
        with pytest.raises(Killed):
            rotate_master(settings, ready.services.ledger)
    assert opens(old, ready)
    open_services(settings).close()
    sealed_anew = len(read_roots(keys)) == 2
    if sealed_anew:  # fsck reports the key without an entry
        assert any("rotate master` again" in one for one in findings(ready))
    rotate_master(settings, load_ledger(settings, ready.services.engine))
    assert opens(old, ready)
    assert opens(with_key(settings, read_key(keys / NEXT_FILE)), ready)
    assert not findings(ready)


@pytest.mark.parametrize("step", ["take_over", "sync_directory", "write_roots"])
@pytest.mark.parametrize("place", [lambda _: die, after], ids=["before", "after"])
def test_a_killed_revocation_leaves_a_key_that_opens_and_can_be_repeated(
    ready: Installation,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    place: Callable[[Callable[..., object]], Callable[..., object]],
) -> None:
    settings, keys = ready.settings, ready.settings.keys_dir
    old = with_key(settings, read_key(keys / FILE))
    rotate_master(settings, ready.services.ledger)
    new = with_key(settings, read_key(keys / NEXT_FILE))
    with monkeypatch.context() as patch:
        patch.setattr(rotation, step, place(getattr(rotation, step)))
        with pytest.raises(Killed):
            revoke_master(settings, ready.services.ledger, "superseded")
    open_services(settings).close()
    assert opens(new, ready)
    done = len(read_roots(keys)) == 1
    assert opens(old, ready) is not done
    again = load_ledger(settings, ready.services.engine)
    if done:
        assert not findings(ready)
        with pytest.raises(ConflictError, match="one master key is in use"):
            revoke_master(settings, again, "superseded")
    else:
        assert any("revoke master` again" in one for one in findings(ready))
        assert revoke_master(settings, again, "superseded").finished
    assert not opens(old, ready)
    assert opens(settings, ready)
    assert not findings(ready)


def test_of_two_rotations_at_once_one_is_refused(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    before = master_keys(ledger)
    with monkeypatch.context() as patch:
        first = rotate_master(settings, ledger)
        patch.setattr(rotation, "master_keys", lambda _: before)
        with pytest.raises(KeysChangedError):
            rotate_master(settings, ledger)
    assert [one.keyid for one in read_roots(settings.keys_dir)][1] == first.keyid


def test_fsck_finds_a_root_that_was_replaced_or_put_back(ready: Installation) -> None:
    settings, ledger, keys = ready.settings, ready.services.ledger, ready.settings.keys_dir
    old, before = read_key(keys / FILE), read_roots(keys)
    rotate_master(settings, ledger)
    overlap = read_roots(keys)
    revoke_master(settings, ledger, "key-compromise")
    now = read_roots(keys)
    assert not findings(ready)

    write_roots(keys, overlap)  # the revoked key would open everything again
    assert any("still has the revoked key" in one for one in findings(ready))
    write_roots(keys, before)
    found = findings(ready)
    assert any("still has the revoked key" in one for one in found)
    assert any("lacks the master key" in one for one in found)
    assert any("does not open root.sealed" in one for one in found)
    write_roots(keys, [seal_root(old, bytes(32))])
    assert any("which the log does not" in one for one in findings(ready))
    with pytest.raises(MasterKeyError):  # nothing is signed or accepted with it
        open_services(settings)
    (keys / ROOT).unlink()
    assert any("missing: restore it" in one for one in findings(ready))
    with pytest.raises(MasterKeyError, match="restore it"):
        open_services(settings)
    write_roots(keys, now)
    assert not findings(ready)


def test_an_attacker_who_can_write_the_root_alone_has_nothing_accepted(
    ready: Installation,
) -> None:
    """Their own secret would need the master key; under another keyid the seal does not open."""
    settings, keys = ready.settings, ready.settings.keys_dir
    (mine,) = read_roots(keys)
    theirs = seal_root(b"theirs" + bytes(26), bytes(32))
    for planted in ([theirs], [theirs, mine]):
        write_roots(keys, planted)
        if len(planted) == 1:
            with pytest.raises(MasterKeyError):
                RootSecret.load(settings)
        else:
            assert opens(settings, ready)
        assert findings(ready)
        answer = ready.caller.http.get("/readyz")
        assert answer.status_code == (503 if len(planted) == 1 else 200)
        ready.services.seen.clear()


def test_a_backup_from_before_needs_the_master_key_of_then(
    settings: Settings,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    with install(settings) as made:
        old = read_key(settings.keys_dir / FILE)
        monkeypatch.setenv("LETHE_MASTER_KEY", text_of(old))
        done = run(backup, "new", str(tmp_path / "b"), "--keys", str(tmp_path / "k"))
        assert done.exit_code == 0, (done.output, done.exception)
        (tmp_path / "k" / FILE).unlink()  # as if it were only in the environment
        rotate_master(settings, made.services.ledger)
        revoke_master(settings, made.services.ledger, "superseded")
        following = read_key(settings.keys_dir / FILE)
    point_at(new, monkeypatch)
    monkeypatch.setenv("LETHE_MASTER_KEY", text_of(following))
    refused = run(restore, str(tmp_path / "b"), "--keys", str(tmp_path / "k"))
    assert "not a master key that opens root.sealed" in detail(refused)
    shutil.rmtree(new.keys_dir)
    monkeypatch.setenv("LETHE_MASTER_KEY", text_of(old))
    restored = run(restore, str(tmp_path / "b"), "--keys", str(tmp_path / "k"))
    assert restored.exit_code == 0, (restored.output, restored.exception)
    recovered = run(log_commands, "recover", "--no-mirror")
    assert recovered.exit_code == 0, (recovered.output, recovered.exception)
    with install(with_key(new, old)) as again:
        again.caller.key = fitted
        assert again.caller.erase_records("r1").status_code == 202
        again.drain()
        again.check()


def test_keys_that_are_copied_while_a_rotation_ends_open(
    ready: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rotation ends between the copies of the two files, whichever comes first."""
    settings, honest, copied = ready.settings, Path.open, list[str]()
    rotate_master(settings, ready.services.ledger)

    def interrupted(path: Path, *arguments: Any, **options: Any) -> Any:
        opened = honest(path, *arguments, **options)
        if path.parent == settings.keys_dir and path.name in (FILE, ROOT) and not copied:
            copied.append(path.name)
            revoke_master(settings, ready.services.ledger, "superseded")
        return opened

    monkeypatch.setattr(Path, "open", interrupted)
    engine = ready.services.engine
    archive.write_backup(settings, engine, tmp_path / "b", tmp_path / "k")
    assert copied
    assert len(read_roots(settings.keys_dir)) == 1  # it has ended
    assert open_root(read_key(tmp_path / "k" / FILE), read_roots(tmp_path / "k")) is not None


def test_keys_that_are_followed_while_a_rotation_ends_open(
    ready: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rotation ends between the two reads."""
    settings, copy, honest = ready.settings, _followed(ready, tmp_path), Path.read_bytes
    ended: list[str] = []

    def interrupted(path: Path) -> bytes:
        data = honest(path)
        if path.parent == settings.keys_dir and path.name in (FILE, ROOT) and not ended:
            ended.append(path.name)
            revoke_master(settings, ready.services.ledger, "superseded")
        return data

    monkeypatch.setattr(Path, "read_bytes", interrupted)
    copy.finish()
    assert ended
    assert _opens(tmp_path / "k")
    copy.finish()
    assert _opens(tmp_path / "k")
    assert len(read_roots(tmp_path / "k")) == 1


@pytest.mark.parametrize("name", [FILE, ROOT])
def test_keys_open_after_a_crash_of_the_follower(
    ready: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A rotation has ended, and the round that copies it is interrupted."""
    copy = _followed(ready, tmp_path)
    revoke_master(ready.settings, ready.services.ledger, "superseded")
    write = copy.folder.write_durably

    def crash(written: str, data: bytes) -> None:
        if written == name:
            raise OSError(5, "the disk of the copy went away")
        write(written, data)

    monkeypatch.setattr(copy.folder, "write_durably", crash)
    with pytest.raises(OSError, match="went away"):
        copy.finish()
    assert _opens(tmp_path / "k")
    monkeypatch.setattr(copy.folder, "write_durably", write)
    copy.finish()
    assert _opens(tmp_path / "k")


def _followed(ready: Installation, tmp_path: Path) -> KeysCopy:
    """Return a copy of the keys during a rotation."""
    copy = KeysCopy(ready.settings.keys_dir, tmp_path / "k")
    rotate_master(ready.settings, ready.services.ledger)
    copy.begin()
    copy.finish()
    return copy


def _opens(keys: Path) -> bool:
    return open_root(read_key(keys / FILE), read_roots(keys)) is not None


def test_an_installation_from_before_the_root_secret_keeps_its_tags(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, keys = ready.settings, ready.settings.keys_dir
    point_at(settings, monkeypatch)
    found = open_root(read_key(keys / FILE), read_roots(keys))
    assert found is not None
    (keys / ROOT).unlink()
    # In older installations the master key itself was the secret.
    (keys / FILE).write_text(text_of(found[1]) + "\n")
    with pytest.raises(MasterKeyError, match="lethe migrate"):
        open_services(settings)
    assert CliRunner().invoke(migrate).exit_code == 0
    assert opens(settings, ready)
    assert not findings(ready)
    rotate_master(settings, ready.services.ledger)
    revoke_master(settings, ready.services.ledger, "superseded")
    assert opens(settings, ready)


def test_a_lost_root_is_not_made_anew(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at(ready.settings, monkeypatch)
    (ready.settings.keys_dir / ROOT).unlink()
    assert CliRunner().invoke(migrate).exit_code == 0
    assert not (ready.settings.keys_dir / ROOT).exists()


def test_a_key_that_is_no_key_is_not_the_next(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    with pytest.raises(MasterKeyError, match="LETHE_MASTER_KEY_NEXT must be"):
        rotate_master(Settings(**{**settings.model_dump(), "master_key_next": "short"}), ledger)
    rotate_master(settings, ledger)
    assert not findings(ready)
