"""The bytes of new files, searched for erased vectors and ids.

No format is parsed. Complete retained and public vectors are cut out. The rest is searched for
runs of 16 bytes of an erased vector: the cutting comes first, since a run may span two retained
vectors. A vector that equals a retained one is not a trace of an erased one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from lethe.catalogue import CHECKS
from workers.judge.base import Judgement
from workers.judge.checks import judged

PROBE = CHECKS["bytes-probe"]
RUN = 4  # float32 numbers, 16 bytes
BETWEEN = b"\xff" * 16  # replaces each cut: NaN, which no vector holds
CHUNK = 1 << 16  # bytes searched for the next retained vector
# Bytes: a shorter id is searched in id tables only, in numbers it would match by chance.
SHORT = 4
LONG = 8  # bytes: a longer id is searched within lines too
AT_ONCE = 1000  # erased vectors whose runs are in memory
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ProbeClaim:
    """The result of a probe. files: number searched; rows: number of erased rows searched for.

    found: rows with a trace. unlike: vectors of zeros only, which cannot be told from padding.
    logged: whether the rows are those that the log's digest has as erased; None if the erased
    rows were not kept.
    """

    files: int
    rows: int
    found: int
    unlike: int
    logged: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Sought:
    """Vectors (n, d) and ids that must not be found, and those that may be.

    public: vectors that belong to no record, such as centroids. words: of the files' formats;
    an id among them is searched only as a whole line.
    """

    vectors: Vectors
    ids: Sequence[str]
    retained: Vectors
    retained_ids: Collection[str]
    public: Vectors
    words: bytes


def check_probe(claim: ProbeClaim) -> Judgement:
    """Judge a probe: a trace refutes; without a search the check is undecided."""
    value = f"{claim.found} of {claim.rows} found in {claim.files} files"
    if claim.unlike:
        value += f", {claim.unlike} only by id"
    if claim.logged is None:
        value = "the erased rows were not kept: nothing was looked for"
    elif not claim.logged:
        value = "the rows looked for are not those that were erased"
    unsure = claim.logged is None or claim.rows < 1 or claim.files < 1
    refuted = claim.found != 0 or claim.logged is False
    passed = not (refuted or unsure)
    return judged(PROBE, value, passed=passed, undecided=unsure and not refuted)


def probe(
    files: Mapping[str, bytes], tables: Collection[str], sought: Sought
) -> tuple[int, int]:
    """Return how many sought rows have a trace in a file, and how many are unsearchable.

    tables: names of the files that are lists of ids, one per line.
    """
    found = np.zeros(len(sought.ids), dtype=np.bool_)
    known = _digests(sought.retained) | _digests(sought.public)
    firsts = _firsts(np.concatenate([sought.retained, sought.public]))
    for name, data in files.items():
        rest = BETWEEN.join(_uncovered(data, known, firsts, 4 * sought.vectors.shape[1]))
        for start in range(0, len(found), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found[part] |= _vectors_in(rest, sought.vectors[part])
        found |= _ids_in(rest, sought, table=name in tables)
    return int(found.sum()), int((~_telling(sought.vectors).any(axis=1)).sum())


def _digests(vectors: Vectors) -> set[bytes]:
    return {_digest(row.tobytes()) for row in vectors.astype("<f4", copy=False)}


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _firsts(vectors: Vectors) -> NDArray[np.uint64]:
    """Return the first 8 bytes of the vectors, sorted."""
    first = np.ascontiguousarray(vectors[:, :2].astype("<f4"))
    return np.unique(first.view("<u8").ravel())


def _uncovered(
    data: bytes, known: Collection[bytes], firsts: NDArray[np.uint64], width: int
) -> Iterator[bytes]:
    """Yield the bytes outside of the known vectors of `width` bytes."""
    begin = at = 0
    while at + width <= len(data):
        # The usual case: one directly follows the other.
        if _digest(data[at : at + width]) in known:
            if begin < at:
                yield data[begin:at]
            begin = at = at + width
            continue
        end = min(at + CHUNK, len(data))
        places = (at + 1 + place for place in _places(data[at + 1 : end + 7], firsts))
        at = next((one for one in places if _digest(data[one : one + width]) in known), end)
    yield data[begin:]


def _places(data: bytes, keys: NDArray[np.uint64]) -> list[int]:
    """Return the offsets of sorted 8-byte keys in some bytes, ascending."""
    found = []
    for shift in range(min(8, max(0, len(data) - 7))):
        words = np.frombuffer(data, "<u8", count=(len(data) - shift) // 8, offset=shift)
        found.append(shift + 8 * np.flatnonzero(_among(words, keys)))
    return np.sort(np.concatenate(found)).tolist() if found else []


def _among(words: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    if not len(keys):
        return np.zeros(len(words), dtype=np.bool_)
    places = np.searchsorted(keys, words)
    same: NDArray[np.bool_] = keys[np.minimum(places, len(keys) - 1)] == words
    return same


def _telling(vectors: Vectors) -> NDArray[np.bool_]:
    """Return (n, d) which numbers are neither 0 nor subnormal, as small integers would be."""
    tell: NDArray[np.bool_] = np.abs(vectors) >= np.finfo(np.float32).tiny
    return tell


def _vectors_in(rest: bytes, vectors: Vectors) -> NDArray[np.bool_]:
    """Return (n,) which vectors, or which runs of them, some bytes hold.

    A run of zeros, or of one number, may be in any file: a vector without any other run is
    searched for as a whole.
    """
    values = np.ascontiguousarray(vectors.astype("<f4", copy=False))
    runs = np.lib.stride_tricks.sliding_window_view(values, RUN, axis=1)
    telling = np.lib.stride_tricks.sliding_window_view(_telling(values), RUN, axis=1)
    highest = np.where(telling, runs, -np.inf).max(axis=2)
    lowest = np.where(telling, runs, np.inf).min(axis=2)
    own = telling.any(axis=2) & (highest != lowest)
    found = np.zeros(len(vectors), dtype=np.bool_)
    for place in np.flatnonzero(~own.any(axis=1) & _telling(values).any(axis=1)).tolist():
        found[place] = values[place].tobytes() in rest
    row, _ = np.nonzero(own)
    words = np.ascontiguousarray(runs[own]).view("<u8").reshape(-1, 2)
    keys = np.unique(words[:, 0])
    places = _places(rest, keys)
    if not places:
        return found
    begins = np.array([place for place in places if place + 4 * RUN <= len(rest)], np.int64)
    data = np.frombuffer(rest, np.uint8)
    hits = data[begins[:, None] + np.arange(4 * RUN)].reshape(-1, 4 * RUN).view("V16").ravel()
    mine = np.ascontiguousarray(words).view("V16").ravel()
    there = {hit.tobytes() for hit in hits}
    for place, run in zip(row.tolist(), mine, strict=True):
        if not found[place]:
            found[place] = run.tobytes() in there
    return found


def _ids_in(rest: bytes, sought: Sought, *, table: bool) -> NDArray[np.bool_]:
    """Return (n,) which ids are lines of some bytes or, if long, are within other lines."""
    retained = {one.encode() for one in sought.retained_ids}
    lines = [line for line in rest.split(b"\n") if line not in retained]
    ids = [one.encode() for one in sought.ids]
    whole, strange = set(lines), b"\n".join(lines)
    found = [(len(one) >= SHORT or table) and one in whole for one in ids]
    long = [one for one in ids if len(one) >= LONG and one not in sought.words]
    keys = np.unique(np.array([int.from_bytes(one[:8], "little") for one in long], np.uint64))
    inside: set[bytes] = set()
    for place in _places(strange, keys):
        inside.update(one for one in long if strange.startswith(one, place))
    return np.array(found, dtype=np.bool_) | np.array([one in inside for one in ids], np.bool_)
