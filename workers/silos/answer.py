"""A silo's end: take a row, compute what it asks of clients' rows, seal the answer."""

import hashlib
import logging
from collections.abc import Callable

from sqlmodel import Session

from app.service.context import Services
from workers.fedavg.base import ClientData
from workers.fedavg.determinism import deterministic
from workers.fedavg.messages import encode_update
from workers.fedavg.respond import respond
from workers.silos import keys, table
from workers.silos.message import Positions, decode_message
from workers.silos.score_task import ScoreTask, decode_task, is_score_task
from workers.silos.scores import SiloScores, encode_scores

log = logging.getLogger(__name__)

Load = Callable[[Services, Session, int, str, Positions], ClientData]
Score = Callable[[Services, ScoreTask], tuple[SiloScores, int]]
# Not LETHE_DEVICE: whoever judges or repeats a round could not tell a silo's GPU from another.
DEVICE = "cpu"
THREADS = 1  # as the in-process engine: another number would change the last bits


def run(services: Services, silo_task_id: str, load: Load, score: Score) -> None:
    """Answer a row once, however often its message comes.

    `load` gets (services, session, model id, client, positions or None for all) and returns
    the client's training rows. `score` returns what a judge asks for, and the number of
    classes. Whatever goes wrong is a fault of this client, or silo, named by the error's
    type alone.
    """
    if not table.take(services, silo_task_id):
        return
    answer, fault = None, None
    try:
        answer = _answer(services, silo_task_id, load, score)
    except Exception as error:
        # Were it to escape, the round would wait its whole time-out to learn less.
        fault = type(error).__name__[: table.FAULT_LENGTH]
        log.warning("a round's task failed: %s", fault)
    if not table.answer(services, silo_task_id, answer, fault):
        log.warning("a round's answer came too late and was dropped")


def _answer(services: Services, silo_task_id: str, load: Load, score: Score) -> bytes:
    data = table.message_of(services, silo_task_id)
    if is_score_task(data):
        asked = decode_task(data)
        key = keys.private_key(services.settings, asked.silo)  # first: without it all is vain
        scores, classes = score(services, asked)
        return keys.sign(key, encode_scores(hashlib.sha256(data).hexdigest(), scores, classes))
    message = decode_message(data)
    task = message.task
    with services.reading() as session:
        data_of = load(services, session, message.model_id, task.client, message.positions)
    with deterministic(THREADS):
        return encode_update(respond(task, data_of, DEVICE))
