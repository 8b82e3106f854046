from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.vault.errors import NotStoredError, SealError, ShreddedError
from app.vault.features import FeatureVault
from app.vault.master import RootSecret
from app.vault.scrub import TABLES, scrub
from app.vault.seal import context, open_sealed
from models import FeatureBlock, Subject
from models.database.session import WAIT_S, reading
from models.database.types import METADATA, Sealed, Tagged
from tests.app.ledger.samples import add_model

MASTER = RootSecret(bytes(range(32)))
VAULT = FeatureVault(MASTER)
ROWS = b"rows of one person, quantised " * 300  # more than a database page


@pytest.fixture
def subjects(engine: Engine) -> list[int]:
    """Three subjects of one model and one of another, each with stored rows."""
    with Session(engine) as session:
        ids = []
        for number, model in enumerate([add_model(session)] * 3 + [add_model(session, "n")]):
            assert model.id is not None
            subject = Subject(model_id=model.id, client_tag="c", subject_tag=f"s{number}")
            session.add(subject)
            session.flush()
            assert subject.id is not None
            VAULT.store(session, subject, payload(number), rows=number)
            ids.append(subject.id)
        session.commit()
    return ids


def payload(number: int) -> bytes:
    return b"%d " % number + ROWS


def rewrite(engine: Engine, subject_id: int, data: bytes | None, rows: int = 1) -> None:
    with Session(engine) as session:
        VAULT.rewrite(session, session.get_one(Subject, subject_id), data, rows)
        session.commit()


def rows_of(engine: Engine, subject_id: int) -> tuple[Subject, FeatureBlock]:
    with Session(engine, expire_on_commit=False) as session:
        return session.get_one(Subject, subject_id), session.get_one(FeatureBlock, subject_id)


def test_loads_what_was_stored(engine: Engine, subjects: list[int]) -> None:
    with Session(engine) as session:
        for number, subject_id in enumerate(subjects):
            assert VAULT.load(session, subject_id) == payload(number)
        found = list(VAULT.load_many(session, 1))
        assert found == [(subject, payload(i)) for i, subject in enumerate(subjects[:3])]
        assert list(VAULT.load_many(session, 99)) == []
    subject, block = rows_of(engine, subjects[2])
    assert (block.rows, block.key_generation, subject.key_generation) == (2, 1, 1)


def test_many_blocks_are_read_in_order(engine: Engine) -> None:
    with Session(engine) as session:
        model = add_model(session)
        assert model.id is not None
        for number in range(250):
            subject = Subject(model_id=model.id, client_tag="c", subject_tag=f"s{number}")
            session.add(subject)
            session.flush()
            VAULT.store(session, subject, b"%d" % number, rows=1)
        session.commit()
        for fetch in (1, 100, 1000):
            found = [data for _, data in VAULT.load_many(session, model.id, fetch)]
            assert found == [b"%d" % number for number in range(250)]


def test_at_rest_there_is_only_ciphertext(engine: Engine, subjects: list[int]) -> None:
    with Session(engine) as session:
        blobs = [block.ciphertext for block in session.exec(select(FeatureBlock))]
        keys = [subject.wrapped_key for subject in session.exec(select(Subject))]
    assert len(set(blobs)) == len(set(keys)) == 4
    assert not any(ROWS[:12] in blob for blob in blobs)


def test_rewriting_makes_a_new_key_and_the_old_ciphertext_opens_for_nobody(
    engine: Engine, subjects: list[int]
) -> None:
    old_subject, old_block = rows_of(engine, subjects[0])
    rewrite(engine, subjects[0], b"what is left", rows=7)
    subject, block = rows_of(engine, subjects[0])
    assert (block.rows, block.key_generation, subject.key_generation) == (7, 2, 2)
    with Session(engine) as session:
        assert VAULT.load(session, subjects[0]) == b"what is left"
        # Try every key that still unwraps in the database on the old blob.
        keys = []
        for row in session.exec(select(Subject)):
            owner = row.client_tag, row.subject_tag
            for generation in range(4):
                place = context("features-key", row.id or 0, generation, *owner)
                keys += _opened(row.wrapped_key, place)
    assert len(keys) == 4  # one living key for each subject
    for key in keys:
        for generation in range(4):
            with pytest.raises(SealError):
                open_sealed(
                    key, old_block.ciphertext, context("features", 1, subjects[0], generation)
                )
    # Only the old wrapped key, which the test itself kept, would have opened it.
    (old_key,) = _opened(
        old_subject.wrapped_key,
        context(
            "features-key", subjects[0], 1, old_subject.client_tag, old_subject.subject_tag
        ),
    )
    place = context("features", 1, subjects[0], 1)
    assert open_sealed(old_key, old_block.ciphertext, place) == payload(0)


def _opened(wrapped: bytes | None, place: bytes) -> list[bytes]:
    try:
        return [MASTER.open(wrapped or b"", place)]
    except SealError:
        return []


def test_an_old_block_put_back_is_refused(engine: Engine, subjects: list[int]) -> None:
    _, old = rows_of(engine, subjects[0])
    rewrite(engine, subjects[0], b"what is left")
    with Session(engine) as session:
        block = session.get_one(FeatureBlock, subjects[0])
        block.ciphertext, block.key_generation = old.ciphertext, old.key_generation
        session.commit()
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])


def test_with_no_rows_left_key_and_block_are_gone(engine: Engine, subjects: list[int]) -> None:
    rewrite(engine, subjects[1], None, rows=0)
    with Session(engine) as session:
        subject = session.get_one(Subject, subjects[1])
        assert subject.wrapped_key is None
        assert subject.shredded_at is not None
        assert session.get(FeatureBlock, subjects[1]) is None
        with pytest.raises(ShreddedError) as refused:
            VAULT.load(session, subjects[1])
        assert refused.value.status == 410
        assert [i for i, _ in VAULT.load_many(session, 1)] == [subjects[0], subjects[2]]
        with pytest.raises(NotStoredError):
            VAULT.rewrite(session, subject, b"", 0)
        VAULT.store(session, subject, b"came back", 1)  # with new data, under a new key
        assert VAULT.load(session, subjects[1]) == b"came back"
        session.refresh(subject)
        assert subject.key_generation == 2
        assert not subject.shredded_at


def test_what_was_never_stored_is_not_found(engine: Engine, subjects: list[int]) -> None:
    with Session(engine) as session:
        with pytest.raises(NotStoredError):
            VAULT.load(session, 99)
        subject = Subject(model_id=1, client_tag="d", subject_tag="bare")
        session.add(subject)
        session.flush()
        assert subject.id is not None
        with pytest.raises(NotStoredError):
            VAULT.load(session, subject.id)


def _flip(session: Session, one: int, other: int) -> None:
    block = session.get_one(FeatureBlock, one)
    block.ciphertext = block.ciphertext[:-1] + bytes([block.ciphertext[-1] ^ 1])


def _swap_blocks(session: Session, one: int, other: int) -> None:
    first, second = session.get_one(FeatureBlock, one), session.get_one(FeatureBlock, other)
    first.ciphertext, second.ciphertext = second.ciphertext, first.ciphertext


def _swap_blocks_and_keys(session: Session, one: int, other: int) -> None:
    _swap_blocks(session, one, other)
    first, second = session.get_one(Subject, one), session.get_one(Subject, other)
    first.wrapped_key, second.wrapped_key = second.wrapped_key, first.wrapped_key


def _swap_models(session: Session, one: int, other: int) -> None:
    session.get_one(FeatureBlock, one).model_id = 2
    session.get_one(Subject, one).model_id = 2


def _other_generation(session: Session, one: int, other: int) -> None:
    session.get_one(FeatureBlock, one).key_generation = 2


def _lost_key(session: Session, one: int, other: int) -> None:
    session.get_one(Subject, one).wrapped_key = b""


@pytest.mark.parametrize(
    "change",
    [_flip, _swap_blocks, _swap_blocks_and_keys, _swap_models, _other_generation, _lost_key],
)
def test_a_changed_or_moved_block_is_refused(
    engine: Engine, subjects: list[int], change: Callable[[Session, int, int], None]
) -> None:
    with Session(engine) as session:
        change(session, subjects[0], subjects[1])
        session.commit()
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])
        model_id = session.get_one(FeatureBlock, subjects[0]).model_id
        with pytest.raises(SealError):
            list(VAULT.load_many(session, model_id))


def _renamed(session: Session, subject: int) -> None:
    own = session.get_one(Subject, subject)
    own.client_tag = "another client"
    session.add(own)


def test_rows_open_for_the_owner_alone_that_they_were_sealed_for(
    engine: Engine, subjects: list[int]
) -> None:
    with Session(engine) as session:
        assert list(VAULT.foreign(session)) == []
        _renamed(session, subjects[0])
        session.commit()
        assert list(VAULT.foreign(session)) == [subjects[0]]
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])
        with pytest.raises(SealError):
            list(VAULT.load_many(session, 1))


def test_rows_open_for_the_model_alone_that_they_were_stored_for(
    engine: Engine, subjects: list[int]
) -> None:
    """Otherwise an attacker could assign a subject to another model, which would learn its rows."""
    with Session(engine) as session:
        session.get_one(Subject, subjects[0]).model_id = 2
        session.commit()
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])


def _sealed_as_before(session: Session, subject_id: int) -> bytes:
    own = session.get_one(Subject, subject_id)
    assert own.wrapped_key is not None
    place = context("features-key", subject_id, 1, own.client_tag, own.subject_tag)
    key = MASTER.open(own.wrapped_key, place)
    return MASTER.seal(key, context("features-key", subject_id, 1))


def test_an_upgrade_seals_keys_from_before_owners_counted_for_their_owners(
    engine: Engine, subjects: list[int], tmp_path: Path
) -> None:
    with Session(engine) as session:
        for subject_id in subjects:
            own = session.get_one(Subject, subject_id)
            own.wrapped_key = _sealed_as_before(session, subject_id)
            session.add(own)
        session.commit()
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])
    assert VAULT.name_owners(engine, tmp_path) == 0
    with Session(engine) as session:
        assert VAULT.load(session, subjects[0]) == payload(0)
        _renamed(session, subjects[0])
        session.commit()
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])


def test_after_the_upgrade_a_key_of_the_older_database_is_sealed_for_nobody(
    engine: Engine, subjects: list[int], tmp_path: Path
) -> None:
    with Session(engine) as session:
        kept = _sealed_as_before(session, subjects[0])
    assert VAULT.name_owners(engine, tmp_path) == 0
    with Session(engine) as session:
        _renamed(session, subjects[0])
        session.get_one(Subject, subjects[0]).wrapped_key = kept
        session.commit()
    assert VAULT.name_owners(engine, tmp_path) == 1  # `lethe migrate` runs before each start
    with Session(engine) as session:
        assert list(VAULT.foreign(session)) == [subjects[0]]
        with pytest.raises(SealError):
            VAULT.load(session, subjects[0])


def test_another_master_key_opens_nothing(engine: Engine, subjects: list[int]) -> None:
    with Session(engine) as session, pytest.raises(SealError, match="master key"):
        FeatureVault(RootSecret(bytes(32))).load(session, subjects[0])


def _files_with(folder: Path, needle: bytes) -> list[str]:
    return [path.name for path in folder.glob("lethe.db*") if needle in path.read_bytes()]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("left", [b"what is left", None])
def test_after_scrubbing_no_file_of_sqlite_holds_the_old_key_or_rows(
    engine: Engine, subjects: list[int], tmp_path: Path, left: bytes | None
) -> None:
    scrub(engine)
    subject, block = rows_of(engine, subjects[0])
    assert subject.wrapped_key is not None
    needles = [subject.wrapped_key, block.ciphertext[100:164], block.ciphertext[-64:]]
    for needle in needles:
        assert _files_with(tmp_path, needle) == ["lethe.db"]
    rewrite(engine, subjects[0], left)
    # The new pages are in the write-ahead log; the old pages are still in the file.
    assert any(_files_with(tmp_path, needle) for needle in needles)
    assert scrub(engine) is True
    for needle in needles:
        assert _files_with(tmp_path, needle) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_scrubbing_says_when_a_reader_is_in_the_way(
    engine: Engine, subjects: list[int]
) -> None:
    with reading(engine).connect() as reader:
        reader.exec_driver_sql("SELECT 1 FROM subjects").close()
        rewrite(engine, subjects[0], None)
        assert scrub(engine) is False
    assert scrub(engine) is True
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == WAIT_S * 1000


def test_every_table_with_names_keys_or_numbers_of_records_is_scrubbed() -> None:
    """PostgreSQL's autovacuum leaves a table alone until 50 of its rows have changed."""
    sealed = {
        table.name
        for table in METADATA.sorted_tables
        if any(isinstance(column.type, Sealed | Tagged) for column in table.columns)
    }
    # `audit_pairs` has the log-odds of single records in clear.
    assert {*sealed, "artifacts", "audit_pairs", "feature_blocks", "tombstones"} <= {*TABLES}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_scrubbing_postgresql_removes_old_row_versions(
    engine: Engine, subjects: list[int]
) -> None:
    with engine.connect() as connection:
        dead = (
            "SELECT n_dead_tup FROM pg_stat_get_dead_tuples('subjects'::regclass) AS n_dead_tup"
        )
        for _ in range(3):
            rewrite(engine, subjects[0], b"x")
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        connection.commit()
        assert scrub(engine) is True
        assert connection.exec_driver_sql(dead).scalar() == 0
