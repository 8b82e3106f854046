"""Bodies on disk while they arrive: read back at any place, never in the clear, never left."""

import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pytest
from sqlalchemy.engine import Engine

from app.uploads.spool import CHUNK, Spool, SpoolError
from app.vault.artifacts import ArtifactStore
from app.vault.master import RootSecret

SECRET = b"a row of somebody"


@contextmanager
def spooled(folder: Path, data: bytes) -> Iterator[Spool]:
    with closing(Spool(folder)) as spool:
        for start in range(0, len(data), 60_000):
            spool.write(data[start : start + 60_000])
        yield spool


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7])
def test_what_is_read_is_what_was_written_at_any_place(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    oracle = BytesIO(data)
    rng = np.random.default_rng(1)
    with spooled(tmp_path, data) as spool:
        assert spool.size == size
        for _ in range(50):
            at, count = (int(one) for one in rng.integers(size + 2, size=2))
            for whence, offset in ((os.SEEK_SET, at), (os.SEEK_END, -min(at, size))):
                assert spool.seek(offset, whence) == oracle.seek(offset, whence)
                assert spool.read(count) == oracle.read(count)
                assert spool.tell() == oracle.tell()
        spool.seek(0)
        assert spool.read() == data
        with pytest.raises(ValueError, match="before"):
            spool.seek(-1)


def test_a_zip_is_read_from_it(tmp_path: Path) -> None:
    made = BytesIO()
    data = np.random.default_rng(0).bytes(2 * CHUNK)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one", data)
    with (
        spooled(tmp_path, made.getvalue()) as spool,
        zipfile.ZipFile(cast(BinaryIO, spool)) as archive,
    ):
        assert archive.read("one") == data


def test_nothing_is_on_disk_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(dir: Path) -> object:
        return (dir / "body").open("w+b")

    monkeypatch.setattr("tempfile.TemporaryFile", named)
    data = SECRET * (3 * CHUNK // len(SECRET))
    with spooled(tmp_path, data) as spool:
        assert spool.read(len(data)) == data
        on_disk = (tmp_path / "body").read_bytes()
    assert len(on_disk) > CHUNK
    assert SECRET[:8] not in on_disk


def test_a_body_that_fits_in_memory_needs_no_disk(tmp_path: Path) -> None:
    with spooled(tmp_path / "missing", bytes(CHUNK)) as spool:
        assert spool.read() == bytes(CHUNK)
    assert not (tmp_path / "missing").exists()


def test_a_full_disk_is_no_fault_of_the_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(dir: Path) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(SpoolError), spooled(tmp_path, bytes(2 * CHUNK)):
        pass


def killed(work: Callable[[], None]) -> None:
    """Run `work` in a child, which kills itself there."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_a_killed_process_leaves_no_body(tmp_path: Path) -> None:
    def work() -> None:
        with spooled(tmp_path, SECRET * CHUNK):
            os.kill(os.getpid(), signal.SIGKILL)

    killed(work)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_an_upload_that_nobody_opens_and_the_sweep_removes(
    tmp_path: Path, engine: Engine
) -> None:
    store = ArtifactStore(tmp_path / "artifacts", RootSecret(bytes(32)))

    def work() -> None:
        with store.staged("upload") as file:
            file.write(SECRET * CHUNK)
            os.kill(os.getpid(), signal.SIGKILL)

    killed(work)
    (left,) = (tmp_path / "artifacts").iterdir()
    assert SECRET[:8] not in left.read_bytes()
    assert store.unlink_orphans(engine) == 0  # its transaction might still come
    assert store.unlink_orphans(engine, timedelta(seconds=-1)) == 1
    assert list((tmp_path / "artifacts").iterdir()) == []
