"""One command at a time changes key files; unfinished files of a killed one are removed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.keys import rotate, rotate_log, rotate_master
from app.keys.alone import KeysBusyError
from app.ledger.startup import load_ledger
from app.vault.master import FILE, read_key
from app.vault.root import FILE as ROOT
from app.vault.root import open_root, read_roots
from lethe.files import PARTIAL
from tests.app.keys.test_master_key import Killed, die, findings
from tests.installation import Installation

Command = Callable[[Any, Any], object]


def revoke_master(settings: Any, ledger: Any) -> object:
    return rotate_master.revoke_master(settings, ledger, "superseded")


def revoke_log(settings: Any, ledger: Any) -> object:
    return rotate_log.revoke_log(settings, ledger, "superseded")


def during(
    patch: pytest.MonkeyPatch, module: Any, step: str, meanwhile: Callable[[], object]
) -> None:
    """Run `meanwhile` once, before the last call of `step`, as another operator would."""
    honest, done = getattr(module, step), list[int]()

    def late(*given: Any, **named: Any) -> object:
        if not done:
            done.append(1)
            meanwhile()
        return honest(*given, **named)

    patch.setattr(module, step, late)


@pytest.mark.parametrize(
    ("module", "first", "second", "step"),
    [
        (rotate_master, rotate_master.rotate_master, revoke_master, "write_roots"),
        (rotate_log, rotate_log.rotate_log, revoke_log, "write_durably"),
        (rotate, None, rotate.rotate_issuer, "write_durably"),
    ],
    ids=["master", "log", "issuer"],
)
def test_while_a_command_stands_still_no_other_changes_key_files(
    ready: Installation,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    first: Command | None,
    second: Command,
    step: str,
) -> None:
    settings, engine = ready.settings, ready.services.engine
    if first is not None:
        first(settings, ready.services.ledger)
    refused = list[bool]()

    def other() -> None:
        for command in (first or second, second):
            with pytest.raises(KeysBusyError, match="once it has ended"):
                command(settings, load_ledger(settings, engine))
            refused.append(True)

    with monkeypatch.context() as patch:
        during(patch, module, step, other)
        second(settings, load_ledger(settings, engine))
    assert refused == [True, True]
    assert not findings(ready)
    (first or second)(settings, load_ledger(settings, engine))  # and then it succeeds
    assert not findings(ready)


def test_where_files_cannot_be_locked_no_master_key_of_the_log_is_lost(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, engine = ready.settings, ready.services.engine

    @contextmanager
    def unlocked(_: Path) -> Iterator[tuple[Path, ...]]:
        yield ()

    monkeypatch.setattr(rotate_master, "alone", unlocked)
    rotate_master.rotate_master(settings, load_ledger(settings, engine))

    def other() -> None:
        rotate_master.rotate_master(settings, load_ledger(settings, engine))

    with monkeypatch.context() as patch:
        during(patch, rotate_master, "remove", other)
        revoke_master(settings, load_ledger(settings, engine))
    assert not findings(ready)
    revoke_master(settings, load_ledger(settings, engine))
    assert not findings(ready)


def test_a_root_that_a_killed_rotation_left_unfinished_opens_under_no_revoked_key(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, keys = ready.settings, ready.settings.keys_dir
    old, content = read_key(keys / FILE), (keys / ROOT).read_bytes()
    (keys / f"{PARTIAL}1").write_bytes(content)  # as after SIGKILL between fsync and rename
    rotate_master.rotate_master(settings, load_ledger(settings, ready.services.engine))
    assert not list(keys.glob(f"{PARTIAL}*"))
    (keys / f"{PARTIAL}2").write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(rotate_master, "write_roots", die)  # a rerun finds nothing
        with pytest.raises(Killed):
            revoke_master(settings, load_ledger(settings, ready.services.engine))
    assert not list(keys.glob(f"{PARTIAL}*"))
    revoke_master(settings, load_ledger(settings, ready.services.engine))
    assert open_root(old, read_roots(keys)) is None
    assert not findings(ready)


def test_only_unfinished_files_are_removed_and_no_link_is_followed(
    ready: Installation, tmp_path: Path
) -> None:
    settings, keys = ready.settings, ready.settings.keys_dir
    (tmp_path / "far").write_text("kept")
    (keys / f"{PARTIAL}link").symlink_to(tmp_path / "far")
    (keys / f"{PARTIAL}folder").mkdir()
    (keys / f"{PARTIAL}key").write_text("half a key")
    (keys / "partial").write_text("kept")
    rotate.rotate_issuer(settings, ready.services.ledger)
    assert {one.name for one in keys.glob("*partial*")} == {f"{PARTIAL}folder", "partial"}
    assert (tmp_path / "far").read_text() == "kept"
