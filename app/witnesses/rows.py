"""Which checkpoint a certificate carries: the first stored here that covers its entry.

Rows are only ever added, in growing order of size, so the answer for an entry never changes.
While no witnesses are configured, a certificate carries the smallest published checkpoint that
covers its entry. While they are, it waits for a row: one with a quorum or, where the
installation fails open, one without after some time.

A quorum that comes for a size that has a row already is stored in a row of the negative size:
it shows the log as witnessed, and no certificate carries it (docs/adr/0106).

Each row has a MAC under a key derived from `entries.key`: who writes the database can add none.
"""

from hmac import compare_digest, digest
from math import inf
from typing import Literal

from sqlalchemy import Select
from sqlalchemy import select as columns
from sqlmodel import Session, col

from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.problems import NotWitnessedError
from lethe import canonical
from lethe.log.note import split_note
from models import WitnessedCheckpoint

Kind = Literal["began", "quorum", "without", "ended", "later"]
WAITING = "the certificate waits for witnesses to cosign its checkpoint"


class Rows:
    """The rows of one ledger's installation."""

    def __init__(self, ledger: Ledger) -> None:
        assert ledger.entry_key is not None, "a ledger without it is for looking only"
        self._ledger = ledger
        self._key = ledger.entry_key.derive("lethe witnessed checkpoints 1")

    def is_authentic(self, row: WitnessedCheckpoint) -> bool:
        """Return whether this installation wrote the row."""
        return compare_digest(str(row.mac).encode(), self._mac(row).encode())

    def last(self, session: Session) -> WitnessedCheckpoint | None:
        """Return the row of the largest size; never one of a later quorum."""
        query = _ROWS.where(col(WitnessedCheckpoint.size) >= 0)
        return self._first(session, query.order_by(col(WitnessedCheckpoint.size).desc()))

    def witnessed(self, session: Session) -> tuple[int, str] | None:
        """Return size and note of the largest checkpoint with a quorum, if one has any."""
        size, kind = col(WitnessedCheckpoint.size), col(WitnessedCheckpoint.kind)
        first = self._first(session, _ROWS.where(kind == "quorum").order_by(size.desc()))
        later = self._first(session, _ROWS.where(kind == "later").order_by(size))
        return max(
            ((abs(row.size), row.note) for row in (first, later) if row is not None),
            default=None,
        )

    def note_of(self, session: Session, size: int) -> str | None:
        """Return the stored note of a size: that of a later quorum, if there is one."""
        row = self._of_size(session, -size) or self._of_size(session, size)
        return None if row is None else row.note

    def lacks_quorum(self, session: Session, size: int) -> bool:
        """Return whether a quorum for the log's last size would be new."""
        last = self.last(session)
        return last is None or last.size < size or self.is_later(session, last, size)

    def note_for(self, session: Session, index: int) -> str | None:
        """Return the note that the certificate with entry `index` carries.

        None means that of the smallest published checkpoint over the entry.

        Raises:
            NotWitnessedError: It waits for a row.
        """
        query = _ROWS.where(col(WitnessedCheckpoint.size) > index)
        found = self._first(session, query.order_by(col(WitnessedCheckpoint.size)))
        if found is not None:
            return None if found.kind == "began" else found.note
        if self.are_asked(session):
            raise NotWitnessedError(WAITING)
        return None

    def waits(self, session: Session, index: int) -> bool:
        """Return whether the certificate with entry `index` waits for witnesses."""
        return index >= self.issued_below(session)

    def issued_below(self, session: Session) -> float:
        """Return the size below which certificates wait for no witness, infinity for all."""
        last = self.last(session)
        return inf if last is None or last.kind == "ended" else last.size

    def are_asked(self, session: Session) -> bool:
        """Return whether witnesses are asked, by what is stored."""
        return self.issued_below(session) < inf

    def add(self, kind: Kind, size: int, note: str) -> bool:
        """Store a row, unless there is one of this size or a larger one; return whether.

        Of a beginning, unless the last one says that witnesses are asked already; of an end,
        unless it says that they are not. A quorum for the size of the last row, which has none,
        is stored beside it.
        """

        def effect(tx: Transaction) -> bool:
            last = self.last(tx.session)
            if (kind == "began") == self.are_asked(tx.session):
                return False
            row = WitnessedCheckpoint(size=size, kind=kind, note=note, mac="")
            if last is not None and last.size >= size:
                if kind != "quorum" or not self.is_later(tx.session, last, size):
                    return False
                if split_note(last.note)[0] != split_note(note)[0]:
                    return False  # lines over another tree are added to none
                row.size, row.kind = -size, "later"
            row.mac = self._mac(row)
            row.stored_at = tx.now
            tx.session.add(row)
            return True

        return self._ledger.transact(effect, checkpoint=False)

    def is_later(self, session: Session, last: WitnessedCheckpoint, size: int) -> bool:
        """Return whether a quorum for `size` would be stored beside the last row."""
        if last.size != size or size == 0 or last.kind not in ("began", "without"):
            return False
        # A planted row keeps the place: fsck reports it.
        return session.get(WitnessedCheckpoint, -size) is None

    def _of_size(self, session: Session, size: int) -> WitnessedCheckpoint | None:
        return self._first(session, _ROWS.where(col(WitnessedCheckpoint.size) == size))

    def _first(
        self, session: Session, query: Select[int, str, str, str]
    ) -> WitnessedCheckpoint | None:
        """Return the first row of a query that this installation wrote."""
        streamed = query.execution_options(yield_per=100)  # planted rows may be many
        with session.connection().execute(streamed) as rows:
            for row in rows:
                found = WitnessedCheckpoint(**row._mapping)
                if self.is_authentic(found):
                    return found
        return None

    def _mac(self, row: WitnessedCheckpoint) -> str:
        said = [self._ledger.origin, str(row.size), str(row.kind), str(row.note)]
        return digest(self._key, canonical.encode(said), "sha256").hex()


_ROWS = columns(
    col(WitnessedCheckpoint.size),
    col(WitnessedCheckpoint.kind),
    col(WitnessedCheckpoint.note),
    col(WitnessedCheckpoint.mac),
)
