"""fsck of cases opened on the intake page: the log commits to how each began."""

import hmac

from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport
from lethe import canonical
from lethe.certificates.intake_receipt import EVENT, read_record, record_commitment
from lethe.errors import LetheError
from lethe.log.entries import Leaf, parse_leaf
from models import Case, IntakeProof, LogEntry

CHECK = "intake"
REQUESTER = "intake"  # the opener of such cases; no token has this name
UNLOGGED = "how a case of the intake page began is not what the log commits to"
MISSING = "a case of the intake page has no row of how it began"


def check_intake(session: Session, report: FsckReport) -> None:
    """Compare each case's record with its log entry, unless its retention has ended."""
    opened = select(Case, IntakeProof).join(
        IntakeProof, col(IntakeProof.case_ref) == col(Case.ref), isouter=True
    )
    of_page = (col(Case.opened_by) == REQUESTER) | col(IntakeProof.case_ref).is_not(None)
    for case, proof in session.exec(opened.where(of_page)):
        if case.key is None:
            continue
        if proof is None or proof.record is None or proof.key is None:
            report.add(CHECK, MISSING)
        elif case.opened_by != REQUESTER or not _is_logged(session, case, proof):
            report.add(CHECK, UNLOGGED, proof.log_index)


def issuer_commitment(key: bytes, case: str, issuer: str) -> str:
    """Return the digest by which `case.intake` commits to the code's issuer.

    key: the case's key. It is not in the person's receipt, so the receipt does not reveal the
    officer's name.
    """
    return hmac.digest(key, canonical.encode(["issuer", case, issuer]), "sha256").hex()


def _is_logged(session: Session, case: Case, proof: IntakeProof) -> bool:
    entry = session.get(LogEntry, proof.log_index)
    if entry is None or proof.key is None:
        return False
    try:
        leaf: Leaf = parse_leaf(entry.leaf)
        record = read_record(proof.record)
    except LetheError:
        return False
    digest = leaf.digests.get("proof", "")
    same = hmac.compare_digest(digest, record_commitment(proof.key, record))
    by = proof.issued_by
    issuer = None if by is None else issuer_commitment(case.key or b"", case.ref, by)
    same = same and leaf.digests.get("issuer") == issuer
    return same and leaf.event == EVENT and record.case == case.ref
