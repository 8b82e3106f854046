"""What the demonstration deletes, and what it never does."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.demo.directory import (
    CONTENT,
    FOLDERS,
    MADE,
    MARKER,
    make_directory,
    write_private,
)
from workers.demo.service import DemoError


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_new_directory_has_its_folders_and_marker(tmp_path: Path) -> None:
    out = tmp_path / "some" / "where"
    make_directory(out, None)
    assert {path.name for path in out.iterdir()} == {*FOLDERS, MARKER}
    assert stat.S_IMODE((out / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE((out / "data").stat().st_mode) == 0o700


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    make_directory(tmp_path, None)
    assert (tmp_path / MARKER).exists()


def test_its_own_is_made_afresh(tmp_path: Path) -> None:
    make_directory(tmp_path, None)
    (tmp_path / "data" / "deep").mkdir()
    (tmp_path / "data" / "deep" / "lethe.db").write_text("old")
    (tmp_path / "service.json").write_text("{}")
    (tmp_path / "service.log").write_text("old")
    make_directory(tmp_path, None)
    assert everything(tmp_path) == {MARKER: CONTENT}


def foreign_service(out: Path) -> None:
    (out / "service.json").write_text("{}")


def foreign_data(out: Path) -> None:
    (out / "data").mkdir()
    (out / "data" / "thesis.tex").write_text("x")


def other_marker(out: Path) -> None:
    (out / MARKER).write_text("{}")
    foreign_data(out)


def marker_is_a_link(out: Path) -> None:
    genuine = out.parent / "genuine"
    genuine.write_bytes(CONTENT)
    (out / MARKER).symlink_to(genuine)
    foreign_data(out)


def marker_is_a_folder(out: Path) -> None:
    (out / MARKER).mkdir()
    foreign_data(out)


def something_else_too(out: Path) -> None:
    make_directory(out, None)
    (out / "thesis.tex").write_text("x")
    (out / "data" / "lethe.db").write_text("x")


def a_hidden_file_too(out: Path) -> None:
    make_directory(out, None)
    (out / ".git").mkdir()
    (out / ".git" / "config").write_text("x")


@pytest.mark.parametrize(
    "fill",
    [
        foreign_service,
        foreign_data,
        other_marker,
        marker_is_a_link,
        marker_is_a_folder,
        something_else_too,
        a_hidden_file_too,
    ],
)
def test_what_is_not_its_own_is_left_alone(
    fill: Callable[[Path], None], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    fill(out)
    before = everything(tmp_path)
    with pytest.raises(DemoError, match="choose another"):
        make_directory(out, None)
    assert everything(tmp_path) == before


def test_the_data_to_read_is_never_deleted(tmp_path: Path) -> None:
    make_directory(tmp_path, None)
    data = tmp_path / "data" / "rows.npz"
    data.write_text("x")
    with pytest.raises(DemoError, match="data file"):
        make_directory(tmp_path, data)
    assert data.read_text() == "x"


@pytest.mark.parametrize("name", sorted(MADE - {MARKER}))
def test_of_a_link_only_the_link_is_deleted(name: str, tmp_path: Path) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.mkdir()
    (precious / "thesis.tex").write_text("x")
    make_directory(out, None)
    if name in FOLDERS:
        (out / name).rmdir()
        (out / name).symlink_to(precious)
    else:
        (out / name).symlink_to(precious / "thesis.tex")
    make_directory(out, None)
    assert not (out / name).is_symlink()
    assert everything(precious) == {"thesis.tex": b"x"}


def test_a_private_file_is_private_from_the_start(tmp_path: Path) -> None:
    write_private(tmp_path / "key", "secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for taken in ("key", "link"):
        with pytest.raises(FileExistsError):
            write_private(tmp_path / taken, "other")
    assert (tmp_path / "key").read_text() == "secret"
    assert not (tmp_path / "elsewhere").exists()
