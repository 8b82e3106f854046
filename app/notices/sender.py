"""The sender: a thread of each worker that follows the log and sends what is owed.

Not a task: a worker may train for hours, and an overdue request must be told of meanwhile.
"""

import logging
import threading
import time
from datetime import timedelta

from app.notices import alarms, deliver, mailings, outbox
from app.service.context import Services
from models.database.clock import clock

log = logging.getLogger(__name__)

KEPT = timedelta(days=30)  # of the delivery log
SLOW_S = 3600.0  # between two looks for alarms, and at what can be forgotten
PAGES = 200  # of the log in one turn


class Sender:
    """Runs until the process ends; a turn every `sweep_seconds`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stop = threading.Event()
        self._slow = float("-inf")
        self._thread = threading.Thread(target=self._run, daemon=True, name="notices")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after this turn."""
        self._stop.set()
        self._thread.join()

    def turn(self) -> None:
        """Read on in the log, look for alarms, and send what is due."""
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

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.turn()
            except Exception as error:  # as a task's: its text may quote a row
                name = type(error).__name__
                log.error("notices: a turn ended with %s; the next one tries again", name)
            self._stop.wait(self._services.settings.sweep_seconds)
