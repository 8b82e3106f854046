import os
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from app.ledger.guard import (
    ForkedError,
    GuardDamagedError,
    GuardError,
    GuardExistsError,
    GuardMissingError,
    RolledBackError,
    SigningGuard,
)
from lethe import files
from lethe.log.checkpoint import Checkpoint
from lethe.log.tree import EMPTY_ROOT

ORIGIN = "ledger.test/lethe"
FIRST = Checkpoint(ORIGIN, 0, EMPTY_ROOT)


def root(size: int, history: str = "ours") -> bytes:
    return sha256(f"{history} {size}".encode()).digest() if size else EMPTY_ROOT


def checkpoint(size: int, history: str = "ours") -> Checkpoint:
    return Checkpoint(ORIGIN, size, root(size, history))


@pytest.fixture
def guard(tmp_path: Path) -> SigningGuard:
    guard = SigningGuard(tmp_path / "log.guard.json")
    guard.create(FIRST)
    return guard


def test_remembers_the_last_of_many(guard: SigningGuard) -> None:
    for size in range(1, 200):
        guard.advance(checkpoint(size), root)
        assert SigningGuard(guard.path).read() == checkpoint(size)
    assert len(guard.path.read_bytes().splitlines()) == 200


def test_is_created_once(guard: SigningGuard) -> None:
    guard.advance(checkpoint(3), root)
    with pytest.raises(GuardExistsError):
        guard.create(FIRST)
    assert guard.read() == checkpoint(3)


def test_the_same_checkpoint_again_is_no_second_line(guard: SigningGuard) -> None:
    guard.advance(checkpoint(3), root)
    before = guard.path.read_bytes()
    guard.advance(checkpoint(3), root)
    assert guard.path.read_bytes() == before


REFUSED: dict[str, tuple[type[GuardError], Checkpoint, Callable[[int], bytes]]] = {
    "smaller": (RolledBackError, checkpoint(4), root),
    "empty": (RolledBackError, FIRST, root),
    "other-root-before": (ForkedError, checkpoint(6), lambda size: root(size, "theirs")),
    "other-root-same-size": (ForkedError, checkpoint(5, "theirs"), root),
    "other-origin": (ForkedError, Checkpoint("ledger.test/x", 6, root(6)), root),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_does_not_extend_what_was_signed(guard: SigningGuard, case: str) -> None:
    error, wanted, root_at = REFUSED[case]
    guard.advance(checkpoint(5), root)
    before = guard.path.read_bytes()
    with pytest.raises(error):
        guard.advance(wanted, root_at)
    assert guard.path.read_bytes() == before


@pytest.mark.parametrize("case", [case for case in REFUSED if case != "other-root-same-size"])
def test_check_refuses_the_same_and_writes_nothing(guard: SigningGuard, case: str) -> None:
    error, wanted, root_at = REFUSED[case]
    guard.advance(checkpoint(5), root)
    with pytest.raises(error):
        guard.check(wanted.origin, wanted.size, root_at)
    guard.check(ORIGIN, 9, root)
    assert guard.read() == checkpoint(5)


@pytest.mark.parametrize("tail", [b"{", b'{"origin":"ledger.test/lethe","root":"', bytes(130)])
def test_a_line_cut_short_by_a_crash_is_ignored_and_overwritten(
    guard: SigningGuard, tail: bytes
) -> None:
    guard.advance(checkpoint(5), root)
    whole = guard.path.read_bytes()
    guard.path.write_bytes(whole + tail)
    assert guard.read() == checkpoint(5)
    guard.advance(checkpoint(6), root)
    assert guard.read() == checkpoint(6)
    assert guard.path.read_bytes().startswith(whole)
    assert tail not in guard.path.read_bytes().removeprefix(whole).replace(b"{", b"", 1)


LINE = b'{"origin":"o","root":"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=","size":0}\n'
DAMAGED = {
    "empty": b"",
    "no-newline": LINE[:-1],
    "not-json": b"guard\n",
    "not-canonical": LINE.replace(b":0}", b": 0}"),
    "a-list": b"[]\n",
    "a-number": b"7\n",
    "no-size": LINE.replace(b',"size":0', b""),
    "a-size-that-is-text": LINE.replace(b":0}", b':"0"}'),
    "a-size-that-is-true": LINE.replace(b":0}", b":true}"),
    "a-negative-size": LINE.replace(b":0}", b":-1}"),
    "a-short-root": LINE.replace(b"47DEQpj8HBSa+/TI", b""),
    "a-root-that-is-not-base64": LINE.replace(b"47DE", b"47-_"),
    "a-root-not-of-the-empty-tree": LINE.replace(b"47DE", b"57DE"),
    "an-origin-that-is-none": LINE.replace(b'"o"', b"null"),
    "another-member": LINE.replace(b'{"or', b'{"a":1,"or'),
    "damage-after-a-good-line": LINE + b"damage\n",
    "an-empty-last-line": LINE + b"\n",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_guard_is_an_error_with_a_remedy(tmp_path: Path, case: str) -> None:
    guard = SigningGuard(tmp_path / "guard")
    guard.path.write_bytes(LINE)
    assert guard.read() == Checkpoint("o", 0, EMPTY_ROOT)
    guard.path.write_bytes(DAMAGED[case])
    for refused in (
        guard.read,
        lambda: guard.check("o", 1, root),
        lambda: guard.advance(Checkpoint("o", 1, root(1)), root),
    ):
        with pytest.raises(GuardDamagedError, match="restore"):
            refused()
    assert guard.path.read_bytes() == DAMAGED[case]


def test_a_missing_guard_is_not_made_in_passing(tmp_path: Path) -> None:
    guard = SigningGuard(tmp_path / "guard")
    for refused in (guard.read, lambda: guard.advance(checkpoint(1), root)):
        with pytest.raises(GuardMissingError, match="lethe log init"):
            refused()
    assert not guard.path.exists()


def test_is_on_disk_before_advance_returns(
    guard: SigningGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.pread(descriptor, 1 << 20, 0))

    monkeypatch.setattr("os.fsync", fsync)
    guard.advance(checkpoint(1), root)
    assert synced == [guard.path.read_bytes()]


def test_a_failing_disk_leaves_the_old_guard(
    guard: SigningGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        return real(descriptor, data[:20], offset)

    real = os.pwrite
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="part"):
        guard.advance(checkpoint(1), root)
    monkeypatch.undo()
    assert guard.read() == FIRST
    guard.advance(checkpoint(1), root)
    assert guard.read() == checkpoint(1)


def test_of_two_histories_at_once_exactly_one_is_signed(guard: SigningGuard) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def sign(history: str) -> None:
        start.wait()
        try:
            SigningGuard(guard.path).advance(
                checkpoint(1, history), lambda size: root(size, history)
            )
        except ForkedError:
            return
        outcomes.append(history)

    threads = [threading.Thread(target=sign, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = outcomes
    assert guard.read() == checkpoint(1, winner)


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_durably(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("disk failure")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk failure"):
        files.write_durably(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileExistsError):
        files.write_durably(path, b"new", replace=False)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
