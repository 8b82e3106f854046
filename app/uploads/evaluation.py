"""Held-out rows of a registration, checked and packed beside the training rows."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.problems import BodyTooLargeError, UploadError
from app.uploads.checked import CheckedHeldOut
from app.uploads.npz import (
    EVALUATED,
    HELD_OUT_RECORDS,
    Archive,
    Header,
    Headers,
    check_ids,
    read_ids,
)
from app.uploads.owned import Packed
from app.uploads.values import check_whole
from lethe.identity import COLUMN, HELD_OUT

FEATURES, LABELS, CLIENTS, SUBJECTS = EVALUATED
FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))
FLOATS32 = FLOATS[:2]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The held-out rows that a model accepts: features of this `shape`, and a label each.

    classes: their number, 0 if labels are numbers. labels: the shape of a row's label, None if
    rows have none. kinds: types of the features, which are packed as float64 if that is among
    them, else unchanged. missing: whether NaN is a value of a feature; most: the largest
    absolute value of one. refusal: why the model accepts none.
    """

    shape: tuple[int, ...]
    classes: int = 0
    labels: tuple[int, ...] | None = ()
    kinds: tuple[np.dtype[np.generic], ...] = FLOATS
    missing: bool = False
    most: float = np.inf
    refusal: str = ""

    def check(self, headers: Headers, max_bytes: int) -> None:
        """Check held-out rows by their headers. Without any of EVALUATED there are none.

        Raises UploadError: an array is missing, or has a wrong shape or type;
        BodyTooLargeError: the rows, or the ids, would take more than `max_bytes`.
        """
        if not any(name in headers for name in EVALUATED):
            return
        if self.refusal:
            raise UploadError(f"{FEATURES}: {self.refusal}")
        wanted = [name for name in EVALUATED if self.labels is not None or name != LABELS]
        missing = [name for name in (*wanted, HELD_OUT_RECORDS) if name not in headers]
        if missing:
            raise UploadError(f"the .npz has held-out rows and lacks: {', '.join(missing)}")
        features = headers[FEATURES]
        if features.shape[1:] != self.shape or features.dtype not in self.kinds:
            raise UploadError(f"{FEATURES} must be {self._words()}")
        rows = features.shape[0]
        if headers[HELD_OUT_RECORDS].shape != (rows,):
            raise UploadError(f"{HELD_OUT_RECORDS} must be one id for each row of {FEATURES}")
        if features.size * self._packed(features).itemsize > max_bytes:
            raise BodyTooLargeError(
                f"{FEATURES} take more than {max_bytes} bytes: hold out fewer rows"
            )
        if self.labels is not None:
            self._check_labels(headers[LABELS], (rows, *self.labels), max_bytes)
        check_ids(headers, (CLIENTS, SUBJECTS), rows, max_bytes)

    def add(self, packed: Packed, sent: Archive) -> None:
        """Add the held-out rows, if there are any; labels int64, numbers float64.

        Raises UploadError for an infinity, a NaN unless `missing`, a feature that is too large,
        or an unknown label.
        """
        if FEATURES not in sent.headers:
            return
        features = sent.headers[FEATURES]
        packed.add(FEATURES, self._packed(features), features, self._features(sent))
        if self.labels is None:
            none = Header((features.shape[0],), np.dtype(np.float64), False, 0)
            packed.add(LABELS, np.float64, none, [np.zeros(none.shape)])
        else:
            kind = np.int64 if self.classes else np.float64
            packed.add(LABELS, kind, sent.headers[LABELS], self._labels(sent))
        for name in (CLIENTS, SUBJECTS):
            packed.add_ids(name, read_ids(sent, name))

    def read(self, sent: Archive) -> CheckedHeldOut:
        """Return the held-out rows alone, as `add` packs them. Raises UploadError as it does.

        sent: has been checked, and has held-out rows.
        """
        for blocks in (self._features(sent), self._labels(sent)):
            deque(blocks, maxlen=0)
        ids = {name: read_ids(sent, HELD_OUT + name) for name in ("clients", "subjects")}
        records = read_ids(sent, HELD_OUT_RECORDS)
        if len(set(records)) != len(records):
            raise UploadError(f"{HELD_OUT_RECORDS} repeat an id: give each record its own id")
        prefix = HELD_OUT + COLUMN
        identities = {
            name.removeprefix(prefix): [row.tobytes() for row in sent.array(name)]
            for name in sent.headers
            if name.startswith(prefix)
        }
        features = sent.array(FEATURES).astype(self._packed(sent.headers[FEATURES]))
        labels = sent.array(LABELS).astype(np.int64 if self.classes else np.float64)
        return CheckedHeldOut(features, labels, {**ids, "records": records}, identities)

    def _words(self) -> str:
        if len(self.shape) > 1:
            return f"(m, {', '.join(map(str, self.shape))}) float32, or uint8 pixels"
        float32 = FLOATS[2] not in self.kinds
        kind = "float32" if float32 else "floating-point"
        return f"a {kind} matrix of {self.shape[0]} columns"

    def _packed(self, features: Header) -> np.dtype[np.generic]:
        return FLOATS[2] if FLOATS[2] in self.kinds else features.dtype

    def _check_labels(self, labels: Header, shape: tuple[int, ...], max_bytes: int) -> None:
        known = labels.dtype.kind in "iu" or (not self.classes and labels.dtype in FLOATS)
        if labels.shape != shape or not known:
            kind = "integer" if self.classes else "number"
            place = "pixel" if len(shape) > 1 else "row"
            raise UploadError(f"{LABELS} must be one {kind} for each {place}")
        if labels.size * 8 > max_bytes:
            raise BodyTooLargeError(
                f"{LABELS} take more than {max_bytes} bytes: hold out fewer rows"
            )

    def _features(self, sent: Archive) -> Iterator[NDArray[np.generic]]:
        for block in sent.blocks(FEATURES):
            if np.isinf(block).any() or (not self.missing and np.isnan(block).any()):
                raise UploadError(f"{FEATURES} hold a NaN or an infinity: clean the rows")
            if self.most < np.inf and (np.abs(block) > self.most).any():
                raise UploadError(f"{FEATURES} hold more than {self.most:g}: scale the rows")
            yield block

    def _labels(self, sent: Archive) -> Iterator[NDArray[np.generic]]:
        for block in sent.blocks(LABELS):
            if self.classes and (int(block.min()) < 0 or int(block.max()) >= self.classes):
                raise UploadError(f"{LABELS} must lie between 0 and {self.classes - 1}")
            check_whole(block, LABELS)
            if not np.isfinite(block).all():
                raise UploadError(f"{LABELS} hold a NaN or an infinity: leave out such rows")
            yield block
