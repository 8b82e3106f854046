"""A log is believed only if every file of it follows from its entries and its signature."""

import fcntl
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe import canonical, files
from lethe.log.check import check_tree
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.fetch import (
    CHECKPOINT,
    Fetch,
    LogError,
    LogForkedError,
    LogUnreachableError,
    MissingFileError,
    fetch_from,
)
from lethe.log.follow import LogReport, mirror_log, verify_log
from lethe.log.tiles import (
    encode_bundle,
    entries_path,
    parse_tile_path,
    tile_level,
)
from lethe.log.tree import (
    EMPTY_ROOT,
    Peaks,
    leaf_hash,
    leaf_hashes,
    node_hashes,
    root_of,
    tree_root,
)
from tests.fuzz import fuzz
from tests.lethe.log import oracle
from tests.lethe.log.logs import SIGNER, STRANGER, VERIFIER, fetch_files, log_files, tile_bytes

Files = dict[str, bytes]


def read_files(directory: Path) -> Files:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("size", [0, 1, 2, 7, 255, 256, 257, 512, 700])
def test_an_honest_log_verifies(size: int) -> None:
    entries = oracle.entries(size)
    files = log_files(entries)
    asked: set[str] = set()

    def fetch(path: str) -> bytes:
        asked.add(path)
        return files[path]

    report = verify_log(fetch, VERIFIER)
    assert (report.origin, report.size, report.entries) == ("log.example", size, size)
    assert report.root == oracle.mth(entries)
    assert report.tiles == sum(not path.startswith("tile/entries") for path in files) - 1
    assert asked == set(files)  # nothing a client could be served is left unread


def test_an_honest_log_of_three_tile_levels_verifies() -> None:
    size = 65_536 + 256 + 3  # a full tile at level 1, and every kind of partial one
    entries = [index.to_bytes(4, "big") for index in range(size)]
    nodes = {(level, index): digest for level, index, digest in _all_nodes(entries)}
    files = _files_of_nodes(entries, nodes)
    report = verify_log(fetch_files(files), VERIFIER)
    assert report.size == size
    assert report.tiles == (256 + 1 + 1) + (1 + 1) + 1
    damaged = bytearray(files["tile/2/000.p/1"])
    damaged[0] ^= 1
    with pytest.raises(LogError, match=r"tile/2/000\.p/1: hash 0 is not that of the tile"):
        verify_log(fetch_files(files | {"tile/2/000.p/1": bytes(damaged)}), VERIFIER)


def _all_nodes(entries: list[bytes]) -> list[tuple[int, int, bytes]]:
    peaks = Peaks()
    return [node for entry in entries for node in peaks.append(leaf_hash(entry))]


def _files_of_nodes(entries: list[bytes], nodes: dict[tuple[int, int], bytes]) -> Files:
    def read(level: int, index: int) -> bytes:
        return nodes[level, index]

    size = len(entries)
    files = {"checkpoint": signed(size, tree_root(size, read))}
    for level in range(3):
        for ref in tile_level(level, size):
            files[ref.path] = tile_bytes(level, ref.index, ref.width, read)
    for ref in tile_level(0, size):
        start = ref.index * 256
        bundle = encode_bundle(entries[start : start + ref.width])
        files[entries_path(ref.index, ref.width)] = bundle
    return files


def signed(size: int, root: bytes, origin: str = "log.example") -> bytes:
    return sign_checkpoint(Checkpoint(origin, size, root), SIGNER).encode()


SIZE = 257  # has full and partial tiles on level 0, and a partial one on level 1
HONEST = log_files(oracle.entries(SIZE))
LONGER = log_files(oracle.entries(SIZE + 300))
FORKED = log_files((b"forked", *oracle.entries(SIZE)[1:]))


# Two roots that the key signed for one size: the second is of entries that nobody serves.
OTHER_ROOT = signed(SIZE + 300, oracle.mth(oracle.entries(SIZE + 300, seed=1)))


def _without(files: Files, path: str) -> Files:
    return {name: data for name, data in files.items() if name != path}


def _rewritten(files: Files, index: int) -> Files:
    """Change an old entry's hash in its tile and the root of that tile above it."""
    tile = files["tile/0/000"]
    hashes = [tile[at : at + 32] for at in range(0, len(tile), 32)]
    hashes[index] = leaf_hash(b"rewritten")
    above = root_of(hashes) + files["tile/1/000.p/2"][32:]
    return files | {"tile/0/000": b"".join(hashes), "tile/1/000.p/2": above}


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(st.sampled_from(sorted(HONEST)), st.data())
@fuzz(200)
def test_a_flipped_bit_in_any_file_is_found(path: str, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(HONEST[path]) - 1))
    files = HONEST | {path: flip(HONEST[path], bit)}
    with pytest.raises(LogError):
        verify_log(fetch_files(files), VERIFIER)


@pytest.mark.parametrize("path", sorted(HONEST))
def test_a_truncated_file_is_found(path: str) -> None:
    for data in (b"", HONEST[path][:-1], HONEST[path][:-32], HONEST[path] + b"\0" * 32):
        with pytest.raises(LogError) as caught:
            verify_log(fetch_files(HONEST | {path: data}), VERIFIER)
        assert not isinstance(caught.value, LogUnreachableError)


@pytest.mark.parametrize("path", sorted(set(HONEST) - {"checkpoint"}))
def test_a_missing_file_is_named(path: str) -> None:
    files = {name: data for name, data in HONEST.items() if name != path}
    with pytest.raises(MissingFileError) as caught:
        verify_log(fetch_files(files), VERIFIER)
    assert caught.value.members["path"] == path
    assert path in caught.value.detail


def entry_replaced(files: Files) -> None:
    entries = [b"forged", *oracle.entries(256)[1:]]
    files["tile/entries/000"] = encode_bundle(entries)


def entry_and_leaf_replaced(files: Files) -> None:
    entry_replaced(files)
    files["tile/0/000"] = leaf_hash(b"forged") + files["tile/0/000"][32:]


def whole_tree_replaced(files: Files) -> None:
    files |= {path: data for path, data in FORKED.items() if path != "checkpoint"}


def entries_swapped(files: Files) -> None:
    first, second, *rest = oracle.entries(256)
    files["tile/entries/000"] = encode_bundle([second, first, *rest])


def root_of_another_tree_signed(files: Files) -> None:
    files["checkpoint"] = signed(SIZE, oracle.mth(oracle.entries(SIZE, seed=1)))


def size_signed_too_small(files: Files) -> None:
    files["checkpoint"] = signed(SIZE - 1, oracle.mth(oracle.entries(SIZE)))


def size_signed_too_large(files: Files) -> None:
    files["checkpoint"] = signed(SIZE + 1, oracle.mth(oracle.entries(SIZE)))


def size_changed_after_signing(files: Files) -> None:
    files["checkpoint"] = files["checkpoint"].replace(b"\n257\n", b"\n256\n")


def signed_by_a_stranger(files: Files) -> None:
    files["checkpoint"] = log_files(oracle.entries(SIZE), STRANGER)["checkpoint"]


def origin_of_another_log(files: Files) -> None:
    files["checkpoint"] = signed(SIZE, oracle.mth(oracle.entries(SIZE)), "other.example")


def checkpoint_not_text(files: Files) -> None:
    files["checkpoint"] = b"\xff\xfe"


def partial_tile_too_wide(files: Files) -> None:
    files["tile/0/001.p/1"] += leaf_hash(b"unsigned")


def partial_bundle_too_wide(files: Files) -> None:
    files["tile/entries/001.p/1"] += encode_bundle([b"unsigned"])


Damage = Callable[[Files], None]
DAMAGES: list[tuple[Damage, str, str]] = [
    (entry_replaced, "tile/0/000", "hash 0 is not that of the entry"),
    (entry_and_leaf_replaced, "tile/1/000.p/1", "hash 0 is not that of the tile below it"),
    (whole_tree_replaced, "checkpoint", "root is not that of the 257 entries"),
    (entries_swapped, "tile/0/000", "hash 0 is not that of the entry"),
    (root_of_another_tree_signed, "checkpoint", "root is not that of the 257 entries"),
    (size_signed_too_small, "checkpoint", "root is not that of the 256 entries"),
    (size_signed_too_large, "tile/entries/001.p/2", "missing"),
    (size_changed_after_signing, "checkpoint", "wrong signature"),
    (signed_by_a_stranger, "checkpoint", "no known key"),
    (origin_of_another_log, "checkpoint", "origin differs"),
    (checkpoint_not_text, "checkpoint", "not UTF-8"),
    (partial_tile_too_wide, "tile/0/001.p/1", "holds 2 items, not 1"),
    (partial_bundle_too_wide, "tile/entries/001.p/1", "holds 2 items, not 1"),
]


@pytest.mark.parametrize(
    ("damage", "path", "message"), DAMAGES, ids=[case[0].__name__ for case in DAMAGES]
)
def test_a_damaged_log_is_refused_with_the_file_at_fault(
    damage: Damage, path: str, message: str
) -> None:
    files = dict(HONEST)
    damage(files)
    with pytest.raises(LogError, match=message) as caught:
        verify_log(fetch_files(files), VERIFIER)
    assert caught.value.members["path"] == path
    assert path in caught.value.detail


@pytest.mark.parametrize("deleted", ["tile/0", "tile/entries", "tile/"])
def test_a_deleted_partial_tile_is_read_from_the_full_one(deleted: str, tmp_path: Path) -> None:
    # tlog-tiles lets a log delete a partial tile once the full tile exists: here at size
    # 557, when a client still asks for the checkpoint of 300 that it read before.
    wanted = log_files(oracle.entries(300))
    gone = {path for path in ("tile/0/001.p/44", "tile/entries/001.p/44") if deleted in path}
    assert gone <= set(wanted)
    served = LONGER | {path: data for path, data in wanted.items() if path not in gone}
    report = mirror_log(fetch_files(served), VERIFIER, tmp_path)
    assert report.root == oracle.mth(oracle.entries(300))
    # The mirror holds what the checkpoint covers and nothing that came along unsigned.
    assert read_files(tmp_path) == wanted


@pytest.mark.parametrize("size", [0, 1, 257, 512])
def test_a_mirror_is_the_log_byte_for_byte(size: int, tmp_path: Path) -> None:
    files = log_files(oracle.entries(size))
    report = mirror_log(fetch_files(files), VERIFIER, tmp_path / "new" / "mirror")
    assert read_files(tmp_path / "new" / "mirror") == files
    assert verify_log(fetch_from(tmp_path / "new" / "mirror"), VERIFIER) == report


@given(st.lists(st.integers(0, 300), min_size=2, max_size=4))
@settings(deadline=None, max_examples=15)
def test_a_mirror_follows_a_growing_log(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("mirror")
    size = 0
    for step in steps:
        size += step
        mirror_log(fetch_files(log_files(oracle.entries(size))), VERIFIER, directory)
        assert verify_log(fetch_from(directory), VERIFIER).size == size


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (FORKED, "forked: its first 257 entries"),
        (log_files((b"forked", *oracle.entries(600)[1:])), "forked: its first 257 entries"),
        (log_files(oracle.entries(256)), "256 entries and the mirror 257"),
        (log_files(()), "0 entries and the mirror 257"),
        (log_files(oracle.entries(SIZE), STRANGER), "no known key"),
        (LONGER | {"tile/0/001": bytes(8192)}, "tile/0/001: hash 0 is not that of the entry"),
        (LONGER | {"tile/entries/002.p/45": bytes(90)}, "tile/0/002.p/45: hash 0"),
        (_without(LONGER, "tile/0/002.p/45"), "tile/0/002.p/45 is missing"),
        (_without(LONGER, "tile/entries/001"), "tile/entries/001 is missing"),
        (LONGER | {"tile/1/000.p/2": bytes(64)}, "tile/1/000.p/2: hash 0 is not that of the"),
        (LONGER | {"checkpoint": OTHER_ROOT}, "root is not that of the 557 entries"),
        (_rewritten(LONGER, 3), "tile/0/000: hash 3 is not that of the entry"),
    ],
    ids=[
        "fork",
        "fork and growth",
        "rollback",
        "emptied",
        "other key",
        "changed tile",
        "changed entries",
        "missing tile",
        "missing bundle",
        "changed higher tile",
        "another root signed",
        "changed old entry and its right edge",
    ],
)
@pytest.mark.parametrize("full", [False, True], ids=["new", "full"])
def test_what_is_held_is_kept_when_the_log_is_refused(
    served: Files, message: str, full: bool, tmp_path: Path
) -> None:
    mirror, state = tmp_path / "mirror", tmp_path / "state.json"
    mirror_log(fetch_files(HONEST), VERIFIER, mirror)
    verify_log(fetch_files(HONEST), VERIFIER, state)
    before = state.read_bytes()
    with pytest.raises(LogError, match=message) as of_mirror:
        mirror_log(fetch_files(served), VERIFIER, mirror, full=full)
    with pytest.raises(LogError) as of_state:
        verify_log(fetch_files(served), VERIFIER, state, full=full)
    assert of_state.value.detail == of_mirror.value.detail.replace("mirror", "state file")
    assert type(of_state.value) is type(of_mirror.value)
    assert of_state.value.members == of_mirror.value.members
    assert read_files(mirror) == HONEST
    assert state.read_bytes() == before


@pytest.mark.parametrize("path", sorted(set(HONEST) - {"checkpoint"}))
def test_a_damaged_old_file_is_found_where_everything_is_read(
    path: str, tmp_path: Path
) -> None:
    mirror_log(fetch_files(HONEST), VERIFIER, tmp_path)
    served = fetch_files(LONGER | HONEST | {path: bytes(64)})
    assert mirror_log(served, VERIFIER, tmp_path).entries == 0
    with pytest.raises(LogError):
        mirror_log(served, VERIFIER, tmp_path, full=True)
    assert read_files(tmp_path) == HONEST


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, 2),
        (1, 256),
        (255, 257),
        (256, 512),
        (257, 65_535),
        (300, 66_000),
        (65_535, 65_536),
        (65_536, 65_537),
        (65_537, 131_072),
        (65_792, 130_000),
        (131_071, 131_072),
    ],
)
def test_what_is_new_has_the_root_of_everything(old: int, new: int) -> None:
    asked: list[str] = []

    def fetch(path: str) -> bytes:
        asked.append(path)
        return _file_of_numbers(path, new)

    checked = check_tree(fetch, new, lambda *_: None, old, full=False)
    assert (checked.old_root, checked.root) == (_number_root(old), _number_root(new))
    assert checked.entries == new - old // 256 * 256
    # Of what was complete nothing is asked for: a right edge is a tile at each level.
    bundles, higher = new // 256 - old // 256 + 1, new // 65_536 - old // 65_536 + 1
    assert len(asked) <= 2 * bundles + higher + 1


def _file_of_numbers(path: str, size: int) -> bytes:
    """Serve the log whose entries are 0, 1, 2 and so on."""
    ref = parse_tile_path(path)
    if ref.level is None:
        first = 256 * ref.index
        return encode_bundle([n.to_bytes(4, "big") for n in range(first, first + ref.width)])
    assert ref.width == min(256, (size >> 8 * ref.level) - 256 * ref.index)
    start = 256 * ref.index
    return b"".join(_rows_of_numbers()[8 * ref.level][start : start + ref.width])


@cache
def _rows_of_numbers() -> list[list[bytes]]:
    rows = [leaf_hashes(n.to_bytes(4, "big") for n in range(2**17))]
    while len(rows[-1]) > 1:
        rows.append(node_hashes(rows[-1]))
    return rows


def _number_root(size: int) -> bytes:
    return tree_root(size, lambda level, index: _rows_of_numbers()[level][index])


@pytest.mark.parametrize("state", [False, True], ids=["mirror", "state file"])
def test_a_second_call_asks_only_for_what_is_new(state: bool, tmp_path: Path) -> None:
    def call(files: Files) -> tuple[list[str], LogReport]:
        asked: list[str] = []
        fetch = fetch_files(files)

        def noted(path: str) -> bytes:
            asked.append(path)
            return fetch(path)

        if state:
            return asked, verify_log(noted, VERIFIER, tmp_path / "state.json")
        return asked, mirror_log(noted, VERIFIER, tmp_path)

    asked, report = call(HONEST)
    assert sorted(asked) == sorted(HONEST)
    assert (report.before, report.entries) == (0, SIZE)
    asked, report = call(HONEST)
    assert asked == ["checkpoint"]
    assert (report.before, report.entries, report.tiles, report.size) == (SIZE, 0, 0, SIZE)
    assert report.first == oracle.entries(SIZE)[0]
    asked, report = call(LONGER)
    assert sorted(asked) == sorted((set(LONGER) - set(HONEST)) | {"checkpoint"})
    assert (report.before, report.entries, report.size) == (SIZE, 301, SIZE + 300)
    assert report.root == oracle.mth(oracle.entries(SIZE + 300))
    assert report.first == oracle.entries(SIZE)[0]


@pytest.mark.parametrize("size", [0, 1])
def test_a_log_is_followed_from_its_beginning(size: int, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    for grown in (0, size, 300):
        report = verify_log(fetch_files(log_files(oracle.entries(grown))), VERIFIER, state)
        assert report.size == grown
    assert report.first == oracle.entries(1)[0]


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"\xff",
        b"[]\n",
        b'{"checkpoint":null,"first":null}\n',
        canonical.encode({"checkpoint": log_files((b"a",), STRANGER)["checkpoint"].decode()}),
        canonical.encode({"checkpoint": HONEST["checkpoint"].decode()}),
        canonical.encode({"checkpoint": HONEST["checkpoint"].decode(), "first": "?"}),
    ],
    ids=["empty", "not UTF-8", "a list", "null", "other key", "without first", "not base64"],
)
def test_a_state_file_of_something_else_is_left_alone(held: bytes, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_bytes(held)
    with pytest.raises(LogError, match="no checkpoint of this log"):
        verify_log(fetch_files(HONEST), VERIFIER, state)
    assert state.read_bytes() == held


def test_a_state_file_that_cannot_be_used_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(LogUnreachableError, match="cannot be read"):
        verify_log(fetch_files(HONEST), VERIFIER, tmp_path)
    with pytest.raises(LogUnreachableError, match="cannot be written"):
        verify_log(fetch_files(HONEST), VERIFIER, tmp_path / "absent" / "state.json")


@pytest.mark.parametrize(
    "held",
    [log_files((b"a",), STRANGER)["checkpoint"], b"", b"\xff", HONEST["checkpoint"] + b"\n"],
    ids=["other key", "empty", "not UTF-8", "malformed"],
)
def test_a_mirror_of_something_else_is_left_alone(held: bytes, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(held)
    with pytest.raises(LogError, match="another log's checkpoint"):
        mirror_log(fetch_files(HONEST), VERIFIER, tmp_path)
    assert read_files(tmp_path) == {"checkpoint": held}


def test_a_refused_log_leaves_an_empty_mirror(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        mirror_log(fetch_files(HONEST | {"tile/1/000.p/1": bytes(32)}), VERIFIER, tmp_path)
    assert read_files(tmp_path) == {}


NEW_FILES = len(set(LONGER) - set(HONEST)) + 1  # and the checkpoint


class PlantedFaultError(Exception):
    pass


@pytest.mark.parametrize("persisted", [False, True], ids=["failed", "failed but persisted"])
@pytest.mark.parametrize("fault_at", range(NEW_FILES))
def test_a_mirror_is_whole_whenever_publishing_stops(
    fault_at: int, persisted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_log(fetch_files(HONEST), VERIFIER, tmp_path)
    moved = 0
    replace = Path.replace

    def faulty(self: Path, target: Any) -> Path:
        nonlocal moved
        moved += 1
        if moved == fault_at + 1:
            if persisted:
                replace(self, target)
            raise PlantedFaultError
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", faulty)
    with pytest.raises(PlantedFaultError):
        mirror_log(fetch_files(LONGER), VERIFIER, tmp_path)
    monkeypatch.undo()
    # Only the very last move, of the checkpoint, may have made the mirror the longer one.
    last = persisted and fault_at == NEW_FILES - 1
    assert verify_log(fetch_from(tmp_path), VERIFIER).size == (SIZE + 300 if last else SIZE)
    mirror_log(fetch_files(LONGER), VERIFIER, tmp_path)
    assert read_files(tmp_path) == HONEST | LONGER


Follow = Callable[[Fetch, Path], LogReport]


def _mirrored(fetch: Fetch, path: Path) -> LogReport:
    return mirror_log(fetch, VERIFIER, path / "mirror")


def _stated(fetch: Fetch, path: Path) -> LogReport:
    return verify_log(fetch, VERIFIER, path / "state.json")


@pytest.mark.parametrize("follow", [_mirrored, _stated], ids=["mirror", "state"])
@pytest.mark.parametrize("forked", [False, True], ids=["grown", "forked"])
def test_what_another_process_holds_by_then_is_not_replaced_by_less(
    follow: Follow, forked: bool, tmp_path: Path
) -> None:
    """Two commands follow one log at once: the slower one compares with what the other saw."""
    served = fetch_files(HONEST)
    others = fetch_files(FORKED if forked else LONGER)
    seen: list[LogReport] = []

    def slowly(path: str) -> bytes:
        nonlocal served
        if path == CHECKPOINT and seen and not forked:
            served = others  # by now this process is shown the longer log too
        data = served(path)
        if path == CHECKPOINT and not seen:
            seen.append(follow(others, tmp_path))
        return data

    if forked:
        with pytest.raises(LogForkedError):
            follow(slowly, tmp_path)
    else:
        assert follow(slowly, tmp_path).size == SIZE + 300
    again = follow(others, tmp_path)
    assert (again.size, again.root) == (seen[0].size, seen[0].root)


def test_a_process_that_stops_while_it_writes_a_mirror_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ALONE_WAIT_S", 0.0)
    mirror_log(fetch_files(HONEST), VERIFIER, tmp_path)
    with files.alone_in(tmp_path), pytest.raises(LogUnreachableError, match="cannot be"):
        mirror_log(fetch_files(LONGER), VERIFIER, tmp_path)
    assert verify_log(fetch_from(tmp_path), VERIFIER).size == SIZE


def test_what_a_killed_process_left_in_a_mirror_is_removed(tmp_path: Path) -> None:
    """It may be as much as a whole log, each time that a monitor is ended while it reads."""
    killed, working = tmp_path / ".incoming-killed", tmp_path / ".incoming-working"
    for place in (killed, working):
        (place / "tile" / "0").mkdir(parents=True)
        (place / "tile" / "0" / "000").write_bytes(bytes(8192))
    descriptor = os.open(working, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    inside: list[str] = []

    def reading(path: str) -> bytes:
        inside.extend(one.name for one in tmp_path.glob(".incoming-*") if path == CHECKPOINT)
        return fetch_files(HONEST)(path)

    mirror_log(reading, VERIFIER, tmp_path)
    assert working.name in inside
    assert killed.name not in inside
    assert len(inside) == 2
    os.close(descriptor)
    mirror_log(fetch_files(HONEST), VERIFIER, tmp_path)
    assert read_files(tmp_path) == HONEST


def test_a_mirror_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LogUnreachableError, match="cannot be written"):
        mirror_log(fetch_files(HONEST), VERIFIER, tmp_path / "file")


def test_files_are_on_disk_before_the_checkpoint_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    replace, fsync = Path.replace, os.fsync

    def spy_replace(self: Path, target: Any) -> Path:
        calls.append(Path(target).name)
        return replace(self, target)

    def spy_fsync(descriptor: int) -> None:
        calls.append("sync")
        fsync(descriptor)

    monkeypatch.setattr(Path, "replace", spy_replace)
    monkeypatch.setattr(os, "fsync", spy_fsync)
    mirror_log(fetch_files(HONEST), VERIFIER, tmp_path)
    assert calls[: len(HONEST)] == ["sync"] * len(HONEST)  # each file's bytes
    assert calls[-2:] == ["checkpoint", "sync"]
    assert calls[-3] == "sync"  # the directories that the tiles were moved to


def test_no_checkpoint_is_no_verdict() -> None:
    with pytest.raises(LogUnreachableError, match="no log here"):
        verify_log(fetch_files({}), VERIFIER)


def test_the_empty_log_verifies() -> None:
    assert verify_log(fetch_files(log_files(())), VERIFIER).root == EMPTY_ROOT
