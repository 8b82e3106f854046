"""The judge's side: ask every silo for scores; accept signed, timely, complete answers."""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlmodel import Session

from app.dispatch import silo_queue
from app.service.access.silo_keys import digest_of, previous_path, public_key, read_public
from app.service.context import Services
from lethe.errors import LetheError
from models import SiloTask
from workers.silos import keys, table
from workers.silos.score_task import ScoreTask, encode_task
from workers.silos.scores import SiloScores, decode_scores
from workers.training.fedavg.errors import MessageError
from workers.training.networks.registry import Network

# Reasons why a silo's answer does not count. None says anything about the model.
LATE = "no answer in time"
FAILED = "an error at the silo"
UNREGISTERED = "no key is registered"
UNSIGNED = "not signed with the registered key"
UNLOGGED = "another key is registered than the log has"
UNREADABLE = "malformed, incomplete or to another question"


class SilentError(Exception):
    """One silo's answer does not count; the text is one of the reasons above."""


@dataclass(slots=True)
class SiloAnswers:
    """The valid scores by silo, the faults of the other silos, and the signing keys.

    signed_by: hex SHA-256 of the SubjectPublicKeyInfo, as in the log.
    """

    scores: dict[int, SiloScores] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    signed_by: dict[int, str] = field(default_factory=dict)


def collect(
    services: Services,
    tasks: Sequence[ScoreTask],
    network: Network,
    logged: Callable[[], Mapping[int, Collection[str]]],
    *,
    stamps: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> SiloAnswers:
    """Ask the silos for scores, all of one job; wait up to LETHE_ROUND_TIMEOUT_SECONDS.

    logged: returns the digests of each silo's keys in the log; no other key's signature counts.
    It is called after answers arrived: a silo may have got a new key while it computed.
    stamps: whether the model has a registered canary, which the silos must answer about too.
    When this returns or raises, the rows are removed and their artifacts shredded.
    """
    sent: dict[str, tuple[ScoreTask, str]] = {}  # by the id of the row
    queues: dict[str, str] = {}
    found = SiloAnswers()
    try:
        deadline = clock() + services.settings.round_timeout_seconds
        for task in tasks:
            message, queue = encode_task(task), silo_queue(task.silo)
            row = table.post(services, task.job_id, task.model_id, queue, message)
            sent[row], queues[row] = (task, hashlib.sha256(message).hexdigest()), queue
        rows: Mapping[str, SiloTask] = {}
        if tasks:
            waiting = Waiting(services, tasks[0].job_id, clock, sleep)
            rows = waiting.until(queues, deadline)
        known = logged() if any(map(over, rows.values())) else {}
        with services.reading() as session:
            for name, (task, digest) in sent.items():
                try:
                    answer, key = _signed(services, session, rows.get(name), task.silo, known)
                    scores = _read(answer, task, digest, network, stamps)
                except SilentError as why:
                    found.faults[task.silo] = str(why)
                else:
                    found.scores[task.silo], found.signed_by[task.silo] = scores, key
    finally:
        table.settle(services, queues)
    return found


def _signed(
    services: Services,
    session: Session,
    row: SiloTask | None,
    silo: int,
    logged: Mapping[int, Collection[str]],
) -> tuple[bytes, str]:
    """Return a silo's answer and the digest of the key that signed it. Raises SilentError."""
    if row is None or not over(row):
        raise SilentError(LATE)
    if row.answer_id is None:
        raise SilentError(FAILED)
    trusted = trusted_keys(services, silo, logged)
    try:
        answer, key = opened(trusted, services.artifacts.get(session, row.answer_id))
        return answer, digest_of(key)
    except keys.NotSignedError:
        raise SilentError(UNSIGNED) from None
    except LetheError:
        raise SilentError(UNREADABLE) from None


def trusted_keys(
    services: Services, silo: int, logged: Mapping[int, Collection[str]]
) -> list[Ed25519PublicKey]:
    """Return a silo's trusted keys: the registered ones that are also in the log.

    There is one, and during a rotation also the previous one. Raises SilentError if there is
    none.
    """
    key = public_key(services.settings, silo)
    if key is None:
        raise SilentError(UNREGISTERED)
    before = read_public(previous_path(services.settings, silo))
    known = [key] if before is None else [key, before]
    trusted = [one for one in known if digest_of(one) in logged.get(silo, ())]
    if not trusted:
        raise SilentError(UNLOGGED)
    return trusted


def opened(
    trusted: Sequence[Ed25519PublicKey], signed: bytes, context: bytes = keys.SCORES
) -> tuple[bytes, Ed25519PublicKey]:
    """Return an answer and the key that signed it. Raises NotSignedError."""
    for key in trusted[:-1]:
        with suppress(keys.NotSignedError):
            return keys.opened(key, signed, context), key
    return keys.opened(trusted[-1], signed, context), trusted[-1]


def _read(
    answer: bytes, task: ScoreTask, digest: str, network: Network, stamps: bool
) -> SiloScores:
    classifies = network.task == "classification"
    try:
        return decode_scores(
            answer, digest, task, network.classes, classifies=classifies, stamps=stamps
        )
    except MessageError:
        raise SilentError(UNREADABLE) from None


SOONEST, LATEST = 0.05, 0.5  # seconds between two polls of the table
SEND_AGAIN = 5.0  # seconds until an untaken task is resent, doubled each time
SEND_AGAIN_MOST = 60.0  # a silo may be busy with another client: do not flood its queue


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits for the rows of a job. Times are in seconds of `clock`."""

    services: Services
    job_id: str
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def until(self, queues: Mapping[str, str], deadline: float) -> dict[str, SiloTask]:
        """Send the rows {id: queue}; return the job's when all are answered or time is over."""
        unsent = dict(queues)
        pause, again, wait = SOONEST, self.clock(), SEND_AGAIN
        while True:
            now = self.clock()
            if unsent and now >= again:
                self.services.dispatcher.ask(unsent, expires=max(deadline - now, 1.0))
                again, wait = now + wait, min(2 * wait, SEND_AGAIN_MOST)
            rows = table.rows_of(self.services, self.job_id)
            # The job's other rows were left by a dead worker. A missing row was removed with
            # the job, finished by another worker: no answer will come.
            waiting = [rows[name] for name in queues if name in rows and not over(rows[name])]
            left = deadline - self.clock()
            if not waiting or left <= 0:
                return rows
            unsent = {row.id: row.queue for row in waiting if row.taken_at is None}
            self.sleep(min(pause, left))
            pause = min(1.5 * pause, LATEST)


def over(row: SiloTask) -> bool:
    """Return whether a row was answered, even by a fault."""
    return row.answered_at is not None
