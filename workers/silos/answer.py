"""A silo's end: take a row, compute what it asks of one client's rows, seal the answer."""

import logging
from collections.abc import Callable

from sqlmodel import Session

from app.service.context import Services
from workers.fedavg.base import ClientData
from workers.fedavg.determinism import deterministic
from workers.fedavg.messages import encode_update
from workers.fedavg.respond import respond
from workers.silos import table
from workers.silos.message import Positions, decode_message

log = logging.getLogger(__name__)

Load = Callable[[Services, Session, int, str, Positions], ClientData]
DEVICE = "cpu"
THREADS = 1  # as the in-process engine: another number would change the last bits


def run(services: Services, silo_task_id: str, load: Load) -> None:
    """Answer a row once, however often its message comes.

    `load` gets (services, session, model id, client, positions or None for all) and returns
    the client's training rows. Whatever goes wrong is a fault of this client, named by the
    error's type alone.
    """
    if not table.take(services, silo_task_id):
        return
    answer, fault = None, None
    try:
        answer = _answer(services, silo_task_id, load)
    except Exception as error:
        # Were it to escape, the round would wait its whole time-out to learn less.
        fault = type(error).__name__[: table.FAULT_LENGTH]
        log.warning("a round's task failed: %s", fault)
    if not table.answer(services, silo_task_id, answer, fault):
        log.warning("a round's answer came too late and was dropped")


def _answer(services: Services, silo_task_id: str, load: Load) -> bytes:
    message = decode_message(table.message_of(services, silo_task_id))
    task = message.task
    with services.reading() as session:
        data = load(services, session, message.model_id, task.client, message.positions)
    with deterministic(THREADS):
        return encode_update(respond(task, data, DEVICE))
