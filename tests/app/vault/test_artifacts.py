import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.vault.artifacts import ArtifactStore
from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.master import MasterKey
from lethe.files import PARTIAL
from models import Artifact

DATA = b"weights that still hold the person " * 50


@pytest.fixture
def store(data_dir: Path) -> ArtifactStore:
    return ArtifactStore(data_dir / "artifacts", MasterKey(bytes(range(32))))


def put(engine: Engine, store: ArtifactStore, data: bytes = DATA, kind: str = "head") -> str:
    with Session(engine) as session:
        artifact_id = store.put(session, kind, data).id
        session.commit()
        return artifact_id


def shred(engine: Engine, store: ArtifactStore, artifact_id: str) -> None:
    with Session(engine) as session:
        store.shred(session, artifact_id)
        session.commit()


def get(engine: Engine, store: ArtifactStore, artifact_id: str) -> bytes:
    with Session(engine) as session:
        return store.get(session, artifact_id)


def unlink(engine: Engine, store: ArtifactStore, **grace: timedelta) -> int:
    with Session(engine) as session:
        return store.unlink_shredded(session, **grace)


def names(data_dir: Path) -> set[str]:
    return {path.name for path in (data_dir / "artifacts").iterdir()}


@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_gives_back_what_was_put(engine: Engine, store: ArtifactStore, data: bytes) -> None:
    with Session(engine) as session:
        artifact = store.put(session, "state", data)
        assert store.get(session, artifact.id) == data
        assert artifact.digest == hashlib.sha256(data).hexdigest()
        assert (artifact.kind, artifact.size) == ("state", len(data))
        session.commit()
        artifact_id = artifact.id
    assert get(engine, store, artifact_id) == data


def test_at_rest_there_is_only_ciphertext_that_its_owner_alone_may_read(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    artifact_id = put(engine, store)
    path = data_dir / "artifacts" / artifact_id
    assert DATA[:12] not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert put(engine, store) != artifact_id
    assert len({path.read_bytes() for path in path.parent.iterdir()}) == 2


def _flip(blob: bytes) -> bytes:
    return blob[:-1] + bytes([blob[-1] ^ 1])


DAMAGE: dict[str, Callable[[Path, str, str], object]] = {
    "flipped-bit": lambda folder, one, _: (folder / one).write_bytes(
        _flip((folder / one).read_bytes())
    ),
    "cut": lambda folder, one, _: (folder / one).write_bytes((folder / one).read_bytes()[:-1]),
    "emptied": lambda folder, one, _: (folder / one).write_bytes(b""),
    "missing": lambda folder, one, _: (folder / one).unlink(),
    "swapped": lambda folder, one, other: shutil.copy(folder / other, folder / one),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_is_refused(
    engine: Engine, store: ArtifactStore, data_dir: Path, case: str
) -> None:
    one, other = put(engine, store), put(engine, store)
    DAMAGE[case](data_dir / "artifacts", one, other)
    with pytest.raises(SealError, match="restore"):
        get(engine, store, one)
    assert get(engine, store, other) == DATA


def _swap_keys(session: Session, one: str, other: str) -> None:
    first, second = session.get_one(Artifact, one), session.get_one(Artifact, other)
    first.wrapped_key, second.wrapped_key = second.wrapped_key, first.wrapped_key


def _swap_everything_but_the_id(session: Session, one: str, other: str) -> None:
    _swap_keys(session, one, other)
    first, second = session.get_one(Artifact, one), session.get_one(Artifact, other)
    first.digest, second.digest = second.digest, first.digest


def _other_kind(session: Session, one: str, other: str) -> None:
    session.get_one(Artifact, one).kind = "state"


def _other_digest(session: Session, one: str, other: str) -> None:
    session.get_one(Artifact, one).digest = "0" * 64


@pytest.mark.parametrize(
    "change", [_swap_keys, _swap_everything_but_the_id, _other_kind, _other_digest]
)
def test_a_changed_row_is_refused(
    engine: Engine, store: ArtifactStore, change: Callable[[Session, str, str], None]
) -> None:
    one, other = put(engine, store), put(engine, store, DATA[::-1])
    with Session(engine) as session:
        change(session, one, other)
        session.commit()
    with pytest.raises(SealError):
        get(engine, store, one)


def test_another_master_key_opens_nothing(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    artifact_id = put(engine, store)
    with pytest.raises(SealError, match="master key"):
        get(engine, ArtifactStore(data_dir / "artifacts", MasterKey(bytes(32))), artifact_id)


def test_what_was_shredded_is_gone_for_good_and_its_digest_remains(
    engine: Engine, store: ArtifactStore
) -> None:
    artifact_id = put(engine, store)
    with Session(engine) as session:
        digest = store.shred(session, artifact_id)
        assert digest == hashlib.sha256(DATA).hexdigest()
        session.commit()
        first = session.get_one(Artifact, artifact_id)
        assert first.wrapped_key is None
        when = first.shredded_at
        assert when is not None
        assert store.shred(session, artifact_id) == digest
        session.commit()
        assert session.get_one(Artifact, artifact_id).shredded_at == when
    with pytest.raises(ShreddedError) as refused:
        get(engine, store, artifact_id)
    assert refused.value.status == 410


def test_shredding_is_undone_with_its_transaction(engine: Engine, store: ArtifactStore) -> None:
    artifact_id = put(engine, store)
    with Session(engine) as session:
        store.shred(session, artifact_id)
        session.rollback()
    assert get(engine, store, artifact_id) == DATA


def test_what_was_never_stored_is_not_found(engine: Engine, store: ArtifactStore) -> None:
    for ask in (store.get, store.shred):
        with Session(engine) as session, pytest.raises(NotStoredError):
            ask(session, "absent")


def test_a_sweep_removes_shredded_files_and_orphans_and_nothing_else(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    assert unlink(engine, store) == 0  # before anything was ever stored
    kept, shredded = put(engine, store), put(engine, store)
    shred(engine, store, shredded)
    with Session(engine) as session:
        orphan = store.put(session, "head", DATA).id
        session.rollback()
    partial = data_dir / "artifacts" / f"{PARTIAL}abc"
    partial.write_bytes(b"cut short")
    assert names(data_dir) == {kept, shredded, orphan, partial.name}
    assert unlink(engine, store) == 1
    assert names(data_dir) == {kept, orphan, partial.name}  # their transaction may still run
    past = time.time() - 3601
    for name in names(data_dir):
        os.utime(data_dir / "artifacts" / name, (past, past))
    assert unlink(engine, store, grace=timedelta(hours=2)) == 0
    assert unlink(engine, store) == 2
    assert names(data_dir) == {kept}
    assert unlink(engine, store) == 0
    assert get(engine, store, kept) == DATA


def test_a_sweep_believes_only_what_is_committed(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    artifact_id = put(engine, store)
    with Session(engine) as session:
        store.shred(session, artifact_id)
        assert store.unlink_shredded(session) == 0
        session.rollback()
    assert get(engine, store, artifact_id) == DATA


def test_a_sweep_of_many_files(engine: Engine, store: ArtifactStore, data_dir: Path) -> None:
    ids = [put(engine, store, b"x") for _ in range(8)]
    with Session(engine) as session:
        for artifact_id in ids[::2]:
            store.shred(session, artifact_id)
        session.commit()
    folder = data_dir / "artifacts"
    for number in range(1200):  # more than fit into one query
        (folder / f"young-orphan-{number}").touch()
    assert unlink(engine, store) == 4
    assert set(ids[1::2]) <= names(data_dir)


def test_a_failing_disk_stores_neither_file_nor_row(
    engine: Engine, store: ArtifactStore, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError("disk failure")

    monkeypatch.setattr("os.fsync", fail)
    with Session(engine) as session, pytest.raises(OSError, match="disk failure"):
        store.put(session, "head", DATA)
    assert names(data_dir) == set()
    with Session(engine) as session:
        assert session.exec(select(Artifact)).all() == []
