"""Reading an artifact in pieces gives the same bytes as reading it whole, or an error."""

import hashlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.vault.artifacts import ArtifactStore
from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.master import RootSecret
from app.vault.seal import NONCE_SIZE, OpenedArtifact, seal

PIECE = 64
KEY, PLACE = bytes(range(32)), b"place"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.vault.seal.PIECE", PIECE)


@pytest.fixture
def store(data_dir: Path) -> ArtifactStore:
    return ArtifactStore(data_dir / "artifacts", RootSecret(bytes(range(32))))


def put(engine: Engine, store: ArtifactStore, data: bytes) -> str:
    with Session(engine) as session:
        artifact_id = store.put(session, "upload", data).id
        session.commit()
        return artifact_id


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7])
def test_all_of_it_is_what_was_put(engine: Engine, store: ArtifactStore, size: int) -> None:
    data = os.urandom(size)
    artifact_id = put(engine, store, data)
    with Session(engine) as session, store.opened(session, artifact_id) as file:
        assert file.read() == data == store.get(session, artifact_id)
        assert file.read(1) == b""


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 200)), max_size=12))
def test_any_part_of_it_is_what_was_put(parts: list[tuple[int, int]]) -> None:
    data = bytes(number * 7 % 251 for number in range(5 * PIECE + 7))
    with _opened(seal(KEY, data, PLACE), data) as file:
        for start, size in parts:
            assert file.seek(start) == start
            assert file.read(size) == data[start : start + size]
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]


def _opened(blob: bytes, data: bytes, place: bytes = PLACE) -> io.BufferedReader:
    digest = hashlib.sha256(data).hexdigest()
    return io.BufferedReader(OpenedArtifact(io.BytesIO(blob), KEY, place, digest))


def test_nothing_is_read_of_a_file_that_was_altered(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    artifact_id = put(engine, store, os.urandom(3 * PIECE))
    path = data_dir / "artifacts" / artifact_id
    whole = path.read_bytes()
    with Session(engine) as session:
        for place in (0, NONCE_SIZE, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(SealError):
                store.opened(session, artifact_id)
        for cut in (0, NONCE_SIZE, len(whole) - 1):
            path.write_bytes(whole[:cut])
            with pytest.raises(SealError):
                store.opened(session, artifact_id)
        path.write_bytes(whole + b"x")
        with pytest.raises(SealError):
            store.opened(session, artifact_id)
        path.unlink()
        with pytest.raises(SealError, match="missing"):
            store.opened(session, artifact_id)


def test_a_file_of_another_place_or_content_is_refused() -> None:
    data = os.urandom(PIECE)
    blob = seal(KEY, data, PLACE)
    with pytest.raises(SealError):
        _opened(blob, data, b"elsewhere")
    with pytest.raises(SealError):
        _opened(blob, data[:-1])


def test_what_changes_after_it_was_verified_is_not_read(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    """Counter mode alone would decrypt it, with the same bits flipped."""
    data = os.urandom(300 * PIECE)  # more than a file buffer
    artifact_id = put(engine, store, data)
    path = data_dir / "artifacts" / artifact_id
    with Session(engine) as session, store.opened(session, artifact_id) as file:
        with path.open("r+b") as other:
            other.seek(NONCE_SIZE + 2 * PIECE)
            (byte,) = other.read(1)
            other.seek(-1, os.SEEK_CUR)
            other.write(bytes([byte ^ 1]))
        with pytest.raises(SealError):
            file.read()
        file.seek(0)
        assert file.read(PIECE) == data[:PIECE]


def test_what_is_gone_is_not_opened(engine: Engine, store: ArtifactStore) -> None:
    artifact_id = put(engine, store, b"x")
    with Session(engine) as session:
        store.shred(session, artifact_id)
        with pytest.raises(ShreddedError):
            store.opened(session, artifact_id)
        with pytest.raises(NotStoredError):
            store.opened(session, "unknown")
