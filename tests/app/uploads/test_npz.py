"""Archives that would unpack to more than they should, and are refused before they do."""

import io
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.problems import BodyTooLargeError, UploadError
from app.uploads import npz
from app.uploads.rows import parse_inputs, parse_table, parse_upload, parse_vectors
from app.uploads.statistics import parse_message
from tests.small import pack
from tests.uploads import Parsed, parsed

DIMENSION, CLASSES = 6, 3
MAX = 1 << 30
Parse = Callable[[bytes], Parsed]
RIDGE: dict[str, Any] = {"dimension": DIMENSION, "classes": CLASSES, "bits": 16}


def upload(data: bytes, max_bytes: int = MAX) -> Parsed:
    return parsed(data, partial(parse_upload, **RIDGE, max_bytes=max_bytes))


def inputs(data: bytes, max_bytes: int = MAX) -> Parsed:
    network: dict[str, Any] = {"shape": (3, 4, 4), "classes": 2, "pixels": True}
    return parsed(data, partial(parse_inputs, **network, max_bytes=max_bytes))


def message(data: bytes, max_bytes: int = MAX) -> Parsed:
    return parsed(data, partial(parse_message, **RIDGE, max_bytes=max_bytes))


def rows(count: int = 4, **changes: Any) -> dict[str, Any]:
    return {
        "features": np.ones((count, DIMENSION), np.float32),
        "labels": np.zeros(count, np.int64),
        "clients": np.array(["c"] * count),
        "records": np.array([f"r{i}" for i in range(count)]),
        **changes,
    }


def images(count: int = 4, **changes: Any) -> dict[str, Any]:
    return {
        "inputs": np.ones((count, 3, 4, 4), np.uint8),
        "labels": np.zeros((count, 4, 4), np.uint8),
        "clients": np.array(["c"] * count),
        **changes,
    }


def sums(**changes: Any) -> dict[str, Any]:
    return {
        "records": np.array(["r1", "r2"]),
        "counts": np.array([2, 0, 0]),
        "moment": np.zeros((DIMENSION, CLASSES), np.int64),
        "client": np.array("c"),
        "gram": np.zeros(DIMENSION * (DIMENSION + 1) // 2, np.int64),
        **changes,
    }


def deflated(arrays: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=True, **arrays)
    return stream.getvalue()


def doubled(name: str) -> bytes:
    stream = io.BytesIO(pack(rows()))
    again = io.BytesIO()
    np.save(again, np.zeros(4))
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "a") as archive:
        warnings.simplefilter("ignore", UserWarning)  # that the name is taken
        archive.writestr(name, again.getvalue())
    return stream.getvalue()


def crowded() -> bytes:
    stream = io.BytesIO(pack(rows()))
    with zipfile.ZipFile(stream, "a") as archive:
        for number in range(npz.MAX_MEMBERS):
            archive.writestr(f"{number}", b"")
    return stream.getvalue()


def headed(header: bytes, version: bytes = b"\x01\x00") -> bytes:
    """An .npz whose features begin with any header."""
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("labels", "clients"):
            inner = io.BytesIO()
            np.save(inner, rows()[name])
            archive.writestr(f"{name}.npy", inner.getvalue())
        archive.writestr("features.npy", b"\x93NUMPY" + version + size + header + bytes(96))
    return stream.getvalue()


WIDE = np.zeros((4, DIMENSION + 1), np.float32)
# What the headers alone give away: no data of any array may be unpacked to find it out.
BY_HEADERS: list[tuple[str, Parse, bytes]] = [
    ("another width", upload, pack(rows(features=WIDE))),
    ("integers", upload, pack(rows(features=np.ones((4, DIMENSION), np.int32)))),
    ("labels of another length", upload, pack(rows(labels=np.zeros(5, np.int64)))),
    ("ids of another length", upload, pack(rows(clients=np.array(["c"])))),
    ("room for ids too long", upload, pack(rows(records=np.arange(4).astype("U201")))),
    ("objects", upload, pack(rows(records=np.array([None] * 4)))),
    ("structures", upload, pack(rows(features=np.zeros(4, [("a", "<f4", (6,))])))),
    ("zeros", upload, deflated(rows(100_000, records=np.zeros(100_000, "S8")))),
    ("a member twice", upload, doubled("features.npy")),
    ("a member twice by its short name", upload, doubled("features")),
    ("too many members", upload, crowded()),
    ("a header that does not end", upload, headed(b"{'descr': '<f4', ((((\n")),
    ("a header of nests", upload, headed(b"(" * 9_000)),
    ("a long header", upload, headed(b" " * 20_000)),
    ("a header longer than its file", upload, headed(b"", b"\x02\x00")[:-1] + b"\0"),
    ("a negative shape", upload, headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -6)}\n")),
    ("images of another size", inputs, pack(images(inputs=np.zeros((4, 3, 4, 5), np.uint8)))),
    ("doubles", inputs, pack(images(inputs=np.zeros((4, 3, 4, 4))))),
    ("a label for each row", inputs, pack(images(labels=np.zeros(4, np.uint8)))),
    ("another triangle", message, pack(sums(gram=np.zeros(5, np.int64)))),
    ("another moment", message, pack(sums(moment=np.zeros((DIMENSION, 9), np.int64)))),
    ("two forms", message, pack(sums(factor=np.zeros((1, DIMENSION))))),
    ("many clients", message, pack(sums(client=np.array(["c"] * 9)))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parse", "data"), [case[1:] for case in BY_HEADERS], ids=[case[0] for case in BY_HEADERS]
)
def test_what_headers_give_away_is_refused_before_anything_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, parse: Parse, data: bytes
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the data of an array were unpacked")

    monkeypatch.setattr(npz, "read_blocks", never)
    with pytest.raises(UploadError):
        parse(data)


def test_many_members_are_counted_before_each_becomes_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = crowded()
    monkeypatch.setattr(zipfile, "ZipFile", lambda _: pytest.fail("the directory is read"))
    with pytest.raises(UploadError, match="members"):
        upload(data)


def test_a_header_that_numpy_would_parse_for_seconds_is_never_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spaces = (
        b"{'descr': '<f4'< 'fortran_order': False, 'shape': (4, 6), }".ljust(9_000) + b"$\n"
    )
    monkeypatch.setattr(
        "numpy.lib.format.read_array_header_1_0", lambda *_: pytest.fail("parsed")
    )
    for length in (npz.MAX_HEADER + 1, len(spaces)):
        with pytest.raises(UploadError, match="header is too long"):
            upload(headed(spaces[-length:]))


@pytest.mark.parametrize(
    ("parse", "arrays", "max_bytes"),
    [
        (upload, rows(1_000), 1_000 * npz.ROW_BYTES),  # the ids as Python has them
        (upload, rows(1_000, clients=np.zeros(1_000, "S200")), 700_000),  # four bytes each
        (inputs, images(1_000), 100_000),  # labels are kept in eight bytes
        (message, sums(records=np.arange(1_000)), 100_000),
    ],
)
def test_what_grows_once_it_is_read_counts_as_it_will_be(
    monkeypatch: pytest.MonkeyPatch, parse: Any, arrays: dict[str, Any], max_bytes: int
) -> None:
    monkeypatch.setattr(npz, "read_blocks", lambda *_: pytest.fail("data were unpacked"))
    with pytest.raises(BodyTooLargeError):
        parse(pack(arrays), max_bytes)


TABLE: dict[str, Any] = {"columns": DIMENSION, "max_bytes": MAX}
ABC = ("a", "b", "c")


def table(data: bytes, classes: int, names: tuple[str, ...]) -> Parsed:
    return parsed(data, partial(parse_table, **TABLE, classes=classes, names=names))


@pytest.mark.parametrize(
    ("parse", "arrays"),
    [
        (lambda data: parsed(data, partial(parse_upload, **RIDGE, max_bytes=MAX, names=ABC)), rows()),
        (lambda data: parsed(data, partial(parse_inputs, shape=(3, 4, 4), classes=3, pixels=True, max_bytes=MAX, names=ABC)), images()),
        (lambda data: table(data, 3, ABC), rows()),
        (lambda data: table(data, 0, ()), rows()),
    ],
    ids=["ridge", "network", "classes", "numbers"],
)  # fmt: skip
def test_labels_of_other_names_than_the_classes_are_refused(
    parse: Parse, arrays: dict[str, Any]
) -> None:
    """Labels are numbers of the model's classes: others would be learned."""
    assert parse(pack(arrays)).rows == 4
    for names in (["b", "a", "c"], ["a", "b"], ["a", "b", "d"], [b"a", b"b", b"c"], [0, 1, 2]):
        named = {**arrays, "label_names": np.array(names)}
        with pytest.raises(UploadError, match=r"label_names .* lethe client contribute"):
            parse(pack(named))
    wide = {**arrays, "label_names": np.array(ABC, "U5000")}
    with pytest.raises(UploadError, match="label_names"):
        parse(pack(wide))


@pytest.mark.parametrize("order", ["<", ">"])
def test_labels_that_are_named_as_the_classes_are_taken(order: str) -> None:
    named = rows(label_names=np.array(ABC).astype(f"{order}U3"))
    found = table(pack(named), 3, ABC)
    assert found.rows == 4
    with np.load(io.BytesIO(found.data)) as kept:
        assert "label_names" not in kept.files


@pytest.mark.parametrize(
    "parse",
    [partial(parse_vectors, **TABLE), partial(parse_table, **TABLE, classes=3)],
    ids=["vectors", "table"],
)
def test_rows_that_are_marked_as_held_out_are_not_learned(parse: Callable[..., Any]) -> None:
    """Only commands set such rows aside; the API would learn them, and nobody would notice."""
    assert parsed(pack(rows(is_test=np.zeros(4, np.bool_))), parse).rows == 4
    for marks in (np.arange(4) == 3, np.ones(4), np.array(["no"] * 4), np.zeros((4, 2), bool)):
        with pytest.raises(UploadError, match=r"is_test .* held_out_features"):
            parsed(pack(rows(is_test=marks)), parse)


@pytest.mark.parametrize("name", ["identities_email", "feature", "label_names", "is_test", ""])
def test_an_array_of_held_out_rows_that_nothing_reads_is_refused(name: str) -> None:
    """Ignored, it would leave a person's held-out rows unfound."""
    arrays = {**rows(), f"held_out_{name}": np.zeros((2, 32), np.uint8)}
    for parse in (upload, lambda data: table(data, 3, ABC)):
        with pytest.raises(UploadError, match=r"nothing reads.*held_out_identity_KIND"):
            parse(pack(arrays))


def test_marks_count_as_what_is_unpacked() -> None:
    """They are read to their end, too: a hundredth of them would pass the limit."""
    marked = deflated(rows(is_test=np.zeros(1 << 16, np.bool_)))
    assert len(marked) < 1 << 12
    assert parsed(marked, partial(parse_table, columns=DIMENSION, classes=3, max_bytes=1 << 17))
    with pytest.raises(BodyTooLargeError):
        parsed(marked, partial(parse_table, columns=DIMENSION, classes=3, max_bytes=1 << 15))


def test_vectors_have_no_labels_that_could_be_others() -> None:
    named = rows(label_names=np.array(["b", "a"]))
    assert parsed(pack(named), partial(parse_vectors, **TABLE)).rows == 4


@pytest.mark.parametrize("save", [pack, deflated])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_read_is_what_was_saved(save: Callable[..., bytes], order: Any) -> None:
    rng = np.random.default_rng(0)
    features = np.asarray(rng.normal(size=(60_000, DIMENSION)).astype(np.float32), order=order)
    count = len(features)
    arrays = rows(count, features=features, labels=rng.integers(CLASSES, size=count))
    checked = upload(save(arrays))
    with np.load(io.BytesIO(checked.data)) as found:
        assert np.array_equal(found["features"], features)
        assert np.array_equal(found["labels"], arrays["labels"])
        assert found["records"].tolist() == arrays["records"].tolist() == checked.records


def test_a_bad_row_at_the_very_end_refuses_the_upload() -> None:
    count = 3 * npz.BLOCK // (4 * DIMENSION)  # several blocks
    for name, value in (("features", np.inf), ("labels", CLASSES), ("records", "r0")):
        arrays = rows(count)
        arrays[name] = arrays[name].copy()
        arrays[name][-1] = value
        with pytest.raises(UploadError):
            upload(pack(arrays))


STRANGE = {
    "": "1 to 200",
    "a\0b": "printable",
    "a\x1f": "printable",
    "\x7f": "printable",
    "\ud800": "half a character",
    "x" * 201: "1 to 200",
}


@pytest.mark.parametrize("strange", STRANGE)
def test_ids_are_looked_at_one_by_one_where_all_at_once_are_not_plain(strange: str) -> None:
    array = np.array(["good"] * 1_000 + [strange])
    with pytest.raises(UploadError, match=STRANGE[strange]):
        npz.ids(array, "records", len(array))
    good = np.array(["\u00e9", "\U0001f600", "a b", "x" * 200])
    for kind in (good.dtype, good.dtype.newbyteorder()):
        assert npz.ids(good.astype(kind), "records", 4) == good.tolist()


@pytest.mark.parametrize("code", [0x110000, 0x7FC00000, 0x80000030, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_an_id_that_is_no_character_is_refused(code: int, order: str) -> None:
    array = np.array([ord("r"), code], f"{order}u4").view(f"{order}U2")
    with pytest.raises(UploadError, match="UTF-8"):
        npz.ids(array, "records", 1)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_header_is_read(version: tuple[int, int]) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in rows().items():
            inner = io.BytesIO()
            np.lib.format.write_array(inner, array, version=version)
            archive.writestr(f"{name}.npy", inner.getvalue())
    assert upload(stream.getvalue()).rows == 4


def test_a_flipped_byte_of_data_is_found() -> None:
    good = pack(rows())
    data = np.ones((4, DIMENSION), np.float32).tobytes()
    at = good.index(data)
    bad = good[: at + 5] + bytes([good[at + 5] ^ 1]) + good[at + 6 :]
    with pytest.raises(UploadError, match="not a readable"):
        upload(bad)


def test_truncated_and_garbled_archives_are_refused() -> None:
    good = deflated(rows())
    rng = np.random.default_rng(1)
    for _ in range(300):
        bad = bytearray(good)
        for at in rng.integers(len(bad), size=3):
            bad[at] ^= int(rng.integers(1, 256))
        with suppress(UploadError, BodyTooLargeError):
            upload(bytes(bad[: rng.integers(1, len(bad) + 1)]))
