"""Files that are written together: all of them durable, or an error and nothing half written."""

import os
import stat
from pathlib import Path

import pytest

from lethe.files import PARTIAL, write_all_durably

CONTENTS = {f"file-{number}": bytes([number]) * 10 for number in range(40)}


def test_all_are_synced_and_the_directory_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    honest = os.fsync

    def fsync(descriptor: int) -> None:
        honest(descriptor)
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))

    monkeypatch.setattr(os, "fsync", fsync)
    write_all_durably(tmp_path, CONTENTS)
    assert synced == [*[False] * len(CONTENTS), True]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == CONTENTS
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("many", [1, len(CONTENTS)])
def test_a_disk_that_fills_up_is_an_error_and_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    given = dict([*CONTENTS.items()][:many])
    calls = iter([False] * (many // 2))

    def fsync(_: int) -> None:
        if next(calls, True):
            raise OSError(28, "no space")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="no space"):
        write_all_durably(tmp_path, given)
    for path in tmp_path.iterdir():
        assert not path.name.startswith(PARTIAL)
        assert path.read_bytes() == given[path.name]


def test_nothing_is_written_for_no_files(tmp_path: Path) -> None:
    write_all_durably(tmp_path, {})
    assert not [*tmp_path.iterdir()]
