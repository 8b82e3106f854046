"""The erasure journal: durable before an erasure, and damaged lines are refused."""

from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.reconcile.journal import committed, require_applied
from app.service.context import open_services
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.features import FeatureVault
from app.vault.journal import FILE, ErasureJournal, JournalError, Line
from app.vault.master import RootSecret, tags_digest
from lethe.signing.keys import PrivateKey
from models import Artifact, ErasureRequest, Subject
from models.database.session import reading
from tests.app.ledger.samples import add_model
from tests.installation import Installation, install

TAGS = (b"a" * 32, b"b" * 32)
MASTER = RootSecret(bytes(range(32)))


@pytest.fixture
def journal(tmp_path: Path) -> ErasureJournal:
    (tmp_path / FILE).touch()
    return ErasureJournal(tmp_path / FILE, MASTER)


def test_what_came_back_is_erased_no_more(journal: ErasureJournal) -> None:
    journal.append([Line("m", erased=TAGS, requests=("r",)), Line(keys=(b"k",))])
    journal.append([Line("m", returned=TAGS[:1]), Line("other", erased=TAGS[:1])])
    found = journal.read()
    assert set(found.records["m"]) == {TAGS[1]}
    assert set(found.records["other"]) == {TAGS[0]}
    assert (found.keys, found.requests) == ({b"k"}, {"r"})


def test_a_torn_line_is_ignored_and_overwritten(journal: ErasureJournal) -> None:
    journal.append([Line("m", erased=TAGS[:1])])
    whole = journal.path.read_bytes()
    journal.append([Line("m", erased=TAGS[1:])])
    both = journal.path.read_bytes()
    for cut in range(len(whole), len(both)):
        journal.path.write_bytes(both[:cut])
        assert set(journal.read().records["m"]) == {TAGS[0]}
    journal.append([Line("m", erased=TAGS[1:])])
    assert journal.path.read_bytes() == both


def test_a_line_that_was_changed_or_taken_out_is_damage(journal: ErasureJournal) -> None:
    journal.append([Line("m", erased=TAGS[:1]), Line("m", erased=TAGS[1:]), Line(keys=(b"k",))])
    data = journal.path.read_bytes()
    lines = data.splitlines(keepends=True)
    for damaged in (
        b"".join(lines[1:]),
        lines[0] + lines[2],
        lines[1] + lines[0] + lines[2],
        data.replace(b'"m"', b'"n"', 1),
        b"\n" + data,
        data + b"x\n",
    ):
        journal.path.write_bytes(damaged)
        with pytest.raises(JournalError, match="damaged at line"):
            journal.read()
    journal.path.unlink()
    with pytest.raises(JournalError, match="is missing"):
        journal.read()
    with pytest.raises(JournalError, match="is missing"):
        journal.append([Line("m", erased=TAGS)])


def test_a_key_that_a_savepoint_brought_back_is_not_in_it(
    engine: Engine, tmp_path: Path, journal: ErasureJournal
) -> None:
    store = ArtifactStore(tmp_path / "artifacts", MASTER, journal)
    with Session(engine) as session:
        kept, gone, learned = (
            store.put(session, kind, b"x").id for kind in ("before", "before", "upload")
        )
        session.commit()
        tags = {
            name: journal.key_tag(session.get_one(Artifact, name).wrapped_key or b"")
            for name in (kept, gone, learned)
        }
        store.shred(session, gone)
        savepoint = session.begin_nested()
        store.shred(session, kept)
        savepoint.rollback()
        store.shred(session, learned)  # not an erasure: a restored database still needs it
        assert journal.read().keys == set()
        session.commit()
    assert journal.read().keys == {tags[gone]}


def test_a_planted_key_or_kind_is_not_in_it(
    engine: Engine, tmp_path: Path, journal: ErasureJournal
) -> None:
    """Otherwise a restore would destroy somebody else's rows, or an upload to be learned."""
    store = ArtifactStore(tmp_path / "artifacts", MASTER, journal)
    with Session(engine) as session:
        draft, upload = (store.put(session, kind, b"x") for kind in ("draft", "upload"))
        draft.wrapped_key = upload.wrapped_key
        upload.kind = "draft"
        session.commit()
        store.shred_all(session, [draft.id, upload.id])
        session.commit()
    assert journal.read().lines == []
    with Session(engine) as session:
        planted, other = (store.put(session, "state", b"x") for _ in range(2))
        planted.wrapped_key = other.wrapped_key
        session.commit()
        journal.erased(session, "m", TAGS, "r")  # an erasure notes every key that it destroys
        store.shred(session, planted.id)
        session.commit()
    assert journal.read().keys == set()


def test_another_subjects_key_is_not_in_it(engine: Engine, journal: ErasureJournal) -> None:
    vault = FeatureVault(MASTER, journal)
    with Session(engine) as session:
        model = add_model(session)
        subjects = [
            Subject(model_id=model.id or 0, client_tag="c", subject_tag=name) for name in "ab"
        ]
        session.add_all(subjects)
        session.flush()
        for subject in subjects:
            vault.store(session, subject, b"rows", rows=1)
        session.commit()
        erased, other = subjects
        erased.wrapped_key = other.wrapped_key
        journal.erased(session, "m", TAGS, "r")
        vault.rewrite(session, erased, b"rest", rows=1)
        session.commit()
        assert journal.read().keys == set()
        own = journal.key_tag(erased.wrapped_key or b"")
        journal.erased(session, "m", TAGS, "r")
        vault.rewrite(session, erased, None, rows=0)
        session.commit()
    assert journal.read().keys == {own}


def test_nothing_is_written_for_what_is_rolled_back(
    engine: Engine, journal: ErasureJournal
) -> None:
    with Session(engine) as session:
        session.connection()
        journal.erased(session, "m", TAGS, "r")
        session.rollback()
        session.commit()
    assert journal.read().lines == []


@pytest.fixture
def installed(settings: Settings, fitted: PrivateKey) -> Installation:
    with install(settings) as made:
        made.caller.key = fitted
        assert made.caller.erase_records("r1", "r2").status_code == 202
        made.drain()
        return made


def test_of_a_journal_behind_the_database_a_start_warns_and_adds_nothing(
    installed: Installation, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    path = settings.keys_dir / FILE
    whole = path.read_bytes()
    path.write_bytes(b"")
    open_services(settings).close()
    assert path.read_bytes() == b""
    (said,) = [one.getMessage() for one in caplog.records if "journal" in one.getMessage()]
    assert "lacks 2 tombstones" in said
    assert "lethe restore --journal-only" in said
    assert "r1" not in said
    caplog.clear()
    path.write_bytes(whole)
    open_services(settings).close()
    assert [one for one in caplog.records if "journal" in one.getMessage()] == []


def test_what_came_back_counts_only_where_the_log_has_its_entry(
    engine: Engine, ledger: Ledger, journal: ErasureJournal
) -> None:
    """A crash leaves the line; another entry, or none, takes its index."""
    digest, other = tags_digest(TAGS), "0" * 64

    def learned(digests: dict[str, str]) -> int:
        def effect(tx: Transaction) -> int:
            return record_model_event(tx, "small", "contribution.learned", digests)

        return ledger.transact(effect)

    plain, back = learned({}), learned({"addBack": digest})
    beyond = back + 1
    for model, entry, said, counts, might in (
        ("small", back, digest, True, True),
        ("small", back, other, False, False),
        ("other", back, digest, False, False),
        ("small", plain, digest, False, False),
        ("small", beyond, digest, False, True),  # the entry may be newer than the backup
    ):
        journal.path.write_bytes(b"")
        journal.append([Line(model, erased=TAGS)])
        journal.append([Line(model, returned=TAGS, entry=entry, digest=said)])
        assert journal.read().lines[-1].entry == entry
        with Session(reading(engine)) as session:
            for complete, back_again in ((True, counts), (False, might)):
                found = committed(session, journal.read(), complete=complete)
                assert set(found.records[model]) == (set() if back_again else set(TAGS))


def test_a_missing_or_damaged_journal_stops_the_service(
    installed: Installation, settings: Settings
) -> None:
    path = settings.keys_dir / FILE
    path.write_bytes(path.read_bytes().replace(b"erased", b"erasee", 1))
    with pytest.raises(JournalError, match="damaged"):
        open_services(settings)
    path.unlink()
    with pytest.raises(JournalError, match="missing"):
        open_services(settings)


def test_a_journal_ahead_of_a_request_that_was_not_executed_is_no_restore(
    settings: Settings, fitted: PrivateKey
) -> None:
    """A crash between the journal and the commit: the job is retried."""
    from app import steps

    with install(settings) as made:
        made.caller.key = fitted
        assert made.caller.erase_records("r1", "r2").status_code == 202
        steps.plant("execute.journaled=raise")
        try:
            with pytest.raises(steps.PlantedFaultError):
                made.drain()
        finally:
            steps.install(None)
        services = made.services
        assert services.journal.read().lines
        require_applied(services.engine, services.journal)
        with Session(
            services.engine
        ) as session:  # even if the request then ends without an execution
            request = session.exec(select(ErasureRequest)).one()
            request.state = "withdrawn"
            session.commit()
            require_applied(services.engine, services.journal)
            request.state = "received"
            session.add(request)
            session.commit()
        made.recover()
        made.check()
