"""Keeps audits going: abandoned pairs, and audits that are due."""

from datetime import timedelta

from sqlalchemy import update
from sqlmodel import col, select

from app.ledger.transaction import Transaction
from app.method_audits.audits import begin, new_seed, nudge
from app.service.context import Services
from models import Audit, Model
from models.database.types import clock
from workers.method_audits import queue as audit_queue

ENDED = ("reported", "failed")


def sweep(services: Services) -> int:
    """Nudge audits that stand still and start those that are due; return how many.

    An audit is nudged at most once per lease: its messages may wait behind other work, and
    surplus ones find no free place and do nothing.
    """
    with services.reading() as session:
        now = clock(session)
        stale = now - timedelta(seconds=services.settings.lease_seconds)
        running = select(Audit).where(Audit.state == "running", col(Audit.nudged_at) <= stale)
        still: dict[str, int] = {}
        for audit in session.exec(running):
            unfinished = audit_queue.unfinished(session, audit.id)
            missing = audit_queue.idle(session, audit, now)
            if missing or not unfinished:  # all are computed, but the report was not issued
                still[audit.id] = max(1, missing)
        due = [
            *session.exec(
                select(Audit.id).where(
                    Audit.every_days > 0,
                    col(Audit.due_at) <= now,
                    col(Audit.state).in_(ENDED),
                )
            )
        ]
    for audit_id, times in still.items():
        with services.engine.begin() as connection:
            connection.execute(
                update(Audit).where(col(Audit.id) == audit_id).values(nudged_at=now)
            )
        nudge(services, audit_id, times)
    started = [audit_id for audit_id in due if _start_anew(services, audit_id)]
    return len(still) + len(started)


def _start_anew(services: Services, audit_id: str) -> bool:
    """Start an audit like this one with a new seed, and pass the schedule on to it."""

    def effect(tx: Transaction) -> tuple[str, int] | None:
        last = tx.session.get_one(Audit, audit_id)
        model = tx.session.get_one(Model, last.model_id)
        if last.every_days == 0 or model.state != "ready":
            return None  # another sweep was faster, or it is started once the model is back
        config = {**last.config, "seed": str(new_seed())}
        following = begin(tx, model, config, last.parallel, last.every_days)
        last.every_days, last.due_at = 0, None
        tx.session.flush()
        return following.id, min(last.parallel, int(config["pairs"]))

    begun = services.ledger.transact(effect)
    if begun is not None:
        nudge(services, *begun)
    return begun is not None
