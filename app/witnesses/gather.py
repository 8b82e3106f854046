"""Asking the witnesses of the policy for cosignatures, now and then, in the background.

Submissions never wait for a witness, and neither do jobs: rounds run in a thread of their own
in the worker that runs the schedule. What a round gets is stored (`app.witnesses.rows`); what
it does not get is asked for by the next.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from app.witnesses import standing
from app.witnesses.rows import Rows
from lethe.log.checkpoint import Checkpoint
from lethe.log.note import split_note
from lethe.log.policy import Policy
from lethe.witness.ask import (
    Asker,
    ContradictingError,
    Cosigned,
    DownError,
    WitnessFailureError,
)
from models import Certificate
from models.database.session import reading
from models.database.types import clock

log = logging.getLogger(__name__)

ROUND_S = 30.0  # longest wait for the answers of one round
GRACE_S = 1.0  # wait for the others once there is a quorum
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0  # before a witness that failed is asked again

_Answer = tuple["_Target", Cosigned | WitnessFailureError | None]


@dataclass(slots=True)
class _Target:
    """One witness, and what this process knows of it."""

    label: str
    asker: Asker
    busy: threading.Thread | None = None
    asked: float = 0.0  # when it was asked last
    cosigned: int = -1  # size of what it cosigned last
    failures: int = 0
    not_before: float = 0.0
    lines: dict[str, str] = field(default_factory=dict)  # by vkey, over `cosigned`


class Gatherer:
    """Asks the witnesses of a policy for one process."""

    def __init__(self, ledger: Ledger, policy: Policy, settings: Settings) -> None:
        self._ledger, self._policy, self._rows = ledger, policy, Rows(ledger)
        self._fails_open = settings.witness_fail == "open"
        self._wait = timedelta(seconds=settings.witness_wait_seconds)
        self._seconds = settings.witness_seconds
        self._targets = [
            _Target(standing.label_of(keys[0]), Asker(url, keys))
            for url, keys in standing.asked_at(policy).items()
        ]

    def start(self, leads: Callable[[], bool]) -> None:
        """Ask every LETHE_WITNESS_SECONDS, in a thread, while this process lives and leads."""
        threading.Thread(
            target=self.ask_for_ever, args=(leads,), name="witnesses", daemon=True
        ).start()

    def close(self) -> None:
        """Close the connections."""
        for target in self._targets:
            target.asker.close()

    def round(self) -> bool:
        """Ask for the latest checkpoint; return whether a row was stored.

        Raises what the database raises, and nothing of a witness.
        """
        begin(self._ledger, self._policy)
        latest = self._ledger.latest()
        checkpoint = self._ledger.open(latest.note)
        self._ask(latest.note, checkpoint)
        return self._store(latest.note, checkpoint)

    def ask_for_ever(self, leads: Callable[[], bool]) -> None:
        """Begin a round every LETHE_WITNESS_SECONDS while `leads`; one that fails ends none."""
        while True:
            try:
                if leads():
                    self.round()
            except Exception as error:  # a driver's text may quote a row
                log.error(
                    "witnesses were not asked (%s): the next round will", type(error).__name__
                )
            time.sleep(self._seconds)

    def _ask(self, note: str, checkpoint: Checkpoint) -> None:
        answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        for target in filter(self._is_silent, self._targets):
            # It may drip a byte now and then for days: what it did last is not how it stands.
            if standing.note_problem(self._ledger, target.label, DownError.slug):
                log.error("witness %s does not cosign: it does not answer", target.label)
        waiting = [one for one in self._targets if self._is_due(one, checkpoint.size)]
        for target in waiting:
            target.busy = threading.Thread(
                target=self._ask_one,
                args=(target, note, checkpoint, answers),
                name="witness",
                daemon=True,
            )
            target.asked = time.monotonic()
            target.busy.start()
        until = time.monotonic() + ROUND_S
        for _ in waiting:
            try:
                target, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break  # who is late is busy, and is not asked meanwhile
            self._take(target, answer, checkpoint)
            if self._is_met(checkpoint.size):
                until = min(until, time.monotonic() + GRACE_S)

    def _is_due(self, target: _Target, size: int) -> bool:
        idle = target.busy is None or not target.busy.is_alive()
        return idle and target.cosigned != size and time.monotonic() >= target.not_before

    def _is_silent(self, target: _Target) -> bool:
        """Return whether it was asked longer ago than a round, and has not answered."""
        busy = target.busy is not None and target.busy.is_alive()
        return busy and time.monotonic() - target.asked >= ROUND_S

    def _ask_one(
        self,
        target: _Target,
        note: str,
        checkpoint: Checkpoint,
        answers: "queue.SimpleQueue[_Answer]",
    ) -> None:
        """Put one witness's answer into `answers`; of a late one nobody takes it."""
        found: Cosigned | WitnessFailureError | None = None
        try:
            found = target.asker.cosign(note, checkpoint, self._ledger.consistency)
        except WitnessFailureError as error:
            found = error
        except Exception as error:  # of the database, or of this program
            log.error("a witness could not be asked: %s", type(error).__name__)
        answers.put((target, found))

    def _take(
        self,
        target: _Target,
        answer: Cosigned | WitnessFailureError | None,
        checkpoint: Checkpoint,
    ) -> None:
        if isinstance(answer, Cosigned):
            lines = (line.text for line in answer.lines)
            target.lines = dict(zip(answer.vkeys, lines, strict=True))
            target.cosigned, target.failures, target.not_before = checkpoint.size, 0, 0.0
            standing.note_cosigned(self._ledger, target.label, checkpoint.size)
            return
        pause = min(FIRST_PAUSE_S * 2.0**target.failures, LONGEST_PAUSE_S)
        target.failures, target.not_before = target.failures + 1, time.monotonic() + pause
        if answer is None:
            return
        problem, evidence = answer.slug, None
        if isinstance(answer, ContradictingError):
            evidence = self._evidence(target)
            problem = problem if evidence is None else standing.FORKED
        if standing.note_problem(self._ledger, target.label, problem, evidence):
            said = standing.CONTRADICTED if evidence else answer.detail
            log.error("witness %s does not cosign: %s: %s", target.label, problem, said)

    def _evidence(self, target: _Target) -> str | None:
        """Return the note by which a witness proves what it says, None if it does not."""
        note = target.asker.last(self._ledger.keys)
        if note is None:
            return None
        # Read after the note: another worker may have had a larger tree cosigned meanwhile.
        with Session(reading(self._ledger.engine)) as session:
            return note if standing.contradicts(session, self._ledger, note) else None

    def _lines(self, size: int) -> dict[str, str]:
        return {
            vkey: line
            for target in self._targets
            if target.cosigned == size
            for vkey, line in target.lines.items()
        }

    def _is_met(self, size: int) -> bool:
        return self._policy.is_met(self._lines(size).keys())

    def _store(self, note: str, checkpoint: Checkpoint) -> bool:
        with Session(reading(self._ledger.engine)) as session:
            is_new = self._rows.lacks_quorum(session, checkpoint.size)
            held = self._rows.note_of(session, checkpoint.size)
        text, lines = split_note(note)
        # A process before this one may have had lines of witnesses that are away now.
        cosigned = self._held(text, held) | self._lines(checkpoint.size)
        own = "".join(line.text for line in lines)
        whole = f"{text}\n{own}{''.join(cosigned.values())}"
        if self._policy.is_met(cosigned.keys()):
            return is_new and self._rows.add("quorum", checkpoint.size, whole)
        if self._fails_open and self.waited():
            return self._rows.add("without", checkpoint.size, whole)
        return False

    def _held(self, text: str, note: str | None) -> dict[str, str]:
        """Return by vkey the lines of the policy's witnesses in a stored note over `text`."""
        if note is None:
            return {}
        stored, lines = split_note(note)
        keys = {(key.name, key.key_id): key for key in self._policy.keys}
        found = ((keys.get((line.name, line.key_id)), line) for line in lines)
        return {key.vkey: line.text for key, line in found if key and stored == text}

    def waited(self) -> bool:
        """Return whether a certificate has waited for a quorum for long enough."""
        with Session(reading(self._ledger.engine)) as session:
            last = self._rows.last(session)
            waiting = (
                select(Certificate.log_index)
                .where(col(Certificate.log_index) >= (0 if last is None else last.size))
                .where(col(Certificate.issued_at) < clock(session) - self._wait)
            )
            return session.exec(waiting.limit(1)).first() is not None


def begin(ledger: Ledger, policy: Policy | None) -> None:
    """Have certificates wait for witnesses from now on, if there is a policy.

    Called by each process at its start, before it issues or serves a certificate.

    Raises:
        LetheError: What a transaction of the log raises.
    """
    rows = Rows(ledger)
    with Session(reading(ledger.engine)) as session:
        asked = rows.are_asked(session)
    if policy is not None and not asked:
        latest = ledger.latest()
        rows.add("began", latest.size, latest.note)
    elif policy is None and asked:
        log.warning(
            "LETHE_WITNESS_POLICY is not set, and certificates wait for witnesses: set it, or "
            "end this with `lethe log witnesses --end`"
        )


def end(ledger: Ledger) -> bool:
    """Have certificates wait no longer, those that wait included; return whether any could."""
    latest = ledger.latest()
    return Rows(ledger).add("ended", latest.size, latest.note)
