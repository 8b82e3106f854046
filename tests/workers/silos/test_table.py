"""A round's rows: taken once, answered once, gone when it is over. On both databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, update

from models import Artifact, Job, SiloTask
from models.database.types import utcnow
from tests.workers.silos.conftest import JOB, Silos
from workers.families.base import score
from workers.jobs import sweep
from workers.silos import answer, table


def post(silos: Silos, job_id: str = JOB) -> str:
    return table.post(silos.services, job_id, silos.model_id, "silo-0", b"a task")


def answers(silos: Silos) -> list[Artifact]:
    return [artifact for artifact in silos.artifacts() if artifact.kind == table.ANSWER]


def test_a_row_is_taken_and_answered_once(silos: Silos) -> None:
    row = post(silos)
    assert table.message_of(silos.services, row) == b"a task"
    assert [table.take(silos.services, row, ["silo-0"]) for _ in range(2)] == [True, False]
    assert table.answer(silos.services, row, b"first")
    assert not table.answer(silos.services, row, b"second")
    assert not table.answer(silos.services, row, None, "TooLateError")
    (stored,) = answers(silos)
    (found,) = silos.rows()
    assert (found.answer_id, found.fault) == (stored.id, None)
    with silos.services.reading() as session:
        assert silos.services.artifacts.get(session, stored.id) == b"first"


def test_tasks_and_answers_are_sealed(silos: Silos) -> None:
    row = post(silos)
    assert table.answer(silos.services, row, b"an answer in the clear")
    folder = silos.services.settings.data_dir / "artifacts"
    stored = b"".join((folder / name).read_bytes() for name in silos.files())
    assert len(silos.files()) == 2
    assert b"a task" not in stored
    assert b"in the clear" not in stored
    table.settle(silos.services, [row])
    silos.assert_clean()


def test_an_answer_after_the_end_leaves_nothing_that_opens(silos: Silos) -> None:
    row = post(silos)
    assert table.take(silos.services, row, ["silo-0"])
    table.settle(silos.services, [row])
    assert not table.answer(silos.services, row, b"too late")
    assert not answers(silos)
    (noise,) = silos.files()  # no key of it was ever committed
    assert noise not in {artifact.id for artifact in silos.artifacts()}
    silos.services.artifacts.unlink_orphans(silos.services.engine, timedelta(seconds=-60))
    silos.assert_clean()


def test_an_answer_that_commits_as_the_round_ends_is_shredded(silos: Silos) -> None:
    row = post(silos)
    with Session(silos.services.engine) as session, ThreadPoolExecutor(1) as pool:
        stored = silos.services.artifacts.put(session, table.ANSWER, b"just in time").id
        session.exec(update(SiloTask).where(col(SiloTask.id) == row).values(answer_id=stored))
        ending = pool.submit(table.settle, silos.services, [row])
        while silos.services.engine.dialect.name == "postgresql" and not ending.done():
            with silos.services.reading() as other:
                waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
                if other.connection().execute(waiting).scalar_one():
                    break
        assert not ending.done()
        session.commit()
        ending.result(30)
    assert [artifact.id for artifact in answers(silos)] == [stored]
    silos.assert_clean()


@pytest.mark.parametrize("column", ["answer_id", "task_id"])
def test_a_row_that_names_another_file_destroys_nothing(silos: Silos, column: str) -> None:
    """The end of a round and the sweep alike: such as a model's file, or held evidence."""
    with Session(silos.services.engine) as session:
        kept = silos.services.artifacts.put(session, "evidence", b"under a legal hold").id
        session.commit()
    for end in ("settled", "swept"):
        row = post(silos)
        with silos.services.engine.begin() as connection:
            planted = (
                f"UPDATE silo_tasks SET {column} = :id, created_at = '2020-01-01 00:00:00'"
            )
            connection.execute(text(planted), {"id": kept})
        if end == "settled":
            table.settle(silos.services, [row])
        else:
            table.sweep(silos.services)
        assert silos.rows() == []
        with silos.services.reading() as session:
            found = silos.services.artifacts.get(session, kept)
        assert found == b"under a legal hold"


def test_a_message_that_comes_after_the_end_does_nothing(silos: Silos) -> None:
    row = post(silos)
    table.settle(silos.services, [row])
    answer.run(silos.services, row, silos.load, score, {0})
    assert not silos.loaded
    silos.assert_clean()


def test_a_round_that_ends_while_a_silo_computes_is_left_alone(
    silos: Silos, caplog: pytest.LogCaptureFixture
) -> None:
    row = post(silos)

    def ended(*_: Any) -> Any:
        raise AssertionError("a task that is none is not loaded for")

    take = table.take

    def taken_then_ended(*arguments: Any) -> bool:
        taken = take(*arguments)
        table.settle(silos.services, [row])
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "take", taken_then_ended)
        answer.run(silos.services, row, ended, score, {0})
    assert "too late" in caplog.text
    silos.assert_clean()


def test_bytes_that_are_no_task_are_a_fault(silos: Silos) -> None:
    row = post(silos)
    answer.run(silos.services, row, silos.load, score, {0})
    (found,) = silos.rows()
    assert (found.fault, found.answer_id) == ("MessageError", None)
    assert found.answered_at is not None


def test_an_error_of_any_name_fits_the_column(
    silos: Silos, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise type("E" * 100, (Exception,), {})

    monkeypatch.setattr(answer, "decode_message", fail)
    answer.run(silos.services, post(silos), silos.load, score, {0})
    (found,) = silos.rows()
    assert found.fault == "E" * 80
    assert SiloTask.__table__.c.fault.type.length == 80  # type: ignore[attr-defined]


def set_times(silos: Silos, row: str, **values: Any) -> None:
    with Session(silos.services.engine) as session:
        session.exec(update(SiloTask).where(col(SiloTask.id) == row).values(**values))
        session.commit()


def test_the_sweep_removes_what_the_dead_left_and_nothing_else(silos: Silos) -> None:
    now = utcnow()
    with Session(silos.services.engine) as session:
        for name, done in (("done", now), ("running", None)):
            job = Job(id=name, model_id=silos.model_id, kind="learn", stage="execute")
            job.done_at = done
            session.add(job)
        session.commit()
    rows = {name: post(silos, name) for name in ("done", "running", "unknown", "old")}
    assert table.answer(silos.services, rows["done"], b"of a job that is done")
    set_times(silos, rows["old"], job_id="running", created_at=now - timedelta(hours=25))
    set_times(silos, rows["running"], created_at=now - timedelta(hours=23))
    sweep.run(silos.services)
    assert {row.id for row in silos.rows()} == {rows["running"], rows["unknown"]}
    shredded = [artifact for artifact in silos.artifacts() if artifact.wrapped_key is None]
    assert len(shredded) == 3
    assert len(silos.files()) == 2


def test_rows_of_artifacts_are_forgotten_an_hour_after(silos: Silos) -> None:
    first, second = post(silos), post(silos)
    table.settle(silos.services, [first, second])
    with Session(silos.services.engine) as session:
        kept = silos.services.artifacts.put(session, "head", b"a model's").id
        silos.services.artifacts.shred(session, kept)
        (early, late), then = silos.artifacts(), utcnow() - timedelta(minutes=61)
        for shredded in (early.id, kept):
            session.exec(
                update(Artifact).where(col(Artifact.id) == shredded).values(shredded_at=then)
            )
        session.commit()
    table.sweep(silos.services)
    assert {artifact.id for artifact in silos.artifacts()} == {late.id, kept}
