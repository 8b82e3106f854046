"""A judge's question to two silos: what counts, and every reason why an answer does not."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlmodel import Session, col, update

from app.service.access import silo_keys
from app.service.access.rotate_silo import revoke_silo, rotate_silo
from lethe.signing.keys import generate_key, private_pem
from models import SiloTask
from tests.workers.silos import questions
from tests.workers.silos.conftest import JOB, ROUND_TIMEOUT, Silos
from tests.workers.training.fedavg.small import NETWORK
from workers.silos import keys, table
from workers.silos.collect import (
    FAILED,
    LATE,
    UNLOGGED,
    UNREADABLE,
    UNREGISTERED,
    UNSIGNED,
    SiloAnswers,
    collect,
)
from workers.silos.score_task import ScoreTask
from workers.silos.scores import SiloScores

MODEL = "deep"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One database: the rows of silos are in test_table.py on both."""
    return sqlite_url


@pytest.fixture
def asked(silos: Silos) -> list[ScoreTask]:
    """The questions to two silos with registered keys, which answer without rows."""
    for silo in range(2):
        keys.register(silos.services.settings, silo)
    silos.dispatcher.score = lambda _, task: (questions.answer(task), questions.CLASSES)
    return [questions.question(JOB, silos.model_id, silo) for silo in range(2)]


def run(silos: Silos, asked: list[ScoreTask]) -> SiloAnswers:
    clock = silos.clock
    logged = partial(silo_keys.accepted, silos.services, MODEL)
    found = collect(silos.services, asked, NETWORK, logged, clock=clock, sleep=clock.sleep)
    silos.assert_clean()
    return found


def only_the_first(found: SiloAnswers, why: str) -> None:
    """Silo 0 is left out for this reason, and silo 1 counts."""
    assert found.faults == {0: why}
    assert set(found.scores) == set(found.signed_by) == {1}


def test_answers_come_back_bit_for_bit_and_say_who_signed(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    found = run(silos, asked)
    assert not found.faults
    for task in asked:
        assert questions.same(found.scores[task.silo], questions.answer(task))
        key = keys.public_key(silos.services.settings, task.silo)
        assert key is not None
        assert found.signed_by[task.silo] == silo_keys.digest_of(key)
    assert silos.clock.slept == []


def test_a_silo_that_is_away_is_waited_for_as_long_as_a_round(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    silos.dispatcher.down = {"silo-0"}
    only_the_first(run(silos, asked), LATE)
    assert silos.clock.now == pytest.approx(100.0 + ROUND_TIMEOUT)


def test_an_error_at_a_silo_is_its_silence(
    silos: Silos, asked: list[ScoreTask], caplog: pytest.LogCaptureFixture
) -> None:
    honest = silos.dispatcher.score

    def fail(services: Any, task: ScoreTask) -> Any:
        if task.silo == 0:
            raise KeyError("the row of anna")
        return honest(services, task)

    silos.dispatcher.score = fail
    only_the_first(run(silos, asked), FAILED)
    assert "anna" not in caplog.text


def test_without_a_registered_key_no_answer_counts(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    keys.public_path(silos.services.settings, 0).unlink()
    only_the_first(run(silos, asked), UNREGISTERED)


def test_a_silo_without_its_key_does_not_answer(silos: Silos, asked: list[ScoreTask]) -> None:
    keys.private_path(silos.services.settings, 0).unlink()
    only_the_first(run(silos, asked), FAILED)


def test_a_key_that_was_swapped_since_it_was_logged_signs_nothing(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    """Both halves: its signature is the registered key's, and the log has another."""
    settings = silos.services.settings
    silo_keys.pinned(silos.services, MODEL)
    keys.private_path(settings, 0).unlink()
    keys.public_path(settings, 0).unlink()
    keys.register(settings, 0)
    only_the_first(run(silos, asked), UNLOGGED)
    silo_keys.renew(silos.services, [0])  # as a silo's worker does when it starts
    assert not run(silos, asked).faults


def test_another_key_than_the_registered_signs_nothing(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    path = keys.private_path(silos.services.settings, 0)
    path.write_text(private_pem(generate_key()))
    only_the_first(run(silos, asked), UNSIGNED)


def test_in_a_rotation_both_keys_count_and_after_it_the_new_one_alone(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    settings, ledger = silos.services.settings, silos.services.ledger
    assert not run(silos, asked).faults  # from here on the log has both silos' keys
    old_public = keys.public_path(settings, 0).read_bytes()
    old_private = keys.private_path(settings, 0).read_bytes()
    new = rotate_silo(settings, ledger, 0)
    assert run(silos, asked).signed_by[0] == new
    following = silo_keys.next_path(settings, 0)
    held = following.read_bytes()
    following.unlink()  # as on a machine of the silo that has the old key alone
    keys.register(settings, 0)
    assert run(silos, asked).signed_by[0] != new
    following.write_bytes(held)

    revoke_silo(settings, ledger, 0)
    assert keys.private_path(settings, 0).read_bytes() == held
    assert run(silos, asked).signed_by[0] == new
    keys.private_path(settings, 0).write_bytes(old_private)
    only_the_first(run(silos, asked), UNSIGNED)
    with pytest.raises(keys.SiloKeyError, match="another key"):
        keys.register(settings, 0)
    # Restoring the public key too, as registered or as in the overlap, does not help.
    silo_keys.previous_path(settings, 0).write_bytes(old_public)
    only_the_first(run(silos, asked), UNSIGNED)
    silo_keys.previous_path(settings, 0).unlink()
    keys.public_path(settings, 0).write_bytes(old_public)
    keys.register(settings, 0)
    silo_keys.renew(silos.services, [0])  # as a worker does that starts with it
    only_the_first(run(silos, asked), UNLOGGED)


def test_an_answer_counts_whose_key_was_rotated_while_the_judge_waited(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    assert not run(silos, asked).faults  # from here on the log has both silos' keys
    settings, ledger = silos.services.settings, silos.services.ledger
    ask, new = silos.dispatcher.ask, list[str]()

    def rotated(silo_tasks: Any, *, expires: float) -> None:
        new.append(rotate_silo(settings, ledger, 0))
        ask(silo_tasks, expires=expires)

    silos.dispatcher.ask = rotated  # type: ignore[method-assign]
    assert run(silos, asked).signed_by[0] == new[0]


def changed(silos: Silos, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """Change silo 0's stored answers; return the original answers of both."""
    ask, seen = silos.dispatcher.ask, {}

    def asked(silo_tasks: Any, *, expires: float) -> None:
        ask(silo_tasks, expires=expires)
        answered = {row.id: row for row in silos.rows()}
        for row, queue in silo_tasks.items():
            with Session(silos.services.engine) as session:
                was = silos.services.artifacts.get(session, str(answered[row].answer_id))
                seen[queue] = was
                if queue == "silo-0":
                    put = silos.services.artifacts.put(session, table.ANSWER, change(was)).id
                    session.exec(
                        update(SiloTask).where(col(SiloTask.id) == row).values(answer_id=put)
                    )
                    silos.services.artifacts.shred(session, str(answered[row].answer_id))
                session.commit()

    silos.dispatcher.ask = asked  # type: ignore[method-assign]
    return seen


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a score": lambda signed: signed[:-1] + bytes([signed[-1] ^ 1]),
    "the signature": lambda signed: bytes([signed[0] ^ 1]) + signed[1:],
    "no signature": lambda signed: signed[keys.SIGNATURE :],
    "nothing": lambda signed: b"",
    "a byte more": lambda signed: signed + b"\0",
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_after_it_was_signed_does_not_count(
    silos: Silos, asked: list[ScoreTask], name: str
) -> None:
    changed(silos, CHANGES[name])
    only_the_first(run(silos, asked), UNSIGNED)


OTHERS: dict[str, dict[str, Any]] = {
    "job": {"job_id": "00000000-0000-4000-8000-000000000002"},
    "seed": {"seed": "5f" * 32},
    "model": {"models": ("aa" * 32, "cc" * 32)},
    "time": {"nonce": "01" * 16},
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_answer_to_an_earlier_question_does_not_count(
    silos: Silos, asked: list[ScoreTask], name: str
) -> None:
    earlier = [replace(task, **OTHERS[name]) for task in asked]
    seen = changed(silos, lambda signed: signed)
    assert not run(silos, earlier).faults
    old = seen["silo-0"]
    changed(silos, lambda _: old)
    only_the_first(run(silos, asked), UNREADABLE)


def test_nor_does_the_answer_of_another_silo(silos: Silos, asked: list[ScoreTask]) -> None:
    _, second = asked
    silos.dispatcher.score = lambda _, task: (questions.answer(second), questions.CLASSES)
    seen = changed(silos, lambda signed: signed)
    assert not run(silos, asked).faults
    other = seen["silo-1"]
    changed(silos, lambda _: other)
    only_the_first(run(silos, asked), UNSIGNED)


def test_scores_of_fewer_rows_than_asked_for_do_not_count(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    def short(_: Any, task: ScoreTask) -> tuple[SiloScores, int]:
        full = questions.answer(task)
        return (full if task.silo else questions.without_a_row(full)), questions.CLASSES

    silos.dispatcher.score = short
    only_the_first(run(silos, asked), UNREADABLE)


def test_an_answer_whose_file_is_damaged_does_not_count(
    silos: Silos, asked: list[ScoreTask]
) -> None:
    ask = silos.dispatcher.ask

    def spoilt(silo_tasks: Any, *, expires: float) -> None:
        ask(silo_tasks, expires=expires)
        folder = silos.services.settings.data_dir / "artifacts"
        for row in silos.rows():
            if row.queue == "silo-0":
                (folder / str(row.answer_id)).write_bytes(b"another disk's block")

    silos.dispatcher.ask = spoilt  # type: ignore[method-assign]
    only_the_first(run(silos, asked), UNREADABLE)
