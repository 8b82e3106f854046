"""An upload read in blocks gives the same result as one read whole."""

import hashlib
import hmac
import io
from typing import Any

import numpy as np
import pytest

from lethe.certificates.retained_tree import retained_root
from workers.arrays import Rows
from workers.errors import RefusedError
from workers.families.ridge import uploads
from workers.families.ridge.rows import row_digests
from workers.families.ridge.stored import RowBlock
from workers.families.ridge.uploads import ParsedRidgeUpload, parse_upload
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_exact import METHOD
from workers.updates.update import FreshRecords, as_digests, split

COLUMNS, BLOCK = 5, 256
CONFIG = RidgeConfig(COLUMNS, 3, tuple(range(-12, -7)), 16, 1.0)


class Frugal(io.BytesIO):
    """A file that checks that at most one block and a buffer are read at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        assert len(found) <= max(BLOCK, 4096), len(found)
        return found


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BLOCK", BLOCK)


def arrays(count: int = 700) -> dict[str, Any]:
    """Rows whose owners alternate, and some codes that are clipped."""
    rng = np.random.Generator(np.random.PCG64(5))
    clients = [f"client-{number % 3}" for number in range(count)]
    return {
        "features": rng.standard_normal((count, COLUMNS)).astype(np.float32) * 4,
        "labels": rng.integers(0, 3, count),
        "clients": np.array(clients),
        "records": np.array([f"record-{number}-é" for number in range(count)]),
        "subjects": np.array([f"{one}/{n % 4}" for n, one in enumerate(clients)]),
    }


def packed(parts: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **parts)
    return file.getvalue()


def parse(parts: dict[str, Any], config: RidgeConfig = CONFIG) -> ParsedRidgeUpload:
    return parse_upload(Frugal(packed(parts)), config, 4, remote=False)


def test_each_row_comes_to_its_owner_as_it_was_sent() -> None:
    sent = arrays()
    upload = parse(sent)
    codes, clipped = CONFIG.quantiser.quantise(sent["features"])
    assert upload.saturated == clipped > 0
    owners = list(zip(sent["clients"].tolist(), sent["subjects"].tolist(), strict=True))
    assert list(upload.blocks) == list(dict.fromkeys(owners))
    for owner, block in upload.blocks.items():
        own = [place for place, one in enumerate(owners) if one == owner]
        assert isinstance(block, RowBlock)
        assert block.records == sent["records"][own].tolist()
        assert np.array_equal(block.rows.codes, codes[own])
        assert np.array_equal(block.rows.labels, sent["labels"][own])
        assert (block.learned == 4).all()
    assert upload.records == [one for block in upload.blocks.values() for one in block.records]
    assert len({*split(upload.salts())}) == len(owners)
    stored = [block.id_salts for block in upload.blocks.values() if isinstance(block, RowBlock)]
    assert np.array_equal(np.concatenate(stored), upload.salts())


def test_the_head_is_that_of_the_rows_as_they_were_sent() -> None:
    sent = arrays()
    codes, _ = CONFIG.quantiser.quantise(sent["features"])
    whole = METHOD.learn(CONFIG, None, Rows(codes, sent["labels"])).state
    streamed = METHOD.learn(CONFIG, None, parse(sent).batch).state
    assert streamed.head.tobytes() == whole.head.tobytes()
    assert streamed.statistics.gram.tobytes() == whole.statistics.gram.tobytes()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_features_may_be_stored_by_columns(kind: type) -> None:
    sent = arrays(40)
    sent["features"] = sent["features"].astype(kind)
    by_columns = {**sent, "features": np.asfortranarray(sent["features"])}
    rows, columns = parse(sent), parse(by_columns)
    assert isinstance(rows.batch, Rows)
    assert isinstance(columns.batch, Rows)
    assert np.array_equal(rows.batch.codes, columns.batch.codes)
    assert rows.saturated == columns.saturated


@pytest.mark.parametrize(
    "change",
    [
        {"records": np.array(["r0"])},
        {"clients": np.array(["c0"])},
        {"subjects": np.array(["s0"])},
        {"labels": np.zeros(41, np.int64)},
        {"clients": np.array(["c"] * 41)},
        {"features": np.zeros((40, COLUMNS + 1), np.float32)},
        {"features": np.zeros((41, COLUMNS), np.float32)},
        {"features": np.zeros((40, COLUMNS + 1), np.float32, order="F")},
        {"features": np.full((40, COLUMNS), np.nan, np.float32)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        parse({**arrays(40), **change})


def test_what_is_no_archive_or_lacks_an_array_is_refused() -> None:
    sent = arrays(40)
    del sent["subjects"]
    for data in (b"", b"no archive", packed(sent), packed(arrays(40))[:-400]):
        with pytest.raises(RefusedError):
            parse_upload(io.BytesIO(data), CONFIG, 1, remote=False)


def test_the_digest_of_a_row_does_not_depend_on_how_many_are_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (owner, block), *_ = parse(arrays()).blocks.items()
    assert isinstance(block, RowBlock)
    known = row_digests(block, owner)
    monkeypatch.setattr("workers.families.ridge.rows.CHUNK", 7)
    assert row_digests(block, owner) == known
    assert len(set(known)) == len(block.records)


def test_fresh_records_are_leaves_in_ascending_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.updates.update.LEAVES", 100)
    upload = parse(arrays())
    contents = as_digests(
        b"".join(hashlib.sha256(one.encode()).digest() for one in upload.records)
    )
    fresh = FreshRecords.salted(upload.records, upload.salts(), contents)
    leaves = [
        (hmac.digest(salt, record.encode(), "sha256"), hashlib.sha256(record.encode()).digest())
        for salt, record in zip(split(upload.salts()), upload.records, strict=True)
    ]
    assert list(zip(split(fresh.commitments), split(fresh.contents), strict=True)) == leaves
    assert list(fresh.ascending()) == sorted(leaves)
    assert retained_root(fresh.ascending()) == retained_root(leaves)
    assert not len(FreshRecords.salted([], as_digests(b"")))
