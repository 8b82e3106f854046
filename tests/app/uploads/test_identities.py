"""Identities in uploads: digests of a fixed width, never values."""

import io
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.problems import UploadError
from app.uploads.rows import parse_inputs, parse_table, parse_upload
from app.uploads.statistics import parse_message
from lethe.identity import WIDTH, digests, pack
from tests.uploads import Parsed, parsed

PARSE = partial(parse_upload, dimension=2, classes=2, bits=16, max_bytes=1 << 20)
MESSAGE = partial(parse_message, dimension=1, classes=1, bits=16, max_bytes=1 << 20)
INPUTS = partial(parse_inputs, shape=(2,), classes=2, pixels=False, max_bytes=1 << 20)
TABLE = partial(parse_table, columns=2, classes=2, max_bytes=1 << 20)
ANN = np.frombuffer(pack(digests("email", "ann@example.org")), dtype=np.uint8)
NOBODY = np.zeros(WIDTH, dtype=np.uint8)


def body(**changes: Any) -> bytes:
    arrays: dict[str, Any] = {
        "features": np.ones((2, 2), np.float32),
        "labels": np.array([0, 1]),
        "clients": np.array(["a", "b"]),
        "records": np.array(["r0", "r1"]),
        "identity_email": np.array([ANN, NOBODY]),
        "held_out_records": np.array(["r7"]),
        "held_out_identity_email": np.array([ANN]),
        **changes,
    }
    packed = io.BytesIO()
    np.savez(packed, **{name: array for name, array in arrays.items() if array is not None})
    return packed.getvalue()


def arrays_of(found: Parsed) -> dict[str, Any]:
    return dict(np.load(io.BytesIO(found.data), allow_pickle=False))


def test_digests_are_kept_as_they_came() -> None:
    kept = arrays_of(parsed(body(), PARSE))
    assert kept["identity_email"].tolist() == [ANN.tolist(), NOBODY.tolist()]
    assert kept["held_out_identity_email"].tolist() == [ANN.tolist()]
    assert kept["held_out_records"].tolist() == ["r7"]


def test_messages_of_statistics_have_them_too() -> None:
    sent = body(
        features=None, labels=None, clients=None, client=np.array("a"),
        counts=np.array([2]), moment=np.array([[3]]), gram=np.array([5]),
    )  # fmt: skip
    found = parsed(sent, MESSAGE)
    assert arrays_of(found)["identity_email"].tolist() == [ANN.tolist(), NOBODY.tolist()]
    assert found.records == ["r0", "r1"]
    assert found.held_out == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identity_email": np.array(["ann@example.org", ""])}, "values are hashed before"),
        ({"identity_email": np.array([b"x" * WIDTH] * 2)}, "identity_email must be 68 bytes"),
        ({"identity_email": np.array([ANN])}, "identity_email must be 68 bytes"),
        ({"identity_email": np.array([ANN, ANN]).copy("F")}, "by rows"),
        ({"identity_email": np.array([ANN, ANN], np.int8)}, "identity_email must be"),
        ({"identity_ANN": np.array([ANN, ANN])}, "must be named"),
        ({"held_out_identity_email": np.array([ANN, ANN])}, "held_out_identity_email must"),
        ({"held_out_records": None}, "need held_out_records"),
        ({"held_out_records": np.array(["r0"])}, "held_out_records repeat"),
        ({"held_out_records": np.array(["r7"] * 2),
          "held_out_identity_email": np.array([ANN, ANN])}, "held_out_records repeat"),
        ({"held_out_records": np.array([], str)}, "not empty"),
        ({f"identity_k{i}": np.array([ANN, ANN]) for i in range(8)}, "at most 8 kinds"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_and_nothing_is_stored(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UploadError, match=message) as refused:
        parsed(body(**changes), PARSE)
    assert "ann@" not in refused.value.detail


@pytest.mark.parametrize(
    ("parse", "rows"), [(PARSE, "features"), (INPUTS, "inputs"), (TABLE, "features")]
)
def test_no_door_keeps_a_value(parse: Any, rows: str) -> None:
    features = {"features": None, rows: np.ones((2, 2), np.float32)}
    kept = arrays_of(parsed(body(**features), parse))
    assert kept["identity_email"].tolist() == [ANN.tolist(), NOBODY.tolist()]
    values = np.array(["ann@example.org", ""])
    with pytest.raises(UploadError, match="values are hashed before"):
        parsed(body(**features, identity_email=values), parse)
