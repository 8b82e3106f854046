import hashlib
import os
import shutil
import stat
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import delete, event, text
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport
from app.reconcile.fsck.vault import ELSEWHERE, fsck_vault
from app.vault import artifacts
from app.vault.artifacts import BATCH, ArtifactStore
from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.master import RootSecret
from lethe.files import PARTIAL, sync_directory
from models import Artifact
from models.database.session import CHUNK

DATA = b"weights that still hold the person " * 50


@pytest.fixture
def store(data_dir: Path) -> ArtifactStore:
    return ArtifactStore(data_dir / "artifacts", RootSecret(bytes(range(32))))


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


def sweep(engine: Engine, store: ArtifactStore, **grace: timedelta) -> int:
    return store.unlink_shredded(engine) + store.unlink_orphans(engine, **grace)


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


def _moved(path: Path) -> Path:
    """Move a file to another name, and return its old path."""
    path.rename(path.with_name("moved"))
    return path


DAMAGE: dict[str, Callable[[Path, str, str], object]] = {
    "flipped-bit": lambda folder, one, _: (folder / one).write_bytes(
        _flip((folder / one).read_bytes())
    ),
    "cut": lambda folder, one, _: (folder / one).write_bytes((folder / one).read_bytes()[:-1]),
    "emptied": lambda folder, one, _: (folder / one).write_bytes(b""),
    "missing": lambda folder, one, _: (folder / one).unlink(),
    "a pipe": lambda folder, one, _: os.mkfifo(_moved(folder / one)),
    "a link": lambda folder, one, _: (folder / one).symlink_to(
        _moved(folder / one).with_name("moved")
    ),
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
    with (
        Session(engine) as session,
        pytest.raises(SealError),
        store.opened(session, one) as opened,
    ):
        opened.read()
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


def test_a_file_of_another_size_is_refused_unread(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    """Otherwise a sparse file, which costs an attacker nothing, would take a worker's memory."""
    artifact_id = put(engine, store)
    os.truncate(data_dir / "artifacts" / artifact_id, 1 << 28)
    tracemalloc.start()
    try:
        for read in (store.get, store.opened):
            with Session(engine) as session, pytest.raises(SealError, match="another size"):
                read(session, artifact_id)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_another_master_key_opens_nothing(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    artifact_id = put(engine, store)
    with pytest.raises(SealError, match="master key"):
        get(engine, ArtifactStore(data_dir / "artifacts", RootSecret(bytes(32))), artifact_id)


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


def test_only_the_kinds_that_a_caller_names_are_shredded(
    engine: Engine, store: ArtifactStore
) -> None:
    artifact_id = put(engine, store)
    with Session(engine) as session:
        kind = session.get_one(Artifact, artifact_id).kind
        assert store.shred(session, artifact_id, "another", "a third") is None
        session.commit()
    assert get(engine, store, artifact_id) == DATA
    with Session(engine) as session:
        assert store.shred(session, artifact_id, "another", kind) is not None


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
    engine: Engine, store: ArtifactStore, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep(engine, store) == 0  # before anything was ever stored
    kept, shredded = put(engine, store), put(engine, store)
    shred(engine, store, shredded)
    with Session(engine) as session:
        orphan = store.put(session, "head", DATA).id
        session.rollback()
    partial = data_dir / "artifacts" / f"{PARTIAL}abc"
    partial.write_bytes(b"cut short")
    assert names(data_dir) == {kept, shredded, orphan, partial.name}
    assert sweep(engine, store) == 1
    assert names(data_dir) == {kept, orphan, partial.name}  # their transaction may still run
    past = time.time() - 3601
    for name in names(data_dir):
        os.utime(data_dir / "artifacts" / name, (past, past))
    later = time.monotonic() + 3601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert sweep(engine, store, grace=timedelta(hours=2)) == 0
    assert sweep(engine, store) == 2
    assert names(data_dir) == {kept}
    assert sweep(engine, store) == 0
    assert get(engine, store, kept) == DATA


def test_only_what_is_committed_is_unlinked(engine: Engine, store: ArtifactStore) -> None:
    artifact_id = put(engine, store)
    with Session(engine) as session:
        store.shred(session, artifact_id)
        assert sweep(engine, store, grace=timedelta(seconds=-60)) == 0
        session.rollback()
    assert get(engine, store, artifact_id) == DATA


def test_a_transaction_of_many_shredded_artifacts(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    kept = put(engine, store)
    with Session(engine) as session:
        for _ in range(CHUNK + 1):  # more than fit into one query
            _add_row(session, f"{uuid.uuid4()}", wrapped_key=None)
        session.commit()
    assert store.unlink_shredded(engine) == CHUNK + 1
    assert store.unlink_shredded(engine) == 0
    assert names(data_dir) == {kept}


@pytest.fixture
def short_directory() -> Iterator[str]:
    with TemporaryDirectory(dir="/tmp") as made:
        yield made


def _add_row(session: Session, artifact_id: str, wrapped_key: bytes | None) -> None:
    session.add(
        Artifact(id=artifact_id, kind="head", digest="", size=0, wrapped_key=wrapped_key)
    )


@pytest.mark.parametrize("name", ["../keys/log.key", "absolute", "..", "."])
def test_a_row_that_names_a_file_elsewhere_removes_nothing(
    request: pytest.FixtureRequest,
    engine: Engine,
    store: ArtifactStore,
    data_dir: Path,
    name: str,
) -> None:
    """Write access to the database allows any id, which could name any file of the service."""
    kept, elsewhere = put(engine, store), data_dir / "keys" / "log.key"
    planted = name
    if name == "absolute":  # no longer than an id can be
        elsewhere = Path(request.getfixturevalue("short_directory")) / "log.key"
        planted = str(elsewhere)
    elsewhere.parent.mkdir(exist_ok=True)
    elsewhere.write_bytes(b"key")
    with Session(engine) as session:
        _add_row(session, planted, wrapped_key=None)
        session.commit()
    assert sweep(engine, store) == 1
    assert sweep(engine, store) == 0, "it would be looked at for ever"
    assert elsewhere.read_bytes() == b"key"
    with Session(engine) as session:
        session.get_one(Artifact, planted).wrapped_key = b"key"
        session.commit()
    assert store.missing(engine) == 1
    report = FsckReport()
    fsck_vault(engine, store, RootSecret(bytes(range(32))), report)
    assert [(one.check, one.detail) for one in report.findings if one.detail == ELSEWHERE] == [
        ("file", ELSEWHERE)
    ]
    assert get(engine, store, kept) == DATA


def test_an_erasure_unlinks_what_it_shredded_and_looks_at_nothing_else(
    engine: Engine, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shredded = put(engine, store)
    with Session(engine) as session:
        for number in range(3000):
            _add_row(session, f"live-{number}", wrapped_key=b"key")
        session.commit()
    shred(engine, store, shredded)
    listed, statements = _spy(engine, monkeypatch)
    assert store.unlink_shredded(engine) == 1
    assert listed == []
    selects = [text for text in statements if text.startswith("SELECT artifacts")]
    assert len(selects) == 1  # it found less than a chunk, so there is no second query
    assert len([text for text in statements if text.startswith("UPDATE")]) == 1


def _spy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Record file names that are looked up, and statements, from now on."""
    listed: list[str] = []
    statements: list[str] = []
    scandir = os.scandir

    @contextmanager
    def counting(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            yield (listed.append(entry.name) or entry for entry in entries)  # type: ignore[func-returns-value]

    monkeypatch.setattr(os, "scandir", counting)
    event.listen(
        engine,
        "before_cursor_execute",
        lambda _connection, _cursor, text, *_: statements.append(text),
    )
    return listed, statements


def test_the_database_finds_what_is_owed_by_its_own_index(engine: Engine) -> None:
    owed = "SELECT id FROM artifacts WHERE wrapped_key IS NULL AND unlinked_at IS NULL LIMIT 9"
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            plan = connection.execute(text(f"EXPLAIN {owed}"))
        else:
            plan = connection.execute(text(f"EXPLAIN QUERY PLAN {owed}"))
        assert "ix_artifacts_owed" in " ".join(str(row) for row in plan)


def test_whether_the_root_secret_opens_an_artifact_is_asked_of_one(
    engine: Engine, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, shredded = put(engine, store), put(engine, store)
    shred(engine, store, shredded)
    _, statements = _spy(engine, monkeypatch)
    with Session(engine) as session:
        store.require_master(session, RootSecret(bytes(range(32))))
        with pytest.raises(SealError):
            store.require_master(session, RootSecret(bytes(32)))
    asked = next(text for text in statements if text.startswith("SELECT artifacts"))
    assert "ORDER BY" not in asked  # the newest one is found by reading all
    shred(engine, store, kept)
    with Session(engine) as session:
        store.require_master(session, RootSecret(bytes(32)))  # nothing tells
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", (1, 0)).all()
        assert [
            "SEARCH" in row[3] and "ix_artifacts_shredded_at" in row[3] for row in plan
        ] == [True]


class CrashError(Exception):
    pass


@pytest.mark.parametrize("step", ["before", "unlink", "sync", "mark"])
def test_a_crash_between_the_commit_and_the_end_is_made_up_for(
    engine: Engine,
    store: ArtifactStore,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    kept, *shredded = [put(engine, store) for _ in range(4)]
    for artifact_id in shredded:
        shred(engine, store, artifact_id)
    unlink, sync = Path.unlink, sync_directory

    def crash(*_: object, **__: object) -> None:
        raise CrashError

    def unlink_once(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        raise CrashError

    def sync_last(directory: Path) -> None:
        sync(directory)
        raise CrashError

    if step != "before":  # where the process ends right after the commit
        place, name, fault = {
            "unlink": (Path, "unlink", unlink_once),
            "sync": (artifacts, "sync_directory", sync_last),
            "mark": (artifacts, "clock", crash),
        }[step]
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fault)
            with pytest.raises(CrashError):
                store.unlink_shredded(engine)
    again = ArtifactStore(data_dir / "artifacts", RootSecret(bytes(range(32))))
    assert again.unlink_shredded(engine) == 3
    assert names(data_dir) == {kept}
    assert again.unlink_shredded(engine) == 0


def test_a_shredded_file_that_comes_back_with_a_copy_is_removed(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    artifact_id = put(engine, store)
    path = data_dir / "artifacts" / artifact_id
    copy = path.read_bytes()
    shred(engine, store, artifact_id)
    store.unlink_shredded(engine)
    path.write_bytes(copy)
    assert store.unlink_shredded(engine) == 0  # nothing is pending for the row
    assert store.unlink_orphans(engine) == 1
    assert names(data_dir) == set()


def test_a_clock_that_jumps_ahead_costs_no_file_whose_row_is_to_come(
    engine: Engine, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumped = time.time() + 3 * 3600
    monkeypatch.setattr(time, "time", lambda: jumped)
    with Session(engine) as session:
        artifact_id = store.put(session, "head", DATA).id
        assert store.unlink_orphans(engine) == 0  # in another process
        session.commit()
    assert get(engine, store, artifact_id) == DATA


def test_an_orphan_is_removed_once_it_was_seen_for_an_hour(
    engine: Engine, store: ArtifactStore, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, store)
    orphan = data_dir / "artifacts" / "orphan"
    orphan.touch()
    os.utime(orphan, (0, 0))
    now = time.monotonic()
    removed = []
    for minutes in (0, 30, 59, 61):
        monkeypatch.setattr(time, "monotonic", lambda at=now + 60 * minutes: at)
        removed.append(sum(store.unlink_orphans(engine) for _ in range(2)))
    assert removed == [0, 0, 0, 1]
    assert not orphan.exists()


def test_a_folder_among_them_ends_no_sweep(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    (data_dir / "artifacts" / "folder").mkdir(parents=True)
    (data_dir / "artifacts" / "orphan").write_bytes(b"x")
    assert store.unlink_orphans(engine, timedelta(seconds=-60)) == 1
    assert names(data_dir) == {"folder"}


def test_each_look_for_orphans_is_bounded_and_together_they_see_every_file(
    engine: Engine, store: ArtifactStore, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [put(engine, store, b"x") for _ in range(3)]
    folder = data_dir / "artifacts"
    for number in range(2 * BATCH):
        (folder / f"orphan-{number}").touch()
    listed, _ = _spy(engine, monkeypatch)
    removed, looks = 0, 0
    while removed < 2 * BATCH:
        before = len(listed)
        removed += store.unlink_orphans(engine, timedelta(seconds=-60))
        looks += 1
        assert len(listed) - before <= BATCH
        assert looks <= 3
    assert names(data_dir) == set(kept)
    (folder / "late").touch()
    assert sum(store.unlink_orphans(engine, timedelta(seconds=-60)) for _ in range(2)) == 1


def test_missing_files_are_counted_a_bounded_number_at_a_time(
    engine: Engine, store: ArtifactStore, data_dir: Path
) -> None:
    here, lost = put(engine, store), put(engine, store)
    assert store.missing(engine) == 0
    file = (data_dir / "artifacts" / lost).rename(data_dir / "moved")
    with Session(engine) as session:
        for number in range(BATCH):
            _add_row(session, f"~{number}", wrapped_key=b"key")  # after every UUID
        session.commit()
    assert store.missing(engine) == 1 + BATCH - 2
    assert store.missing(engine) == 1 + BATCH
    assert store.missing(engine) == 1 + BATCH  # starts again, and counts none twice
    with Session(engine) as session:
        session.execute(delete(Artifact).where(col(Artifact.id).startswith("~")))
        session.commit()
    assert store.missing(engine) == 1
    file.rename(data_dir / "artifacts" / lost)
    assert store.missing(engine) == 0
    assert get(engine, store, here) == DATA


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
