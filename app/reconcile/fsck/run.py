"""`fsck`: checks that the database holds exactly what was logged and signed.

It trusts no stored hash: everything is recomputed from the leaves. It reads one snapshot and
may run beside a working service. A finding names log indices and sizes, never a request's id,
which is its holder's capability.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from sqlmodel import Session

from app.ledger.guard import GuardError
from app.ledger.sequencer import Ledger
from app.reconcile.audit_rows import check_audits
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.approvals import check_approvals
from app.reconcile.fsck.cases import check_cases
from app.reconcile.fsck.holds import check_holds
from app.reconcile.fsck.intake import check_intake
from app.reconcile.fsck.keys import check_callbacks, check_keys
from app.reconcile.fsck.models import check_models
from app.reconcile.fsck.registrations import check_registrations
from app.reconcile.fsck.requests import (
    check_answered,
    check_certificates,
    check_deadlines,
    check_openings,
    check_requests,
)
from app.reconcile.fsck.retention import check_overdue, check_retention
from app.reconcile.fsck.state import Verified
from app.reconcile.fsck.tree import check_guard, check_tree, check_witnesses
from app.reconcile.holds import NOTHING
from app.settings import Settings
from app.vault.errors import SealError
from lethe.certificates.issuers import IssuerKeys
from lethe.log.checkpoint import Checkpoint
from models.database.session import reading
from models.database.types import can_open


def fsck(
    ledger: Ledger,
    issuers: Mapping[str, EllipticCurvePublicKey] | None = None,
    held: Verified | None = None,
    keys: IssuerKeys | None = None,
    settings: Settings | None = None,
) -> FsckReport:
    """Check the log, openings, approvals, certificates, audits, models, keys and tokens.

    Without the master key, only entries, nodes, checkpoints and guard: the rest is sealed.

    Args:
        ledger: Opened without checks (`open_ledger`) if it no longer starts.
        issuers: Public keys of certificate issuers by name. A certificate of any other issuer
            is checked against the key in its own leaf.
        keys: The issuer's keys by the log: each certificate's key must be valid at its index.
        held: What an earlier call verified, which is not read again (UNREAD).
        settings: The periods after which kept data is overdue; not checked without them.
    """
    report = FsckReport()
    first = 0 if held is None else held.size
    # Entries are durable before the guard, and the guard before a checkpoint is stored: in this
    # order of reading, a running service cannot look damaged.
    before = _guarded(ledger, report)
    with Session(reading(ledger.engine)) as session:
        watched = {before.size} if before else set()
        roots = check_tree(session, ledger, report, watched, held)
        after = _guarded(ledger, report) if before else None
        if before and after:
            check_guard(session, before, after, roots, report)
        check_witnesses(session, ledger, report)
        if not can_open(ledger.engine):
            return report
        with sealed_rows(report, "requests"):
            check_requests(session, report)
            check_deadlines(session, report)
        ended: dict[str, int] = {}
        holds = NOTHING
        with sealed_rows(report, "openings"):
            ended = check_openings(session, report, first)
        with sealed_rows(report, "legal holds"):
            holds = check_holds(session, report)
        with sealed_rows(report, "ends of retention"):
            check_retention(session, report, first, ended)
            if settings is not None:
                check_overdue(session, report, settings, holds)
        with sealed_rows(report, "approvals"):
            check_approvals(session, report, first)
        with sealed_rows(report, "certificates"):
            check_certificates(session, issuers or {}, report, first, keys)
        with sealed_rows(report, "cases"):
            check_answered(session, report)
            check_cases(session, report)
        with sealed_rows(report, "cases of the intake page"):
            check_intake(session, report)
        with sealed_rows(report, "audits"):
            check_audits(session, report)
        with sealed_rows(report, "models and records"):
            check_models(session, report, first)
        check_keys(session, report)
        check_callbacks(session, ledger, report)
        with sealed_rows(report, "registrations of keys"):
            check_registrations(session, report)
    return report


@contextmanager
def sealed_rows(report: FsckReport, what: str) -> Iterator[None]:
    """Report a row written without the master key; the rest of `what` is not checked."""
    try:
        yield
    except SealError:
        report.add(
            "sealed", f"a row was not written by this installation: not all {what} were checked"
        )


def _guarded(ledger: Ledger, report: FsckReport) -> Checkpoint | None:
    try:
        held = ledger.guard.read()
    except GuardError as error:
        report.add("guard", error.detail)
        return None
    if held.origin != ledger.origin:
        report.add("guard", "the guard belongs to a log of another name")
        return None
    return held
