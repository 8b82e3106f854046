"""How each witness stands: what it did last, and whether it holds proof against this log."""

from collections.abc import Callable, Iterable, Iterator

from sqlmodel import Session, col, select

from app.ledger import storage
from app.ledger.named import spanned
from app.ledger.sequencer import Ledger
from lethe.errors import LetheError
from lethe.log.note import NoteVerifier
from lethe.log.policy import Policy
from models import WitnessStanding
from models.database.types import clock

FORKED = "forked"  # the log's own key signed another tree: the one problem that proves itself
CONTRADICTED = (
    "holds a checkpoint that the key of this log signed and that this log does not extend: a "
    "copy of this installation runs or ran, or its database was put back: docs/witnesses.md"
)


def label_of(key: NoteVerifier) -> str:
    """Return name+key id, by which metrics and people know a witness."""
    return f"{key.name}+{key.key_id.hex()}"


def asked_at(policy: Policy) -> dict[str, list[NoteVerifier]]:
    """Return {URL: keys}: one witness may sign with several, and is asked once."""
    found: dict[str, list[NoteVerifier]] = {}
    for witness in policy.witnesses:
        found.setdefault((witness.url or "").rstrip("/"), []).append(witness.key)
    return found


def note_cosigned(ledger: Ledger, witness: str, size: int) -> None:
    """Store that a witness cosigned a checkpoint. What proves a fork stays, as its problem."""

    def change(session: Session, row: WitnessStanding) -> None:
        row.size, row.cosigned_at = size, clock(session)
        if row.evidence is None or not contradicts(session, ledger, row.evidence):
            row.problem = row.since = row.evidence = None

    _change(ledger, witness, change)


def note_problem(
    ledger: Ledger, witness: str, problem: str, evidence: str | None = None
) -> bool:
    """Store why a witness did not cosign; return whether it stands otherwise than before."""
    changed: list[str] = []

    def change(session: Session, row: WitnessStanding) -> None:
        if row.problem not in (problem, FORKED):
            row.problem, row.since = problem, clock(session)
            changed.append(problem)
        row.evidence = evidence or row.evidence

    _change(ledger, witness, change)
    return bool(changed)


def standings(session: Session) -> list[WitnessStanding]:
    """Return the rows of all witnesses that were ever asked, by their labels."""
    query = select(WitnessStanding).order_by(col(WitnessStanding.witness))
    return list(session.exec(query))


def contradicts(session: Session, ledger: Ledger, note: str) -> bool:
    """Return whether the log's key signed `note` and the log does not extend its tree.

    A key that the log revoked since proves nothing by a tree over its revocation: a thief's.
    """
    try:
        held, _ = spanned(session, ledger.keys).open(note)
    except LetheError:
        return False
    if held.size > storage.read_size(session):
        return True
    return storage.NodeTable(session).root_at(held.size) != held.root


def contradictions(session: Session, ledger: Ledger) -> Iterator[str]:
    """Yield the label of each witness that holds proof against the log, verified anew."""
    for row in standings(session):
        if row.evidence is not None and contradicts(session, ledger, row.evidence):
            yield row.witness


def are_up(
    rows: Iterable[WitnessStanding], policy: Policy | None
) -> dict[tuple[str, ...], float]:
    """Return by label whether a witness of the policy cosigned when it was asked last."""
    keys = [] if policy is None else asked_at(policy).values()
    asked = {label_of(first) for first, *_ in keys}
    return {(row.witness,): float(row.problem is None) for row in rows if row.witness in asked}


def _change(
    ledger: Ledger, witness: str, change: Callable[[Session, WitnessStanding], None]
) -> None:
    def effect() -> None:
        with Session(ledger.engine) as session:
            row = session.get(WitnessStanding, witness) or WitnessStanding(witness=witness)
            change(session, row)
            session.add(row)
            session.commit()

    ledger.beside(effect)
