"""Identities pass through every reader, and none writes or sends a value."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lethe.identity import WIDTH, digests, pack
from workers.cli.features import features
from workers.data.extractors.identity import Identity
from workers.data.identities import contributed_npz, hashed
from workers.data.npz import load_npz
from workers.data.raw import load_raw
from workers.errors import DatasetError
from workers.registration.network import NetworkOptions
from workers.registration.network_source import Source
from workers.registration.network_source import prepare as prepare_network
from workers.registration.ridge import prepare as prepare_ridge
from workers.secure_sum.local import load_rows, message_of

EMAILS = ["Ann@example.org", "", "bob@example.org", "ann@example.org ", "", "eve@example.org"]
PHONES = ["+1 555 0100", "+1 555 0101", "", "", "", ""]


def federation(folder: Path, **changes: Any) -> Path:
    rows = len(EMAILS)
    arrays: dict[str, Any] = {
        "features": np.arange(2.0 * rows).reshape(rows, 2).astype(np.float32),
        "labels": np.arange(rows) % 2,
        "clients": np.array(["a", "a", "b", "a", "b", "b"]),
        "records": np.array([f"r{row}" for row in range(rows)]),
        "subjects": np.array(["s0", "s1", "s0", "s0", "s1", "s1"]),
        "is_test": np.arange(rows) >= 4,
        "identity_email": np.array(EMAILS),
        "identity_phone": np.array(PHONES),
        **changes,
    }
    path = folder / "data.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def expected(kind: str, values: list[str]) -> list[bytes]:
    return [pack(digests(kind, value)) if value else bytes(WIDTH) for value in values]


def rows_of(array: Any) -> list[bytes]:
    assert array.dtype == np.uint8
    return [bytes(row) for row in array]


def clean(data: bytes) -> Any:
    """Return the arrays of an .npz in which no identity is readable."""
    arrays = dict(np.load(io.BytesIO(data), allow_pickle=False))
    for name, array in arrays.items():
        for raw in (
            array.tobytes(),
            np.char.encode(array).tobytes() if array.dtype.kind == "U" else b"",
        ):
            assert b"example" not in raw.replace(b"\0", b""), name
            assert b"555" not in raw.replace(b"\0", b""), name
    return arrays


def test_a_registration_has_digests_of_all_rows_and_no_values(tmp_path: Path) -> None:
    found = load_npz(federation(tmp_path))
    assert found.identities["email"].tolist() == EMAILS
    prepared = prepare_ridge(found, Identity(2), ref="m")
    assert "only their ids and hashed identities are sent" in prepared.summary()
    assert (
        "quantiser; they are not sent"
        in prepare_ridge(replace(found, identities={}), Identity(2), ref="m").summary()
    )
    sent = clean(prepared.npz)
    assert rows_of(sent["identity_email"]) == expected("email", EMAILS[:4])
    assert rows_of(sent["identity_phone"]) == expected("phone", PHONES[:4])
    assert rows_of(sent["held_out_identity_email"]) == expected("email", EMAILS[4:])
    assert sent["held_out_records"].tolist() == ["r4", "r5"]
    assert sent["subjects"].tolist() == ["s0", "s1", "s0", "s0"]
    assert bytes(sent["identity_email"][0]) == bytes(sent["identity_email"][3])  # one person


def test_a_network_has_them_too(tmp_path: Path) -> None:
    path = federation(tmp_path)
    arrays = dict(np.load(path))
    arrays["inputs"] = arrays.pop("features")
    np.savez(path, **arrays)
    source = Source(path)
    sent = clean(prepare_network(source, ref="n", options=NetworkOptions("logistic")).npz)
    assert rows_of(sent["identity_email"]) == expected("email", EMAILS[:4])
    assert rows_of(sent["held_out_identity_email"]) == expected("email", EMAILS[4:])
    assert sent["subjects"].tolist() == arrays["subjects"].tolist()[:4]


def test_features_are_written_with_digests(tmp_path: Path) -> None:
    path, out = federation(tmp_path), tmp_path / "out.npz"
    command = ["extract", "--extractor", "identity", "--data", str(path)]
    result = CliRunner().invoke(features, [*command, "--out", str(out)])
    assert result.exit_code == 0, result.output
    clean(out.read_bytes())
    again = load_npz(out)
    assert rows_of(hashed("email", again.identities["email"])) == expected("email", EMAILS)
    assert again.subjects is not None
    assert again.subjects.tolist() == ["s0", "s1", "s0", "s0", "s1", "s1"]
    assert rows_of(load_raw(out).beside["identity_phone"]) == expected("phone", PHONES)


def test_contributions_have_digests(tmp_path: Path) -> None:
    path = federation(tmp_path)
    sent = clean(contributed_npz(path))
    assert rows_of(sent["identity_email"]) == expected("email", EMAILS[:4])
    assert sent["features"].shape == (4, 2)
    manifest = {"exponents": [0, 0], "bits": 16, "classes": ["0", "1"]}
    message = message_of(load_rows(path, people=True), ["r3", "r0"], manifest)
    assert rows_of(clean(message)["identity_email"]) == expected(
        "email", [EMAILS[3], EMAILS[0]]
    )
    assert "identity_email" not in clean(message_of(load_rows(path), ["r0"], manifest))


@pytest.mark.parametrize("identities", [{}, {"identity_email": None, "identity_phone": None}])
def test_held_out_rows_are_not_contributed(tmp_path: Path, identities: dict[str, Any]) -> None:
    """The service ignores is_test, and would learn them. Arrays of other lengths stay."""
    beside = {"label_names": np.array(list("abcdef")), "held_out_records": np.array(["h1"])}
    names = np.array([False, True, False, False, True, False])
    path = federation(tmp_path, **beside, is_test=names, **identities)
    sent = clean(contributed_npz(path))
    assert "is_test" not in sent
    assert sent["records"].tolist() == ["r0", "r2", "r3", "r5"]
    assert sent["features"][:, 0].tolist() == [0, 4, 6, 10]
    assert len(sent["labels"]) == len(sent["subjects"]) == 4
    assert sent["label_names"].tolist() == list("abcdef")
    assert sent["held_out_records"].tolist() == ["h1"]
    if not identities:
        kept = [EMAILS[at] for at in (0, 2, 3, 5)]
        assert rows_of(sent["identity_email"]) == expected("email", kept)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (np.array([True]), "is_test: must be one boolean for each row"),
        (np.zeros(6), "is_test: must be one boolean for each row"),
        (np.ones(6, bool), "is_test: holds out every row"),
    ],
)
def test_marks_of_held_out_rows_that_are_none_are_refused(
    tmp_path: Path, marks: Any, message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        contributed_npz(federation(tmp_path, is_test=marks))


def test_a_file_without_identities_is_sent_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, features=np.ones((2, 2)))
    assert contributed_npz(path) == path.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"identity_email": np.array(EMAILS[:5])}, "identity_email: must be one string"),
        ({"identity_email": np.ones((6, WIDTH - 1), np.uint8)}, "identity_email: must be"),
        ({"identity_email": np.ones(6)}, "identity_email: must be"),
        ({"identity_Email": np.array(EMAILS)}, "identity_Email: the kind"),
    ],
)
def test_odd_columns_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = federation(tmp_path, **changes)
    for read in (
        load_npz,
        load_raw,
        contributed_npz,
        lambda path: load_rows(path, people=True),
    ):
        with pytest.raises(DatasetError, match=message):
            read(path)


def test_a_bad_value_is_named_by_its_row_alone(tmp_path: Path) -> None:
    values = [*EMAILS[:2], "mallory\x07@example.org", *EMAILS[3:]]
    path = federation(tmp_path, identity_email=np.array(values))
    with pytest.raises(DatasetError, match="identity_email: row 2: ") as refused:
        contributed_npz(path)
    assert "mallory" not in str(refused.value)
