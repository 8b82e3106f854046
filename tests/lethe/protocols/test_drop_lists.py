"""DROP's downloads: what is read, and archives and rows that are refused by name."""

import hashlib
import struct
import zipfile
from base64 import b64encode
from io import BytesIO
from pathlib import Path

import pytest

from lethe import archives
from lethe.protocols import drop_lists
from lethe.protocols.drop_lists import DropError, checked

EMAIL = "20260801_4821_Email.csv"


def hashed(value: str) -> str:
    return b64encode(hashlib.sha256(value.encode()).digest()).decode()


def item(number: int) -> str:
    return f"Ab{number:010}"


def listed(*values: str, start: int = 0) -> bytes:
    rows = [f"{item(start + at)},{hashed(value)}" for at, value in enumerate(values)]
    return "\n".join(["ID,Hash", *rows]).encode() + b"\n"


def archive(
    path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as written:
        for name, data in members:
            written.writestr(name, data)
    return path


def test_the_published_vector_is_what_lethe_hashes() -> None:
    # CalPrivacy hashes a phone's last ten digits, as "+1(415)555-9317" in its examples.
    assert hashed("4155559317") == "vGM7y5n+hBXRSEAklhHDPCbysyNgYTmXdMcagGUOY8E="


def test_a_directory_that_points_before_the_file_is_damage(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.zip", (EMAIL, listed("a")))
    data = bytearray(file.read_bytes())
    at = len(data) - 22 + 16  # where the end says that the directory begins
    (offset,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at, offset + 10)
    file.write_bytes(data)
    with pytest.raises(DropError, match="damaged"), checked(file):
        pass


def test_a_name_that_is_not_the_utf8_it_claims_to_be_is_damage(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.zip", ("é" + EMAIL, listed("a")))  # the flag of UTF-8 is set
    file.write_bytes(file.read_bytes().replace("é".encode(), b"\xc3\x28"))
    with pytest.raises(DropError, match="damaged"), checked(file):
        pass


def test_lists_are_read_and_withdrawn_items_left_out(tmp_path: Path) -> None:
    removed = f"ID,Hash,ListType\n{item(1)},{hashed('b')},Email\n".encode()
    file = archive(
        tmp_path / "x.zip",
        (EMAIL, listed("a", "b", "c")),
        ("20260801_4821_Phone.csv", b"ID,Hash\r\n"),
        ("20260801_4821_Removed.csv", removed),
    )
    with checked(file) as lists:
        assert lists.types == {EMAIL: "Email", "20260801_4821_Phone.csv": "Phone"}
        assert lists.sizes == {EMAIL: 3, "20260801_4821_Phone.csv": 0}
        rows = list(lists.rows(EMAIL))
    assert [row.item for row in rows] == [item(0), item(2)]
    assert rows[1].digest == hashlib.sha256(b"c").digest()


@pytest.mark.parametrize(
    ("data", "line", "what"),
    [
        (b"", 1, "header"),
        (b"Id,Status\n", 1, "header"),
        (b"ID,Hash,Email\n", 1, "header"),
        (b"ID;Hash\n", 1, "header"),
        (b"\xff\xfeID,Hash\n", 1, "ASCII"),
        (listed("a") + b"\n", 3, "2 cells"),
        (listed("a") + b"short,x\n", 3, "12 letters"),
        (listed("a") + f'=cmd|" /C x",{hashed("b")}\n'.encode(), 3, "12 letters"),
        (listed("a") + f"=HYPERLINK(1),{hashed('b')}\n".encode(), 3, "12 letters"),
        (listed("a") + f"{item(1)},{hashed('b')},x\n".encode(), 3, "2 cells"),
        (listed("a") + f'"{item(1)}\n",{hashed("b")}\n'.encode(), 3, "CSV"),
        (listed("a") + f"{item(1)},{hashed('b')[:-1]}\n".encode(), 3, "base64"),
        (listed("a") + f"{item(1)},{hashed('b')[:-2]}B=\n".encode(), 3, "base64"),
        (listed("a") + f"{item(1)},{'0' * 64}\n".encode(), 3, "base64"),
        (listed("a") + f"{item(1)},jos\u00e9\n".encode(), 3, "ASCII"),
        (listed("a") + b"x" * 200 + b"\n", 3, "at most 100"),
        (listed("a") + listed("a").partition(b"\n")[2], 3, "twice"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(
    tmp_path: Path, data: bytes, line: int, what: str
) -> None:
    file = archive(tmp_path / "x.zip", (EMAIL, data))
    with pytest.raises(DropError) as refused, checked(file):
        pass
    assert refused.value.detail.startswith(f"{EMAIL}, line {line}: ")
    assert what in refused.value.detail


@pytest.mark.parametrize(
    "name",
    [
        "../20260801_4821_Email.csv",
        "/etc/passwd",
        "a/20260801_4821_Email.csv",
        "20260801_4821_Fax.csv",
        "Email.csv",
        "20260801_4821_Email.csv\n",
    ],
)
def test_a_name_that_drop_does_not_give_is_refused(tmp_path: Path, name: str) -> None:
    file = archive(tmp_path / "x.zip", (name, listed("a")))
    with pytest.raises(DropError, match="not named"), checked(file):
        pass


def test_archives_that_are_none_or_hide_something_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.zip"
    with zipfile.ZipFile(file, "w") as twice:
        twice.writestr(EMAIL, listed("a"))
        with pytest.warns(UserWarning, match="Duplicate"):
            twice.writestr(EMAIL, listed("b"))
    refused = {"twice": file.read_bytes(), "no list": archive(file).read_bytes()}
    many = [(f"20260801_4821_Email_{n}.csv", b"ID,Hash\n") for n in range(17)]
    refused["more than 16"] = archive(file, *many).read_bytes()
    lzma = archive(file, (EMAIL, listed("a")), method=zipfile.ZIP_LZMA)
    refused["another way"] = lzma.read_bytes()
    whole = archive(file, (EMAIL, listed("a")), method=zipfile.ZIP_STORED).read_bytes()
    refused["not a ZIP"] = whole[:40]
    refused["damaged"] = whole.replace(item(0).encode(), item(7).encode())  # the CRC differs
    for what, data in refused.items():
        file.write_bytes(data)
        with pytest.raises(DropError, match=what), checked(file):
            pass


def test_a_directory_of_many_entries_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"2026080{day}_{broker}_Email.csv" for day in range(1, 5) for broker in range(10)]
    file = archive(tmp_path / "x.zip", *[(name, listed()) for name in names])
    monkeypatch.setattr(zipfile, "ZipFile", lambda _: pytest.fail("the directory is read"))
    for block in (archives.BLOCK, 7):
        monkeypatch.setattr(archives, "BLOCK", block)
        with pytest.raises(DropError, match="more than 16 files"), checked(file):
            pass


def test_an_encrypted_list_is_refused(tmp_path: Path) -> None:
    data = bytearray(archive(tmp_path / "x.zip", (EMAIL, listed("a"))).read_bytes())
    central = data.index(b"PK\x01\x02")
    struct.pack_into("<H", data, central + 8, 1)
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(DropError, match="encrypted"), checked(tmp_path / "x.zip"):
        pass


def test_a_bomb_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB in a member of 64 KiB: refused after 101 bytes, with nothing unpacked."""
    packed = BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as written,
        written.open(EMAIL, "w", force_zip64=True) as member,
    ):
        member.write(b"ID,Hash\n")
        for _ in range(64):
            member.write(bytes(2**20))
    file = tmp_path / "x.zip"
    file.write_bytes(packed.getvalue())
    with pytest.raises(DropError, match="line 2: a row has at most"), checked(file):
        pass
    rows = archive(file, (EMAIL, listed("a", "b", "c")))
    monkeypatch.setattr(drop_lists, "MAX_ROWS", 2)
    with pytest.raises(DropError, match="line 4: a list has at most 2"), checked(rows):
        pass
    other = ("20260801_4821_Phone.csv", listed("c", start=2))
    archive(file, (EMAIL, listed("a", "b")), other)
    with pytest.raises(DropError, match="more than 2"), checked(rows):
        pass
    monkeypatch.setattr(drop_lists, "MAX_FILE", 10)
    with pytest.raises(DropError, match="at most 10 bytes"), checked(rows):
        pass
