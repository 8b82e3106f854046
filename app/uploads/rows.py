"""Uploaded rows, checked before anything is stored.

Accepted rows are safe to compute with: finite, of consistent shapes, within the exactness
bound, and with distinct record ids. `subjects` defaults to the clients and, unless
`records_required`, `records` to the row numbers, which are distinct within one upload only.
Files are read in blocks; only the ids are in memory all at once.

Each parser raises UploadError if the file is no .npz, an array is missing or has a wrong shape
or type, a value is not one that the model accepts, such as a NaN or an unknown label, ids
repeat, or there are too many rows for exact arithmetic; BodyTooLargeError if it, or its ids,
would unpack to more than `max_bytes`; OSError if the disk is full or failing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.problems import BodyTooLargeError, UploadError
from app.schemas.families.manifests import manifest_of
from app.schemas.families.networks import PIXELS
from app.schemas.families.scripts import predicts
from app.schemas.families.sums import bounds, is_summed
from app.schemas.models import RowForm
from app.uploads.checked import CheckedHeldOut, CheckedUpload
from app.uploads.evaluation import FLOATS32, Evaluation
from app.uploads.npz import (
    HELD_OUT_ROWS,
    LABEL_NAMES,
    Archive,
    Header,
    Headers,
    check_exactness,
    opened,
)
from app.uploads.owned import OWNERS, Packed, add_owners, check_owners
from app.uploads.spool import Spool
from app.uploads.values import (
    BINS,
    LARGEST,
    Within,
    bounded_features,
    bounded_inputs,
    categorised,
    check_label_names,
    classes_below,
    finite,
    shares,
    sixteenths,
    targets,
    unmarked,
    without_infinity,
)
from app.vault.artifacts import StagedArtifact
from lethe.identity import COLUMN, HELD_OUT

COMMON, REQUIRED = ("labels", LABEL_NAMES, *OWNERS), ("labels", "clients")
Parser = Callable[..., CheckedUpload]
UNMEASURED = (
    "the program writes safetensors, by which only its own code predicts: name a program "
    '"predict" in the script, write ONNX, or leave the held-out rows out'
)


def parse_rows(
    body: Spool,
    file: StagedArtifact,
    config: Mapping[str, Any],
    *,
    classes: Sequence[str],
    max_bytes: int,
    records_required: bool = False,
) -> CheckedUpload:
    """Check uploaded rows in the form of a configuration's family, and pack them.

    classes: the names that labels number, none if they are numbers.
    """
    parse = FORMS[manifest_of(config).row_form](config, classes)
    return parse(body, file, max_bytes=max_bytes, records_required=records_required)


def _features(config: Mapping[str, Any], classes: Sequence[str]) -> Parser:
    dimension, bits = config["dimension"], config["bits"]
    return partial(parse_upload, dimension=dimension, bits=bits, **_named(classes))


def _inputs(config: Mapping[str, Any], classes: Sequence[str]) -> Parser:
    shape, pixels = config["input_shape"], config["network"]["id"] == PIXELS
    return partial(parse_inputs, shape=shape, pixels=pixels, **_named(classes))


def _table(config: Mapping[str, Any], classes: Sequence[str]) -> Parser:
    more: dict[str, Any] = {"missing": config.get("missing", True)}
    if not predicts(config):
        more["unmeasured"] = UNMEASURED
    if is_summed(config):
        more["within"] = Within(*bounds(config), config["weighted"])
    elif config.get("weighted"):
        more["weights"] = shares
    more["marks_bins"] = "bins" in config
    names = config.get("features", [])
    known = config.get("categories", {})
    more["categories"] = {names.index(name): len(own) for name, own in known.items()}
    return partial(parse_table, columns=config["columns"], **_named(classes), **more)


def _vectors(config: Mapping[str, Any], classes: Sequence[str]) -> Parser:
    return partial(parse_vectors, columns=config["columns"])


def _named(classes: Sequence[str]) -> dict[str, Any]:
    return {"classes": len(classes), "names": classes}


Form = Callable[[Mapping[str, Any], Sequence[str]], Parser]
# By the form that a family's manifest names.
FORMS: Mapping[RowForm, Form] = MappingProxyType(
    {"features": _features, "inputs": _inputs, "table": _table, "vectors": _vectors}
)


def parse_upload(
    body: Spool,
    file: StagedArtifact,
    *,
    dimension: int,
    classes: int,
    bits: int,
    max_bytes: int,
    names: Sequence[str] = (),
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz against a model's configuration, and pack it into `file`.

    names: of the classes, for a file that names its labels.
    """

    def fit(headers: Headers) -> None:
        features, labels = headers["features"], headers["labels"]
        if features.ndim != 2 or features.dtype not in (np.float16, np.float32, np.float64):
            raise UploadError("features must be a float16, float32 or float64 matrix")
        rows = features.shape[0]
        if features.shape[1] != dimension:
            raise UploadError(
                f"features have {features.shape[1]} columns, and the model takes {dimension}"
            )
        if rows == 0:
            raise UploadError("the upload has no rows")
        check_exactness(rows, bits)
        if labels.shape != (rows,) or labels.dtype.kind not in "iu":
            raise UploadError("labels must be one integer for each row")
        check_owners(headers, rows, max_bytes, evaluated=not records_required)
        held_out.check(headers, max_bytes)

    held_out = Evaluation((dimension,), classes)
    with (
        opened(body, max_bytes, ("features", *COMMON), ("features", *REQUIRED), fit) as sent,
        Packed(file) as packed,
    ):
        check_label_names(sent, names)
        features = sent.headers["features"]
        packed.add("features", features.dtype, features, finite(sent))
        packed.add("labels", np.int64, sent.headers["labels"], classes_below(sent, classes))
        held_out.add(packed, sent)
        rows = features.shape[0]
        return add_owners(packed, sent, rows, records_required=records_required)


def parse_held_out(
    body: Spool, config: Mapping[str, Any], *, classes: Sequence[str], max_bytes: int
) -> CheckedHeldOut:
    """Check an .npz of held-out rows alone, for a ridge head whose clients keep their rows."""
    held_out = Evaluation((config["dimension"],), len(classes))
    needed = HELD_OUT_ROWS

    def fit(headers: Headers) -> None:
        if any(not name.startswith(HELD_OUT) for name in headers.keys() - {LABEL_NAMES}):
            raise UploadError(
                f"clients keep the rows of this model: register it without rows, or with "
                f"{', '.join(needed)} and {HELD_OUT}{COLUMN}KIND alone"
            )
        if missing := [name for name in needed if name not in headers]:
            raise UploadError(f"the .npz lacks: {', '.join(missing)}")
        check_owners(headers, 0, max_bytes, evaluated=True)
        held_out.check(headers, max_bytes)

    with opened(body, max_bytes, ("features", *COMMON), (), fit) as sent:
        check_label_names(sent, classes)
        return held_out.read(sent)


def parse_inputs(
    body: Spool,
    file: StagedArtifact,
    *,
    shape: Sequence[int],
    classes: int,
    pixels: bool,
    max_bytes: int,
    names: Sequence[str] = (),
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz against a network's configuration, and pack it into `file`.

    inputs are (n, *shape): float32, or uint8 pixels of planes, which the worker scales to
    -1…1. labels are (n,), or masks (n, height, width) where `pixels`. names: as `parse_upload`.
    """

    def fit(headers: Headers) -> None:
        inputs, labels = headers["inputs"], headers["labels"]
        rows = inputs.shape[0] if inputs.ndim else 0
        if rows == 0:
            raise UploadError("the upload has no rows")
        if inputs.shape[1:] != tuple(shape):
            raise UploadError(f"inputs must be (n, {', '.join(map(str, shape))}) as registered")
        images = len(shape) == 3
        if inputs.dtype != np.float32 and not (images and inputs.dtype == np.uint8):
            raise UploadError("inputs must be float32" + (", or uint8 pixels" * images))
        if labels.shape != (rows, *(shape[1:] if pixels else ())) or (
            labels.dtype.kind not in "iu"
        ):
            raise UploadError(
                "labels must be one integer for each " + ("pixel" if pixels else "row")
            )
        if labels.size * 8 > max_bytes:  # in the stored form
            raise BodyTooLargeError(
                f"the labels take more than {max_bytes} bytes: send fewer rows at a time"
            )
        check_owners(headers, rows, max_bytes, evaluated=not records_required)
        held_out.check(headers, max_bytes)

    bytes_too = (np.dtype(np.uint8),) if len(shape) == 3 else ()
    held_out = Evaluation(
        tuple(shape),
        classes,
        labels=tuple(shape[1:]) if pixels else (),
        kinds=(np.dtype(np.float32), *bytes_too),
        most=LARGEST,
    )
    with (
        opened(body, max_bytes, ("inputs", *COMMON), ("inputs", *REQUIRED), fit) as sent,
        Packed(file) as packed,
    ):
        check_label_names(sent, names)
        inputs = sent.headers["inputs"]
        packed.add("inputs", inputs.dtype, inputs, bounded_inputs(sent))
        packed.add("labels", np.int64, sent.headers["labels"], classes_below(sent, classes))
        held_out.add(packed, sent)
        rows = inputs.shape[0]
        return add_owners(packed, sent, rows, records_required=records_required)


def parse_table(
    body: Spool,
    file: StagedArtifact,
    *,
    columns: int,
    classes: int,
    max_bytes: int,
    names: Sequence[str] = (),
    missing: bool = True,
    within: Within | None = None,
    weights: Callable[[Archive], Iterator[NDArray[np.generic]]] | None = None,
    marks_bins: bool = False,
    categories: Mapping[int, int] = MappingProxyType({}),
    unmeasured: str = "",
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz against a table's configuration, and pack it into `file`.

    features are (n, columns) and packed as float64; NaN is a value if it may be `missing`.
    labels are class indices, or finite numbers without classes. weights: reads an array
    `weights`, which the upload must have. marks_bins: a registration marks the rows that
    determine a forest's bins in an array `bins`; they are packed with the weight 0, and may
    also be held-out rows. categories: the number of categories by column. unmeasured: why the
    model accepts no held-out rows. names: as `parse_upload`.
    """
    if within is not None and within.weighted:
        weights = sixteenths
    needed = () if weights is None else ("weights",)
    optional = () if within is None and weights is None else ("weights",)
    if marks_bins:
        optional = (*optional, BINS)
    numbers = (np.float16, np.float32, np.float64)

    def fit(headers: Headers) -> None:
        features, labels = headers["features"], headers["labels"]
        if features.ndim != 2 or features.dtype not in numbers:
            raise UploadError("features must be a float16, float32 or float64 matrix")
        rows, width = features.shape
        if rows == 0:
            raise UploadError("the upload has no rows")
        if width != columns:
            raise UploadError(f"features have {width} columns, and the model takes {columns}")
        if features.size * 8 > max_bytes:  # in the stored form
            raise BodyTooLargeError(
                f"the features take more than {max_bytes} bytes: send fewer rows at a time"
            )
        whole = labels.dtype.kind in "iu"
        if labels.shape != (rows,) or not (whole or (not classes and labels.dtype in numbers)):
            kind = "integer" if classes else "number"
            raise UploadError(f"labels must be one {kind} for each row")
        if "weights" in headers:
            if not needed:
                raise UploadError("weights: the model is registered without: leave them out")
            if headers["weights"].shape != (rows,) or headers["weights"].dtype not in numbers:
                raise UploadError("weights must be one floating-point number for each row")
        if marks_bins and records_required and BINS in headers:
            raise UploadError(f"{BINS}: only a registration marks rows: leave the array out")
        marks = headers.get(BINS)
        if marks is not None and (marks.shape != (rows,) or marks.dtype.kind != "b"):
            raise UploadError(f"{BINS} must be one boolean for each row")
        check_owners(headers, rows, max_bytes, evaluated=not records_required)
        held_out.check(headers, max_bytes)

    held_out = Evaluation((columns,), classes, missing=missing, refusal=unmeasured)
    known = ("features", *COMMON, *optional)
    with (
        opened(body, max_bytes, known, ("features", *REQUIRED, *needed), fit) as sent,
        Packed(file) as packed,
    ):
        check_label_names(sent, names)
        features, labels = sent.headers["features"], sent.headers["labels"]
        values = without_infinity(sent, "features") if missing else finite(sent)
        if within is not None:
            values = bounded_features(values, features, within)
        if categories:
            values = categorised(values, features, categories)
        packed.add("features", np.float64, features, values)
        if classes:
            packed.add("labels", np.int64, labels, classes_below(sent, classes))
        else:
            packed.add("labels", np.float64, labels, targets(sent, within))
        if weights is not None:
            packed.add("weights", np.float64, sent.headers["weights"], weights(sent))
        rows, learned = features.shape[0], None
        if marks_bins:
            learned = np.ones(rows, bool) if records_required else unmarked(sent, rows)
            like = Header((rows,), np.dtype(np.float64), False, 0)
            packed.add("weights", np.float64, like, [learned])
        held_out.add(packed, sent)
        return add_owners(packed, sent, rows, learned, records_required=records_required)


def parse_vectors(
    body: Spool,
    file: StagedArtifact,
    *,
    columns: int,
    max_bytes: int,
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz of vectors, and pack it into `file`.

    features are (n, columns) float16 or float32, packed as float32; a label is not needed, and
    is packed as 0.
    """

    def fit(headers: Headers) -> None:
        features = headers["features"]
        if features.ndim != 2 or features.dtype not in (np.float16, np.float32):
            raise UploadError("features must be a float16 or float32 matrix of vectors")
        rows, width = features.shape
        if rows == 0:
            raise UploadError("the upload has no rows")
        if width != columns:
            raise UploadError(
                f"the vectors have {width} dimensions, and the index takes {columns}"
            )
        if features.size * 4 > max_bytes:  # in the stored form
            raise BodyTooLargeError(
                f"the vectors take more than {max_bytes} bytes: send fewer rows at a time"
            )
        check_owners(headers, rows, max_bytes, evaluated=not records_required)
        held_out.check(headers, max_bytes)

    held_out = Evaluation((columns,), labels=None, kinds=FLOATS32)
    with (
        opened(body, max_bytes, ("features", *OWNERS), ("features", "clients"), fit) as sent,
        Packed(file) as packed,
    ):
        features = sent.headers["features"]
        rows = features.shape[0]
        packed.add("features", np.float32, features, finite(sent))
        none = Header((rows,), np.dtype(np.float64), False, 0)
        packed.add("labels", np.float64, none, [np.zeros(rows)])
        held_out.add(packed, sent)
        return add_owners(packed, sent, rows, records_required=records_required)
