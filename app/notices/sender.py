"""The sender: a thread of each worker that follows the log and sends what is owed.

Not a task: a worker may train for hours, and an overdue request must be told of meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from app.notices import alarms, deliver, mailings, outbox
from app.notices.callbacks import rows as callbacks
from app.notices.callbacks.form import OWN, Form
from app.service.context import Services
from models.database.clock import clock

log = logging.getLogger(__name__)

KEPT = timedelta(days=30)  # of the delivery log
SLOW_S = 3600.0  # between two looks for alarms, and at what can be forgotten
PAGES = 200  # of the log in one turn


class Sender:
    """Runs until the process ends; a turn every `sweep_seconds`.

    Callbacks go to addresses that requesters chose. A thread of their own sends them, so that
    no such address delays what the operator's endpoints, officers and people are told.
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
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after this turn."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def turn(self) -> None:
        """Do once what both threads do."""
        self.follow()
        self.call_back()

    def follow(self) -> None:
        """Read on in the log, look for alarms, and send webhooks and mail that are due."""
        for _ in range(PAGES):
            if not outbox.read_on(self._services):
                break
        if time.monotonic() - self._slow >= SLOW_S:
            self._slow = time.monotonic()
            alarms.look(self._services)
            with self._services.reading() as session:
                now = clock(session)
            deliver.forget(self._services, KEPT, now)
        mailings.owe_digest(self._services)
        while deliver.run(self._services) >= deliver.EACH and not self._stop.is_set():
            pass  # a receiver may have more than one turn's share

    def call_back(self) -> None:
        """Send the callbacks that are due, and destroy the addresses of those that are over."""
        while deliver.run(self._services, self._forms) >= deliver.EACH:
            if self._stop.is_set():
                break
        callbacks.forget_ended(self._services)

    def _run(self, part: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                part()
            except Exception as error:  # as a task's: its text may quote a row
                name = type(error).__name__
                log.error("notices: a turn ended with %s; the next one tries again", name)
            self._stop.wait(self._services.settings.sweep_seconds)
