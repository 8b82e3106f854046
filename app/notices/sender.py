"""The sender: threads of each worker that follow the log and send what is due.

Not a task: a worker may train for hours, and overdue requests must be reported meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta

from app.notices import alarms, deliver, mailings, outbox
from app.notices.callbacks import rows as callbacks
from app.notices.callbacks.form import OWN, Form
from app.service.context import Services
from models.database.types import clock

log = logging.getLogger(__name__)

KEPT = timedelta(days=30)  # deliveries that ended
SLOW_S = 3600.0  # between two checks for alarms and for expired deliveries
PAGES = 200  # of the log in one turn


class Sender:
    """Runs until the process ends; a turn every `sweep_seconds`.

    Callbacks go to addresses that requesters chose. They have a thread of their own, so that
    no such address delays notices to the operator's endpoints, officers and people.
    """

    def __init__(self, services: Services, forms: Mapping[str, Form] = OWN) -> None:
        self._services, self._forms = services, forms
        self._stop = threading.Event()
        self._slow = float("-inf")
        self._threads = [
            threading.Thread(target=self._run, args=(part,), daemon=True, name=name)
            for name, part in (("notices", self.follow), ("callbacks", self.call_back))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the current turn."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def turn(self) -> None:
        """Run one turn of both threads."""
        self.follow()
        self.call_back()

    def follow(self) -> None:
        """Read new log entries, check for alarms, and send webhooks and mail that are due.

        If one fails, such as by a damaged row, the others have their turn all the same. Raises
        the last one's error.
        """
        with ExitStack() as steps:
            for step in (self._send, self._owe_digest, self._look, self._read_on):
                steps.callback(step)  # the last one runs first

    def _read_on(self) -> None:
        for _ in range(PAGES):
            if not outbox.read_on(self._services):
                break

    def _look(self) -> None:
        if time.monotonic() - self._slow >= SLOW_S:
            self._slow = time.monotonic()
            alarms.look(self._services)
            with self._services.reading() as session:
                now = clock(session)
            deliver.forget(self._services, KEPT, now)

    def _owe_digest(self) -> None:
        mailings.owe_digest(self._services)

    def _send(self) -> None:
        while deliver.run(self._services) >= deliver.EACH and not self._stop.is_set():
            pass  # a receiver may have more than one turn's share

    def call_back(self) -> None:
        """Send the callbacks that are due, and delete those that have ended."""
        while deliver.run(self._services, self._forms) >= deliver.EACH:
            if self._stop.is_set():
                break
        callbacks.forget_ended(self._services)

    def _run(self, part: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                part()
            except Exception as error:  # logged by type: its text may quote a row
                name = type(error).__name__
                log.error("notices: a turn ended with %s; the next one tries again", name)
            self._stop.wait(self._services.settings.sweep_seconds)
