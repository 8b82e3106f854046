import io
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.problems import BodyTooLargeError, UploadError
from app.uploads.statistics import parse_message
from tests.uploads import parsed

D, C, N = 3, 2, 4


def arrays(form: str = "gram") -> dict[str, Any]:
    codes = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 0, 2]], dtype=np.int64)
    labels = np.array([0, 1, 1, 0])
    gram = codes.T @ codes
    forms: dict[str, dict[str, Any]] = {
        "gram": {"gram": gram[np.triu_indices(D)]},
        "factor": {"factor": np.linalg.qr(codes.astype(np.float64))[1]},
        "sketch": {"sketch": codes[:2], "shift": np.int64(0), "residual": np.float64(9.5)},
    }
    return {
        "records": np.array([f"r{i}" for i in range(N)]),
        "counts": np.bincount(labels, minlength=C),
        "moment": codes.T @ np.eye(C, dtype=np.int64)[labels],
        "client": np.array("c0"),
        **forms[form],
    }


def pack(values: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=True, **values)
    return stream.getvalue()


def parse(values: dict[str, Any], max_bytes: int = 10**6) -> Any:
    shape: dict[str, Any] = {"dimension": D, "classes": C, "bits": 16, "max_bytes": max_bytes}
    return parsed(pack(values), partial(parse_message, **shape))


@pytest.mark.parametrize("form", ["gram", "factor", "sketch"])
def test_a_message_passes_and_keeps_its_arrays(form: str) -> None:
    sent = arrays(form)
    upload = parse(sent)
    assert upload.rows == N
    assert upload.records == ["r0", "r1", "r2", "r3"]
    assert upload.clients == upload.subjects == ["c0"] * N
    with np.load(io.BytesIO(upload.data)) as kept:
        assert set(kept) == {*sent, "subject"}
        for name, value in sent.items():
            assert np.array_equal(kept[name], value), name


def test_a_subject_may_be_named() -> None:
    assert parse({**arrays(), "subject": np.array("ann")}).subjects == ["ann"] * N


WRONG = [
    ("a surplus array", {"surplus": np.zeros(3)}, "nothing reads"),
    ("no records", {"records": np.array([], dtype="U1")}, "records"),
    ("a matrix of records", {"records": np.array([["a", "b"]])}, "records"),
    ("repeated records", {"records": np.array(["r0", "r0", "r1", "r2"])}, "repeat"),
    ("counts of floats", {"counts": np.array([2.0, 2.0])}, "counts"),
    ("counts of another shape", {"counts": np.array([1, 1, 2])}, "counts"),
    ("negative counts", {"counts": np.array([5, -1])}, "add up"),
    ("counts that do not add up", {"counts": np.array([2, 3])}, "add up"),
    ("counts that wrap around", {"counts": np.array([2**62, 2**62])}, "add up"),
    ("a moment of floats", {"moment": np.zeros((D, C))}, "moment"),
    ("a transposed moment", {"moment": np.zeros((C, D), dtype=np.int64)}, "moment"),
    ("two clients", {"client": np.array(["a", "b"])}, "client"),
    ("an empty client", {"client": np.array("")}, "client"),
    ("a full square", {"gram": np.zeros((D, D), dtype=np.int64)}, "upper triangle"),
    ("a Gram matrix of floats", {"gram": np.zeros(6)}, "upper triangle"),
    ("two forms", {"factor": np.zeros((2, D))}, "exactly one"),
]
WRONG_FACTOR = [
    ("too many rows", {"factor": np.zeros((4, D))}, "factor"),
    ("no rows", {"factor": np.zeros((0, D))}, "factor"),
    ("another width", {"factor": np.zeros((2, 2))}, "factor"),
    ("integers", {"factor": np.zeros((2, D), dtype=np.int64)}, "factor"),
    ("NaN", {"factor": np.full((2, D), np.nan)}, "NaN"),
]
WRONG_SKETCH = [
    ("floats", {"sketch": np.zeros((2, D))}, "sketch"),
    ("a shift of floats", {"shift": np.float64(1)}, "shift"),
    ("a negative shift", {"shift": np.int64(-1)}, "shift"),
    ("a huge shift", {"shift": np.int64(63)}, "shift"),
    ("a NaN residual", {"residual": np.float64("nan")}, "residual"),
    ("a negative residual", {"residual": np.float64(-1)}, "residual"),
    ("an integer residual", {"residual": np.int64(1)}, "residual"),
]


@pytest.mark.parametrize(
    ("form", "change", "named"),
    [
        *[pytest.param("gram", change, named, id=name) for name, change, named in WRONG],
        *[
            pytest.param("factor", change, named, id=name)
            for name, change, named in WRONG_FACTOR
        ],
        *[
            pytest.param("sketch", change, named, id=name)
            for name, change, named in WRONG_SKETCH
        ],
    ],
)
def test_no_other_message_passes(form: str, change: dict[str, Any], named: str) -> None:
    with pytest.raises(UploadError, match=named):
        parse({**arrays(form), **change})


@pytest.mark.parametrize("missing", ["records", "counts", "moment", "client", "gram"])
def test_nothing_may_be_missing(missing: str) -> None:
    sent = arrays()
    del sent[missing]
    with pytest.raises(UploadError):
        parse(sent)


@pytest.mark.parametrize("missing", ["shift", "residual"])
def test_a_sketch_says_how_far_it_may_be_off(missing: str) -> None:
    sent = arrays("sketch")
    del sent[missing]
    with pytest.raises(UploadError, match="shift and its residual"):
        parse(sent)


def test_a_message_that_unpacks_to_too_much_is_not_unpacked() -> None:
    with pytest.raises(BodyTooLargeError):
        parse(arrays(), max_bytes=100)


def test_pickles_are_refused() -> None:
    with pytest.raises(UploadError):
        parse({**arrays(), "client": np.array(["c"], dtype=object)})
