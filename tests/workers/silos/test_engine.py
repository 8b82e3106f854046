"""A round over silos: the in-process engine's bits, and every way in which clients drop out."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from sqlmodel import Session, col, update

from app.steps import PlantedFaultError
from models import SiloTask
from tests.workers.silos.conftest import JOB, ROUND_TIMEOUT, Silos
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, LOCAL, NETWORK, ROWS
from workers.silos import answer, keys, table
from workers.silos.engine import engine_for, silo_of
from workers.silos.message import Positions, decode_message
from workers.training.fedavg.base import Answers, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.device import facts_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks, run_round, train
from workers.training.fedavg.server import initial_state
from workers.training.networks.weights import initial_weights

WEIGHTS = initial_weights(NETWORK, CONFIG.seed)


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One database: what another could do otherwise is in test_table.py."""
    return sqlite_url


def tasks_of(*clients: str, **more: Any) -> list[RoundTask]:
    return make_tasks(NETWORK, WEIGHTS, clients or ROWS, LOCAL, round=1, seed=5, **more)


def same(left: ClientUpdate, right: ClientUpdate) -> None:
    """Equal in every bit except the seconds."""
    for name in {field.name for field in fields(ClientUpdate)} - {"delta", "seconds"}:
        assert getattr(left, name) == getattr(right, name), name
    assert left.delta.keys() == right.delta.keys()
    assert all(torch.equal(left.delta[name], right.delta[name]) for name in left.delta)


def same_answers(left: Answers, right: Answers) -> None:
    assert left.updates.keys() == right.updates.keys()
    for client, update_of in left.updates.items():
        same(update_of, right.updates[client])
    assert list(left.faults) == list(right.faults)
    assert (left.bytes_down, left.bytes_up) == (right.bytes_down, right.bytes_up)


def test_a_training_has_the_same_bits_as_in_process(silos: Silos) -> None:
    config = replace(CONFIG, rounds=2)
    here, there = (
        train(NETWORK, ROWS, config, engine)
        for engine in (InProcess(CLIENTS, threads=1), silos.engine())
    )
    assert all(torch.equal(here.weights[name], there.weights[name]) for name in WEIGHTS)
    assert here.records == there.records
    assert len(silos.loaded) == config.rounds * len(ROWS)  # though each message came twice
    assert silos.clock.slept == []  # everything was answered when it was first looked at
    silos.assert_clean()


def test_so_has_a_product_over_some_of_the_rows(silos: Silos) -> None:
    selection: dict[str, Positions] = {"anna": (1, 4), "bert": None}  # cleo is not of this side
    chosen = {
        "anna": CLIENTS["anna"].only(torch.tensor([1, 4])),
        "bert": CLIENTS["bert"],
    }
    asked = tasks_of(operation="gauss-newton", vector=initial_weights(NETWORK, 9))
    answers = silos.engine(selection).run(asked)
    same_answers(answers, InProcess(chosen, threads=1).run(asked))
    assert answers.updates["anna"].samples == 2
    assert answers.faults == [Fault("cleo", "no-answer", "unknown here")]
    assert sorted(silos.loaded) == [("anna", (1, 4)), ("bert", None)]


def test_which_engine_is_the_settings_choice(silos: Silos) -> None:
    all_of_them: dict[str, Positions] = dict.fromkeys(CLIENTS)
    arguments: Any = (JOB, silos.model_id, CLIENTS, all_of_them)
    over_silos = engine_for(silos.services, *arguments)
    same_answers(over_silos.run(tasks_of(), timeout=9), silos.engine().run(tasks_of()))
    assert silos.dispatcher.asked
    where = facts_of(over_silos, LOCAL)
    silos.dispatcher.asked.clear()
    without = silos.services.settings.model_copy(update={"silos": 0})
    here = engine_for(replace(silos.services, settings=without), *arguments)
    same_answers(here.run(tasks_of(), timeout=9), InProcess(CLIENTS, threads=1).run(tasks_of()))
    assert not silos.dispatcher.asked
    assert where == facts_of(here, LOCAL)
    assert (where["device"], where["deterministic"]) == ("cpu", "true")


# Modulo 2 and 7, of the hexadecimal SHA-256 that `sha256sum` prints.
@pytest.mark.parametrize(
    ("client", "of_two", "of_seven"), [("anna", 1, 6), ("bert", 0, 6), ("cleo", 1, 3)]
)
def test_a_client_stays_with_its_silo(client: str, of_two: int, of_seven: int) -> None:
    assert (silo_of(client, 2), silo_of(client, 7), silo_of(client, 1)) == (of_two, of_seven, 0)


def test_a_silo_that_is_down_costs_its_clients_one_round(silos: Silos) -> None:
    silos.dispatcher.down = {"silo-0"}
    config = CONFIG  # it has no time-out
    state = initial_state(WEIGHTS, config.server)
    after, record = run_round(NETWORK, state, ROWS, config, silos.engine(), 1)
    assert record.faults == (Fault("bert", "no-answer", "not taken"),)
    others = {client: rows for client, rows in ROWS.items() if client != "bert"}
    alone, _ = run_round(NETWORK, state, others, config, InProcess(CLIENTS, threads=1), 1)
    assert all(torch.equal(after.weights[name], alone.weights[name]) for name in WEIGHTS)
    assert silos.clock.now == pytest.approx(100.0 + ROUND_TIMEOUT)
    silos.assert_clean()
    silos.dispatcher.down = ()
    _, record = run_round(NETWORK, after, ROWS, config, silos.engine(), 2)
    assert not record.faults


def test_a_training_has_its_own_time_out(silos: Silos) -> None:
    silos.dispatcher.down = {"silo-0", "silo-1"}
    answers = silos.engine().run(tasks_of(), timeout=3.5)
    assert silos.clock.now == pytest.approx(103.5)
    assert [fault.detail for fault in answers.faults] == ["not taken"] * 3
    assert (answers.updates, answers.bytes_up) == ({}, 0)
    assert answers.bytes_down == InProcess(CLIENTS).run(tasks_of()).bytes_down
    # Looked at often to begin with, then twice a second.
    assert silos.clock.slept[0] == 0.05
    assert max(silos.clock.slept) == 0.5


def test_a_silo_that_dies_at_work_is_not_sent_the_row_again(silos: Silos) -> None:
    silos.dispatcher.down = {"silo-0"}
    ask = silos.dispatcher.ask

    def taken_and_killed(silo_tasks: Any, *, expires: float) -> None:
        for row, queue in silo_tasks.items():
            if queue == "silo-0":
                assert table.take(silos.services, row, ["silo-0"])
        ask(silo_tasks, expires=expires)

    silos.dispatcher.ask = taken_and_killed  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of(), timeout=30)
    assert answers.faults == [Fault("bert", "no-answer", "not answered")]
    assert set(answers.updates) == {"anna", "cleo"}
    assert len(silos.dispatcher.asked) == 1
    silos.assert_clean()


def test_what_the_broker_lost_is_sent_again_and_nothing_else(silos: Silos) -> None:
    silos.dispatcher.lost = 2
    times: list[float] = []
    ask = silos.dispatcher.ask

    def noted(silo_tasks: Any, *, expires: float) -> None:
        times.append(silos.clock.now - 100.0)
        if len(times) == 2:  # one message came through after all
            (first, *_), late = silo_tasks, silos.dispatcher
            silos.dispatcher.lost, kept = 0, late.lost
            ask({first: silo_tasks[first]}, expires=expires)
            silos.dispatcher.lost = kept
            return
        ask(silo_tasks, expires=expires)

    silos.dispatcher.ask = noted  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of(), timeout=60)
    assert (len(answers.updates), list(answers.faults)) == (3, [])
    assert [round(time) for time in times] == [0, 5, 15]
    assert len(silos.dispatcher.asked[-1]) == 2
    assert silos.dispatcher.expires[0] == 60.0
    assert silos.dispatcher.expires[-1] == pytest.approx(60.0 - times[-1])


def test_a_client_whose_rows_are_gone_fails_alone_and_unnamed(
    silos: Silos, caplog: pytest.LogCaptureFixture
) -> None:
    silos.gone = {"bert"}
    answers = silos.engine().run(tasks_of())
    assert answers.faults == [Fault("bert", "client-error", "RefusedError")]
    assert set(answers.updates) == {"anna", "cleo"}
    assert "RefusedError" in caplog.text
    assert "bert" not in caplog.text
    silos.assert_clean()


def test_an_answer_that_cannot_be_read_is_a_fault(silos: Silos) -> None:
    ask = silos.dispatcher.ask

    def spoilt(silo_tasks: Any, *, expires: float) -> None:
        ask(silo_tasks, expires=expires)
        by_queue = {queue: row for row, queue in silo_tasks.items()}
        bert, one = by_queue["silo-0"], by_queue["silo-1"]
        answered = {row.id: row for row in silos.rows()}
        folder = silos.services.settings.data_dir / "artifacts"
        (folder / str(answered[one].answer_id)).write_bytes(b"another disk's block")
        with Session(silos.services.engine) as session:
            other = silos.services.artifacts.put(session, table.ANSWER, b"no update").id
            session.exec(
                update(SiloTask).where(col(SiloTask.id) == bert).values(answer_id=other)
            )
            session.commit()

    silos.dispatcher.ask = spoilt  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of())
    assert [(fault.reason, fault.detail) for fault in answers.faults] == [
        ("unsigned", "not signed with the registered key"),
        ("unreadable", "SealError"),
    ]
    assert len(answers.updates) == 1


def test_whatever_ends_the_wait_leaves_nothing_behind(silos: Silos) -> None:
    silos.dispatcher.down = {"silo-0"}

    def fail(seconds: float) -> None:
        assert len(silos.rows()) == 3
        raise PlantedFaultError("no handler of ordinary errors sees it")

    silos.clock.sleep = fail  # type: ignore[method-assign]
    with pytest.raises(PlantedFaultError):
        silos.engine().run(tasks_of())
    silos.assert_clean()


def test_the_rows_of_another_try_at_the_job_are_left_alone(silos: Silos) -> None:
    other = table.post(silos.services, JOB, silos.model_id, "silo-0", b"of the next worker")
    assert len(silos.engine().run(tasks_of()).updates) == 3
    assert [row.id for row in silos.rows()] == [other]
    assert table.message_of(silos.services, other) == b"of the next worker"


def test_rows_that_were_swept_are_not_waited_for(silos: Silos) -> None:
    silos.dispatcher.down = {"silo-0"}
    sleep = silos.clock.sleep

    def swept(seconds: float) -> None:
        sleep(seconds)
        table.settle(silos.services, [row.id for row in silos.rows()])

    silos.clock.sleep = swept  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of())
    assert [fault.reason for fault in answers.faults] == ["no-answer"] * 3
    assert silos.clock.slept == [0.05]


Plant = Callable[[Silos, dict[str, SiloTask], list[bytes]], None]


def _put(silos: Silos, row: SiloTask, data: bytes, **changes: Any) -> None:
    with Session(silos.services.engine) as session:
        stored = silos.services.artifacts.put(session, table.ANSWER, data).id
        changed = {"answer_id": stored, **changes}
        session.exec(update(SiloTask).where(col(SiloTask.id) == row.id).values(**changed))
        session.commit()


def _change(silos: Silos, row: SiloTask, **changes: Any) -> None:
    with Session(silos.services.engine) as session:
        session.exec(update(SiloTask).where(col(SiloTask.id) == row.id).values(**changes))
        session.commit()


def another_clients(silos: Silos, rows: dict[str, SiloTask], _: list[bytes]) -> None:
    """The answer of cleo, of the same silo, for that of anna."""
    _change(silos, rows["anna"], answer_id=rows["cleo"].answer_id)


def an_earlier_rounds(silos: Silos, rows: dict[str, SiloTask], old: list[bytes]) -> None:
    """anna's own answer to the same weights in the round before."""
    _put(silos, rows["anna"], old[0])


def another_silos(silos: Silos, rows: dict[str, SiloTask], _: list[bytes]) -> None:
    """silo-0 signs what silo-1 was asked, in every digit."""
    with silos.services.reading() as session:
        data = silos.services.artifacts.get(session, rows["anna"].answer_id or "")
    key = keys.private_key(silos.services.settings, 0)
    _put(silos, rows["anna"], keys.sign(key, data[keys.SIGNATURE :], keys.UPDATE))


def as_scores(silos: Silos, rows: dict[str, SiloTask], _: list[bytes]) -> None:
    """The bytes that the silo signed as an answer to a judge."""
    with silos.services.reading() as session:
        data = silos.services.artifacts.get(session, rows["anna"].answer_id or "")
    key = keys.private_key(silos.services.settings, 1)
    _put(silos, rows["anna"], keys.sign(key, data[keys.SIGNATURE :]))


def a_changed_weight(silos: Silos, rows: dict[str, SiloTask], _: list[bytes]) -> None:
    with silos.services.reading() as session:
        data = silos.services.artifacts.get(session, rows["anna"].answer_id or "")
    _put(silos, rows["anna"], data[:-1] + bytes([data[-1] ^ 1]))


REPLAYS: dict[str, tuple[Plant, str]] = {
    "another-clients": (another_clients, "to another task"),
    "an-earlier-rounds": (an_earlier_rounds, "to another task"),
    "another-silos": (another_silos, "not signed with the registered key"),
    "signed-as-scores": (as_scores, "not signed with the registered key"),
    "a-changed-weight": (a_changed_weight, "not signed with the registered key"),
}


@pytest.mark.parametrize(("plant", "said"), REPLAYS.values(), ids=REPLAYS.keys())
def test_an_update_counts_only_for_the_task_that_its_silo_signed(
    silos: Silos, plant: Plant, said: str
) -> None:
    """The attacker can write the database and knows every answer ever sealed in it."""
    old: list[bytes] = []
    ask = silos.dispatcher.ask

    def by_client(sent: Any) -> dict[str, SiloTask]:
        rows, found = {row.id: row for row in silos.rows()}, {}
        for row in sent:
            task = decode_message(table.message_of(silos.services, row)).task
            found[task.client] = rows[row]
        return found

    def kept(silo_tasks: Any, *, expires: float) -> None:
        ask(silo_tasks, expires=expires)
        with silos.services.reading() as session:
            answer_id = by_client(silo_tasks)["anna"].answer_id or ""
            old.append(silos.services.artifacts.get(session, answer_id))

    def planted(silo_tasks: Any, *, expires: float) -> None:
        ask(silo_tasks, expires=expires)
        plant(silos, by_client(silo_tasks), old)

    silos.dispatcher.ask = kept  # type: ignore[method-assign]
    assert not silos.engine().run(tasks_of()).faults
    silos.dispatcher.ask = planted  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of())
    assert answers.faults == [Fault("anna", "unsigned", said)]
    assert set(answers.updates) == {"bert", "cleo"}
    assert not silos.rows()


def test_a_task_that_was_swapped_in_the_database_is_not_answered(silos: Silos) -> None:
    """anna's row is pointed at cleo's sealed task: another client's rows would be trained on."""
    ask = silos.dispatcher.ask

    def swapped(silo_tasks: Any, *, expires: float) -> None:
        rows = {}
        for row in silos.rows():
            task = decode_message(table.message_of(silos.services, row.id)).task
            rows[task.client] = row
        _change(silos, rows["anna"], task_id=rows["cleo"].task_id)
        ask(silo_tasks, expires=expires)

    silos.dispatcher.ask = swapped  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of())
    assert answers.faults == [Fault("anna", "client-error", "MessageError")]
    assert sorted(client for client, _ in silos.loaded) == ["bert", "cleo"]


def test_a_worker_answers_for_no_other_silo(silos: Silos) -> None:
    """All private keys are in one directory here, and the row belongs to silo-0."""
    ask = silos.dispatcher.ask

    def moved(silo_tasks: Any, *, expires: float) -> None:
        for row in silos.rows():
            if row.queue == "silo-1":
                answer.run(silos.services, row.id, silos.load, silos.dispatcher.score, {0})
                answer.run(silos.services, row.id, silos.load, silos.dispatcher.score, set())
                _change(silos, row, queue="silo-0")
        assert not silos.loaded
        ask(dict.fromkeys(silo_tasks, "silo-0"), expires=expires)

    silos.dispatcher.ask = moved  # type: ignore[method-assign]
    answers = silos.engine().run(tasks_of())
    assert answers.faults == [
        Fault("anna", "client-error", "NotThisSiloError"),
        Fault("cleo", "client-error", "NotThisSiloError"),
    ]
    assert set(answers.updates) == {"bert"}


def test_a_silo_whose_key_the_log_does_not_have_trains_nothing(silos: Silos) -> None:
    assert not silos.engine().run(tasks_of()).faults  # from here on the log has both
    for silo in range(2):
        if silo == 1:
            keys.private_path(silos.services.settings, silo).unlink()
            keys.public_path(silos.services.settings, silo).unlink()
            keys.register(silos.services.settings, silo)
    answers = silos.engine().run(tasks_of())
    assert {fault.detail for fault in answers.faults} == {
        "another key is registered than the log has"
    }
    assert set(answers.updates) == {"bert"}
