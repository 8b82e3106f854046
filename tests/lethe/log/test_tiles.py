"""Tiles, their addresses and bundles, against the definition in tlog-tiles."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.log.tiles import (
    MAX_ENTRY,
    TileError,
    TileRef,
    decode_bundle,
    encode_bundle,
    entries_path,
    parse_tile_path,
    split_tile,
    tile_level,
    tile_width,
)
from tests.lethe.log import oracle
from tests.lethe.log.logs import tile_bytes
from tests.lethe.log.vectors import case_name, cases

refs = st.builds(
    TileRef,
    st.one_of(st.none(), st.integers(0, 63)),
    st.integers(0, 2**55 - 1),
    st.integers(1, 256),
)


@pytest.mark.parametrize("case", cases("tile-paths"), ids=case_name)
def test_tile_path_vectors(case: Any) -> None:
    if case["wantErr"]:
        with pytest.raises(TileError):
            parse_tile_path(case["path"])
        return
    level = None if case["level"] == "entries" else case["level"]
    expected = TileRef(level, case["index"], case["width"])
    assert parse_tile_path(case["path"]) == expected
    assert expected.path == case["path"]


@pytest.mark.parametrize("case", cases("bundles"), ids=case_name)
def test_bundle_vectors(case: Any) -> None:
    data = bytes.fromhex(case["data"])
    if case["wantErr"]:
        with pytest.raises(TileError):
            decode_bundle(data)
    else:
        entries = [bytes.fromhex(entry) for entry in case["entries"]]
        assert decode_bundle(data) == entries
        assert encode_bundle(entries) == data


@given(refs)
def test_an_address_reads_back(ref: TileRef) -> None:
    assert parse_tile_path(ref.path) == ref
    if ref.level is None:
        assert ref.path == entries_path(ref.index, ref.width)


@given(st.text(alphabet="tile/0123x.pns-", max_size=30))
def test_a_file_has_one_address(text: str) -> None:
    for path in (text, "tile/0/" + text, "tile/entries/" + text):
        try:
            ref = parse_tile_path(path)
        except TileError:
            continue
        assert ref.path == path


@pytest.mark.parametrize(
    ("level", "index", "width"),
    [(-1, 0, 1), (64, 0, 1), (0, -1, 1), (0, 2**55, 1), (0, 0, 0), (0, 0, 257), (0, 0, -1)],
)
def test_what_is_no_tile_has_no_address(level: int, index: int, width: int) -> None:
    with pytest.raises(TileError):
        _ = TileRef(level, index, width).path


@given(st.integers(0, 3), st.integers(0, 300), st.integers(0, 2**30))
def test_width_is_how_many_complete_subtrees_there_are(
    level: int, index: int, size: int
) -> None:
    # tlog-tiles, "Merkle Tree": hash i of tile n covers leaves up to (n*256+i+1) * 256**l
    width = tile_width(level, index, size)
    assert 0 <= width <= 256
    if width:
        assert (index * 256 + width) * 256**level <= size
    if width < 256:
        assert (index * 256 + width + 1) * 256**level > size


def test_the_specifications_example_of_70000_entries() -> None:
    widths = [[ref.width for ref in tile_level(level, 70_000)] for level in range(4)]
    assert widths == [[256] * 273 + [112], [256, 17], [1], []]


def test_a_tree_of_256_has_a_full_tile_and_one_above() -> None:
    assert [ref.path for ref in tile_level(0, 256)] == ["tile/0/000"]
    assert [ref.path for ref in tile_level(1, 256)] == ["tile/1/000.p/1"]


@pytest.mark.parametrize("size", [1, 255, 256, 257, 700])
def test_tiles_hold_the_subtrees(size: int) -> None:
    entries = oracle.entries(size)
    read = oracle.StrictReader(entries)
    files: dict[TileRef, bytes] = {}
    for level in range(2):
        for ref in tile_level(level, size):
            files[ref] = tile_bytes(level, ref.index, ref.width, read)
            span = 256**level
            expected = [
                oracle.mth(entries[i * span : (i + 1) * span])
                for i in range(ref.index * 256, ref.index * 256 + ref.width)
            ]
            assert split_tile(files[ref]) == expected


@pytest.mark.parametrize("length", [0, 31, 33, 32 * 257])
def test_what_is_no_tile_is_not_split(length: int) -> None:
    with pytest.raises(TileError):
        split_tile(bytes(length))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=256))
@settings(deadline=None)
def test_a_bundle_reads_back(entries: list[bytes]) -> None:
    assert decode_bundle(encode_bundle(entries)) == entries


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_verdict(data: bytes) -> None:
    try:
        entries = decode_bundle(data)
    except TileError:
        return
    assert encode_bundle(entries) == data


def test_an_entry_has_at_most_65535_bytes() -> None:
    largest = bytes(MAX_ENTRY)
    assert decode_bundle(encode_bundle([largest] * 256)) == [largest] * 256
    with pytest.raises(TileError, match="65535"):
        encode_bundle([largest + b"x"])


@pytest.mark.parametrize("count", [0, 257])
def test_a_bundle_has_1_to_256_entries(count: int) -> None:
    with pytest.raises(TileError):
        encode_bundle([b""] * count)
