"""A backup's manifest, which whoever writes the directory may exchange."""

import json
from pathlib import Path

import pytest

from app.backup import archive
from app.backup.folder import open_folder
from app.backup.pieces import Followed, read_followed, write_followed
from migrations import HEAD


@pytest.mark.parametrize("value", ["[]", "{}", "1", '""'])
def test_a_manifest_that_grows_in_memory_is_not_parsed(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_OTHERS", 16)
    (tmp_path / archive.MANIFEST).write_text(f'{{"pieces":[{",".join([value] * 40)}]}}')
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("parsed"))
    with pytest.raises(ValueError, match="more values"):
        archive.load_manifest(tmp_path)


def test_a_manifest_of_many_files_and_pieces_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_OTHERS", 16)
    names = [f"artifacts/{number:08}-0000-4000-8000-000000000000" for number in range(99)]
    state = Followed(
        "2026-01-01T00:00:00+00:00",
        dict.fromkeys(names, "0" * 64),
        "log.example",
        ["0" * 64] * 1000,
        "root",
        HEAD,
        5,
    )
    with open_folder(tmp_path / "followed", new=True) as folder:
        write_followed(folder, state)
    assert read_followed(tmp_path / "followed") == state
