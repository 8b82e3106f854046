"""The silo's side: take a task, compute on its clients' rows, sign and store the answer."""

import hashlib
import logging
from collections.abc import Callable, Collection

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlmodel import Session

from app.dispatch import silo_queue
from app.service.context import Services
from workers.silos import keys, table
from workers.silos.message import Positions, decode_message
from workers.silos.score_task import ScoreTask, decode_task, is_score_task
from workers.silos.scores import SiloScores, encode_scores
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.determinism import deterministic
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.messages import encode_update

log = logging.getLogger(__name__)

Load = Callable[[Services, Session, int, str, Positions], ClientData]
Score = Callable[[Services, ScoreTask], tuple[SiloScores, int]]
# Not LETHE_DEVICE: a judge or a repetition could not know a silo's GPU.
DEVICE = "cpu"
THREADS = 1  # as in the in-process engine: another number would change the last bits


def run(
    services: Services, silo_task_id: str, load: Load, score: Score, silos: Collection[int]
) -> None:
    """Answer a row once, however often its message is delivered.

    `silos` are the silos this worker serves: it ignores other silos' rows and signs for no
    other, even if it can read their keys.

    `load` takes (services, session, model id, client, positions or None for all) and returns
    the client's training rows. `score` returns the scores for a judge and the number of
    classes. Any error becomes a fault of this client or silo, named only by the error's type.
    """
    if not table.take(services, silo_task_id, [silo_queue(silo) for silo in silos]):
        return
    answer, fault = None, None
    try:
        answer = _answer(services, silo_task_id, load, score, silos)
    except Exception as error:
        # If it escaped, the round would wait for its whole time-out and learn less.
        fault = type(error).__name__[: table.FAULT_LENGTH]
        log.warning("a round's task failed: %s", fault)
    if not table.answer(services, silo_task_id, answer, fault):
        log.warning("a round's answer came too late and was dropped")


def _answer(
    services: Services, silo_task_id: str, load: Load, score: Score, silos: Collection[int]
) -> bytes:
    data = table.message_of(services, silo_task_id)
    if is_score_task(data):
        question = decode_task(data)
        key = _key(services, question.silo, silos)  # first: the scores need it
        scores, classes = score(services, question)
        return keys.sign(key, encode_scores(hashlib.sha256(data).hexdigest(), scores, classes))
    message = decode_message(data)
    if message.row != silo_task_id:
        raise MessageError(
            "this task does not belong to the row of silo_tasks that it lies in, "
            "so it is not answered: find out who writes to the database"
        )
    key, task = _key(services, message.silo, silos), message.task
    with services.reading() as session:
        data_of = load(services, session, message.model_id, task.client, message.positions)
    with deterministic(THREADS):
        update = encode_update(respond(task, data_of, DEVICE))
    return keys.sign(key, hashlib.sha256(data).digest() + update, keys.UPDATE)


def _key(services: Services, silo: int, silos: Collection[int]) -> Ed25519PrivateKey:
    if silo not in silos:
        raise keys.NotThisSiloError(
            "the task is for a silo that this worker does not serve: start `lethe "
            "worker --silo` with that silo's number"
        )
    return keys.private_key(services.settings, silo)
