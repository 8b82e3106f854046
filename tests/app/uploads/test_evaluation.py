"""Held-out rows beside the rows of networks and indexes, and alone where clients keep theirs."""

import io
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.problems import BodyTooLargeError, UploadError
from app.uploads.checked import CheckedHeldOut
from app.uploads.rows import UNMEASURED, parse_held_out, parse_inputs, parse_rows
from app.uploads.spool import Spool
from app.uploads.values import LARGEST
from lethe.identity import digests
from lethe.identity import pack as packed_identity
from tests.small import pack
from tests.uploads import parsed

M, MAX = 5, 1 << 20
NAMES = ("no", "yes")
IMAGES: dict[str, Any] = {"shape": (2, 4, 4), "classes": 3, "pixels": True}
EVE = np.frombuffer(packed_identity(digests("email", "eve@example.org")), dtype=np.uint8)


def held(features: Any, labels: Any, /, **changes: Any) -> dict[str, Any]:
    found = {
        "held_out_features": features,
        "held_out_labels": labels,
        "held_out_records": np.array([f"h{place}" for place in range(M)]),
        "held_out_clients": np.array(["c"] * M),
        "held_out_subjects": np.array(["s"] * M),
        **changes,
    }
    return {name: one for name, one in found.items() if one is not None}


def images(**changes: Any) -> dict[str, Any]:
    pixels, masks = np.zeros((M, 2, 4, 4), np.uint8), np.zeros((M, 4, 4), np.uint8)
    rows = {"inputs": pixels, "labels": masks, "clients": np.array(["c"] * M)}
    return {**rows, **held(pixels + 7, masks + 2, **changes)}


def of_images(arrays: dict[str, Any], max_bytes: int = MAX) -> dict[str, Any]:
    data = parsed(pack(arrays), partial(parse_inputs, **IMAGES, max_bytes=max_bytes)).data
    with np.load(io.BytesIO(data)) as kept:
        return {name: kept[name] for name in kept.files}


def test_images_are_kept_as_bytes_and_masks_by_pixel() -> None:
    kept = of_images(images())
    assert kept["held_out_features"].dtype == np.uint8
    assert (kept["held_out_features"] == 7).all()
    assert kept["held_out_labels"].shape == (M, 4, 4)
    assert kept["held_out_records"].tolist() == [f"h{place}" for place in range(M)]


BAD_IMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "another size": ({"held_out_features": np.zeros((M, 2, 4, 5), np.uint8)}, "(m, 2, 4, 4)"),
    "doubles": ({"held_out_features": np.zeros((M, 2, 4, 4))}, "float32, or uint8"),
    "too large": (
        {"held_out_features": np.full((M, 2, 4, 4), LARGEST * 2, np.float32)},
        "held_out_features hold more than",
    ),
    "a NaN": (
        {"held_out_features": np.full((M, 2, 4, 4), np.nan, np.float32)},
        "held_out_features hold a NaN",
    ),
    "a label for each row": ({"held_out_labels": np.zeros(M, int)}, "for each pixel"),
    "a class outside": ({"held_out_labels": np.full((M, 4, 4), 3)}, "between 0 and 2"),
    "an id twice": ({"held_out_records": np.array(["h"] * M)}, "repeat an id"),
    "no clients": ({"held_out_clients": None}, "lacks: held_out_clients"),
}


@pytest.mark.parametrize(("changes", "problem"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_bad_held_out_images_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UploadError) as caught:
        of_images(images(**changes))
    assert problem in caught.value.detail


def test_masks_that_would_take_too_much_are_refused_by_their_headers() -> None:
    with pytest.raises(BodyTooLargeError):
        of_images(images(), max_bytes=200)


def vectors(**changes: Any) -> bytes:
    rows = np.ones((M, 4), np.float32)
    arrays = {"features": rows, "clients": np.array(["c"] * M), **held(rows, None)}
    parse = partial(parse_rows, config=VECTORS, classes=(), max_bytes=MAX)
    return parsed(pack({**arrays, **changes}), parse).data


VECTORS = {"family": "vectors", "columns": 4}


def test_queries_of_an_index_have_no_label_and_fit_float32() -> None:
    with np.load(io.BytesIO(vectors())) as kept:
        assert kept["held_out_features"].dtype == np.float32
        assert not kept["held_out_labels"].any()
    with pytest.raises(UploadError, match="float32 matrix of 4 columns"):
        vectors(held_out_features=np.full((M, 4), 1e300))


@pytest.mark.parametrize(("output", "predict"), [("safetensors", None), ("onnx", None)])
def test_a_script_takes_held_out_rows_if_something_predicts(
    output: str, predict: str | None
) -> None:
    script = {"output": output, "predict": predict}
    config = {"family": "script", "columns": 2, "script": script}
    features, labels = np.ones((M, 2)), np.zeros(M, int)
    arrays = {"features": features, "labels": labels, "clients": np.array(["c"] * M)}
    parse = partial(parse_rows, config=config, classes=NAMES, max_bytes=MAX)
    assert parsed(pack(arrays), parse).rows == M
    whole = pack({**arrays, **held(features, labels)})
    if output == "onnx":
        assert parsed(whole, parse).rows == M
    else:
        with pytest.raises(UploadError, match="safetensors") as caught:
            parsed(whole, parse)
        assert caught.value.detail.endswith(UNMEASURED)


def alone(**changes: Any) -> CheckedHeldOut:
    """Parse held-out rows of a ridge head whose clients keep their rows."""
    arrays = held(np.ones((M, 3)), np.arange(M) % 2, **changes)
    with tempfile.TemporaryDirectory() as folder, closing(Spool(Path(folder))) as spool:
        spool.write(pack(arrays))
        return parse_held_out(spool, {"dimension": 3}, classes=NAMES, max_bytes=MAX)


def test_where_clients_keep_their_rows_held_out_rows_come_alone() -> None:
    found = alone(held_out_identity_email=np.stack([EVE] * M))
    assert (found.features.shape, found.labels.tolist()) == ((M, 3), [0, 1, 0, 1, 0])
    assert found.ids["records"] == [f"h{place}" for place in range(M)]
    assert found.identities == {"email": [EVE.tobytes()] * M}


def test_held_out_labels_of_other_names_are_refused() -> None:
    assert len(alone(label_names=np.array(NAMES)).labels) == M
    with pytest.raises(UploadError, match="label_names are not the model's classes"):
        alone(label_names=np.array(NAMES[::-1]))


BAD_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "learned rows too": ({"features": np.ones((M, 3))}, "clients keep the rows"),
    "identities of members": ({"identity_email": np.stack([EVE] * M)}, "clients keep the rows"),
    "labels alone": ({"labels": np.zeros(M, int)}, "clients keep the rows"),
    "nothing": ({"held_out_features": None}, "lacks: held_out_features"),
    "a NaN": ({"held_out_features": np.full((M, 3), np.nan)}, "held_out_features hold a NaN"),
    "a class outside": ({"held_out_labels": np.full(M, 2)}, "between 0 and 1"),
    "another width": ({"held_out_features": np.ones((M, 4))}, "3 columns"),
    "an id twice": ({"held_out_records": np.array(["h"] * M)}, "repeat an id"),
    "identities of others": ({"held_out_identity_email": np.stack([EVE])}, "for each row"),
}


@pytest.mark.parametrize(("changes", "problem"), BAD_ALONE.values(), ids=BAD_ALONE)
def test_what_is_sent_for_a_masked_model_is_nothing_else(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UploadError) as caught:
        alone(**changes)
    assert problem in caught.value.detail


@pytest.mark.parametrize("name", ["labels", "held_out_labels"])
def test_integers_to_predict_that_a_float_cannot_hold_are_refused(name: str) -> None:
    """They are packed as float64, which has another number next to each of them."""
    config = {"family": "recipe", "columns": 2}
    features = np.ones((M, 2))
    arrays = {"features": features, "labels": np.zeros(M, int), "clients": np.array(["c"] * M)}
    arrays |= held(features, np.zeros(M, int))
    parse = partial(parse_rows, config=config, classes=(), max_bytes=MAX)
    for number in (2**53, -(2**53)):
        assert parsed(pack({**arrays, name: np.full(M, number)}), parse).rows == M
    for number in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(UploadError, match=f"{name} hold an integer beyond"):
            parsed(pack({**arrays, name: np.full(M, number)}), parse)
