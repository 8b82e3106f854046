"""Nudges to the workers: a message says "look at this job" and nothing else.

The database is the queue of record. A nudge that is lost costs a few seconds, until the
sweep sends it again; so sending never fails, or delays, a call that has been committed.
"""

import logging
import queue
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from app.nudges import SILO_PREFIX
from app.settings import Settings
from lethe.files import keep_private

if TYPE_CHECKING:  # a tenth of the start of an API process, which sends its first nudge later
    from celery import Celery

log = logging.getLogger(__name__)

QUEUE = "cpu"
GPU_QUEUE = "gpu"  # for jobs that train networks, where LETHE_GPU_QUEUE is set
POLL_SECONDS = 0.05  # of the file broker; kombu's default of 1 s would dominate the latency
REPLY_SECONDS = 1  # time-out for a Redis that accepts and never answers
WAITING = 1000  # nudges in memory; the rest is dropped, and the sweep finds the jobs
RETENTION_HOUR = 2  # hour of the day in UTC, when there is little other writing
LAST = 9  # the lowest priority of a message; 0 is the highest
DRAIN_SECONDS = 2.0  # how long closing waits for nudges not yet sent


def silo_queue(number: int) -> str:
    """Return the name of a silo's queue; silos are counted from 0."""
    return f"{SILO_PREFIX}{number}"


def make_celery(settings: Settings) -> "Celery":
    """Return a Celery application for these settings; workers add their tasks to it."""
    from celery import Celery
    from celery.schedules import crontab

    from app import broker  # registers its transports with kombu

    keep_private()  # the umask decides the mode of kombu's messages and locks
    options: dict[str, object] = {}
    url = settings.broker_url
    if settings.broker_url.startswith("filesystem:"):
        folder = settings.made_data_dir() / "broker"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (QUEUE, GPU_QUEUE, *map(silo_queue, range(settings.silos))):
            broker.bind(settings.data_dir / "broker-control", name)
        url = url.replace("filesystem:", f"{broker.SCHEME}:", 1)
        options = {
            "data_folder_in": str(folder),
            "data_folder_out": str(folder),
            "control_folder": str(settings.data_dir / "broker-control"),
            "polling_interval": POLL_SECONDS,
        }
    elif settings.broker_url.startswith("redis"):
        # Redis hands a message out again after this long; a lease makes that harmless.
        options = {
            "visibility_timeout": 12 * 3600,
            "socket_timeout": REPLY_SECONDS,
            "socket_connect_timeout": REPLY_SECONDS,
        }
    celery = Celery("lethe", broker=url)
    if settings.broker_url.startswith("rediss:"):
        # Without it, kombu accepts any certificate. `ssl_…` in the URL replaces it.
        celery.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    celery.conf.update(
        broker_transport_options=options,
        broker_connection_retry_on_startup=True,
        broker_channel_error_retry=True,  # Redis' refusals too, which would end the worker
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,  # nobody commands a worker through the broker
        beat_schedule={
            "sweep": {
                "task": "lethe.sweep",
                "schedule": timedelta(seconds=settings.sweep_seconds),
            },
            "retention": {
                "task": "lethe.retention",
                "schedule": crontab(hour=RETENTION_HOUR, minute=0),
            },
        },
        beat_scheduler="workers.schedule:ElectedScheduler",
    )
    return celery


class Dispatcher:
    """Sends nudges after commit, from one thread that the first nudge starts."""

    _sender: threading.Thread | None = None

    def __init__(self, make: "Callable[[], Celery]") -> None:
        self._make = make
        self._waiting: queue.Queue[tuple[str, str, str, int] | None] = queue.Queue(WAITING)
        self._starting = threading.Lock()

    @cached_property
    def _celery(self) -> "Celery":
        return self._make()

    def nudge(
        self, job_id: str, stage: str = "execute", queue: str = QUEUE, *, last: bool = False
    ) -> None:
        """Tell a worker of a queue to look at a job.

        last: behind all other nudges, later ones included: the job's model just had a turn.

        Returns at once and never raises: if a request waited for the broker, one that hangs
        would hold every thread of the service.
        """
        try:
            self._waiting.put_nowait((job_id, stage, queue, LAST if last else 0))
            self._start()
        except Exception as error:  # a full queue, or no thread left to send from
            log.warning("nudge dropped (%s); the sweep will send it", type(error).__name__)

    def ask(self, silo_tasks: Mapping[str, str], *, expires: float) -> None:
        """Send silos the ids of the task rows to answer, {id: queue}, as one group.

        The broker may drop a message not delivered within `expires` seconds; a worker goes by
        the row. Never raises: the caller checks the rows, and sends untaken ones again.
        """
        from celery import group

        asked = [
            self._celery.signature("lethe.answer", args=[row], queue=queue, immutable=True)
            for row, queue in silo_tasks.items()
        ]
        try:
            group(asked).apply_async(add_to_parent=False, expires=expires, retry=False)
        except Exception as error:
            log.warning("silos not asked (%s); asked again soon", type(error).__name__)

    def close(self) -> None:
        """Wait briefly for unsent nudges, then leave the rest to the sweep."""
        if self._sender is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._sender.join(DRAIN_SECONDS)

    def _start(self) -> None:
        with self._starting:
            if self._sender is None or not self._sender.is_alive():
                # A daemon: a broker that hangs must not keep the process from ending.
                self._sender = threading.Thread(target=self._run, name="nudges", daemon=True)
                self._sender.start()

    def _run(self) -> None:
        while (nudge := self._waiting.get()) is not None:
            job_id, stage, name, priority = nudge
            try:
                # Only this queue may have no worker while others sweep: each sweep would add a
                # message for every waiting job.
                if name == GPU_QUEUE and self._waiting_in(name) >= WAITING:
                    continue
                self._celery.send_task(
                    f"lethe.{stage}", args=[job_id], queue=name, retry=False, priority=priority
                )
            except Exception as error:
                log.warning("nudge not sent (%s); the sweep will", type(error).__name__)

    def _waiting_in(self, name: str) -> int:
        """Return how many messages a queue holds, 0 if it does not exist yet."""
        with self._celery.connection_for_write() as connection:
            channel = connection.default_channel
            try:
                found: int = channel.queue_declare(name, passive=True).message_count
            except connection.channel_errors:
                return 0
        return found

    def check(self) -> int:
        """Return how many foreign messages workers have dropped (for /readyz).

        Raises the broker's error if it cannot be reached.
        """
        with self._celery.connection_for_write() as connection:
            connection.ensure_connection(max_retries=0, timeout=2)
            refused: int = connection.default_channel.refused()
        return refused
