"""Compares the rows of method audits with the log: each logged audit has a matching row."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby

import rfc8785
from sqlalchemy import func
from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport, is_stored
from lethe import canonical
from lethe.certificates.audits.counts import (
    ENDS,
    STARTED,
    Logged,
    audit_digest,
    logged_audits,
    method_digest,
)
from lethe.log.entries import MODEL_EVENT, EntryError, Leaf, parse_leaf
from models import Audit, AuditPair, LogEntry, Model

FETCH = 500  # rows in memory at once
CHECK, MISSING = "audit", "audit.missing"  # names of findings
REPORT = "audit-report"  # the artifact kind of reports
GONE = "the log has this audit, and the database lacks it"
NO_REPORT = "the log has the report of this audit, and the report is not stored"
UNLOGGED = "the log has no start of this audit: its row was not written by the service"
OTHERWISE = "the row says another state than the log"
CHANGED = "the row has another method or configuration than the log has as started"
PAIRS = "the audit has other pairs than were started"
TWICE = "an audit began, or ended, more than once"


def digest_of_row(audit: Audit) -> str:
    """Return the digest by which the log names an audit, from the audit's row."""
    return audit_digest(audit.id, audit.created_at)


def problem_with(row: Audit, one: Logged | None) -> str | None:
    """Return how a row contradicts its logged audit, None if it does not."""
    if one is None:
        return UNLOGGED
    try:
        config = hashlib.sha256(canonical.encode(row.config)).hexdigest()
    except rfc8785.CanonicalizationError:
        return CHANGED
    if (config, method_digest(row.method)) != (one.config, one.method):
        return CHANGED
    return None if row.state == one.state else OTHERWISE


def check_audits(session: Session, report: FsckReport) -> None:
    """Compare tables and log, with one model's audits in memory at a time."""
    every = groupby(_events(session), key=lambda found: found[0])
    compared = 0
    for ref, group in every:
        events = [(index, leaf) for _, index, leaf in group]
        logged = logged_audits(events)
        ends = sum(1 if one.end is None else 2 for one in logged.values())
        if ends != len(events):
            report.add(CHECK, TWICE, events[-1][0])
        model = session.exec(select(Model.id).where(Model.ref == ref)).first()
        if model is not None:
            compared += _compare(session, model, logged, report)
        for one in logged.values():
            report.add(MISSING, GONE, one.index)
    if session.exec(select(func.count()).select_from(Audit)).one() > compared:
        report.add(CHECK, UNLOGGED)  # rows of a model without audits in the log


def _compare(
    session: Session, model: int, logged: dict[str, Logged], report: FsckReport
) -> int:
    """Compare a model's rows and return their number; audits left in `logged` have no row."""
    compared = 0
    query = select(Audit).where(Audit.model_id == model).execution_options(yield_per=FETCH)
    for row in session.exec(query):
        compared += 1
        one = logged.pop(digest_of_row(row), None)
        index = None if one is None else one.index
        problem = problem_with(row, one)
        if problem is not None:
            report.add(CHECK, problem, index)
            continue
        counted = select(func.count()).where(AuditPair.audit_id == row.id)
        if str(session.exec(counted).one()) != row.config["pairs"]:
            report.add(CHECK, PAIRS, index)
        if (
            one is not None
            and one.state == "reported"
            and not is_stored(session, one.report, REPORT)
        ):
            report.add(MISSING, NO_REPORT, one.end)
    return compared


def _events(session: Session) -> Iterator[tuple[str, int, Leaf]]:
    """Yield (ref, index, leaf) of all entries about audits, grouped by model, in order."""
    query = (
        select(LogEntry.ref, LogEntry.index, LogEntry.leaf)
        .where(LogEntry.kind == MODEL_EVENT, col(LogEntry.event).in_((STARTED, *ENDS)))
        .order_by(col(LogEntry.ref), col(LogEntry.index))
    )
    for ref, index, data in session.exec(query):
        with suppress(EntryError):  # reported by `check_tree`
            yield str(ref), index, parse_leaf(data)
