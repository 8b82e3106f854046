"""A silo's message has one canonical form, and nothing else is read."""

from collections.abc import Callable

import pytest

from tests.workers.training.fedavg.small import LOCAL, NETWORK
from workers.silos.message import Positions, decode_message, encode_message
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.messages import encode_task
from workers.training.fedavg.rounds import make_tasks
from workers.training.networks.weights import initial_weights

(TASK,) = make_tasks(NETWORK, initial_weights(NETWORK, 0), ["bert"], LOCAL, round=2, seed=1)
SENT = encode_task(TASK)


@pytest.mark.parametrize("positions", [None, (), (0, 3, 11)])
def test_a_message_comes_back(positions: Positions) -> None:
    data = encode_message("a job", "a row", 1, 7, positions, SENT)
    back = decode_message(data)
    assert (back.job_id, back.row, back.silo) == ("a job", "a row", 1)
    assert (back.model_id, back.positions, back.task.client) == (7, positions, "bert")
    assert encode_task(back.task) == SENT


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "no header": lambda data: SENT,
    "no task": lambda data: data.partition(b"\n")[0],
    "a task cut short": lambda data: data[:-1],
    "another kind": lambda data: data.replace(b"silo-task/2", b"silo-task/1"),
    "one more member": lambda data: data.replace(b'{"job"', b'{"a":1,"job"'),
    "a member less": lambda data: data.replace(b'"model":7,', b""),
    "spaces": lambda data: data.replace(b":", b": ", 1),
    "a number for a header": lambda data: b"7\n" + SENT,
    "positions that are a word": lambda data: data.replace(b"[0,3]", b'"03"'),
    "positions that are a number": lambda data: data.replace(b"[0,3]", b"3"),
    "a position that is a word": lambda data: data.replace(b"[0,3]", b'["0",3]'),
    "a position that is a truth": lambda data: data.replace(b"[0,3]", b"[true,3]"),
    "a position before the first": lambda data: data.replace(b"[0,3]", b"[-1,3]"),
    "a silo that is a word": lambda data: data.replace(b'"silo":1', b'"silo":"1"'),
    "a row that is a number": lambda data: data.replace(b'"row":"a row"', b'"row":1'),
    "a model that is a word": lambda data: data.replace(b'"model":7', b'"model":"7"'),
}


@pytest.mark.parametrize("name", SPOILT)
def test_other_bytes_are_refused(name: str) -> None:
    good = encode_message("a job", "a row", 1, 7, (0, 3), SENT)
    spoilt = SPOILT[name](good)
    assert spoilt != good
    with pytest.raises(MessageError):
        decode_message(spoilt)
