"""Which audits' numbers may describe records: `app.vault.audit_numbers` destroys them."""

from collections.abc import Collection

from sqlmodel import Session, col, select

from lethe.held_out import is_held_out
from models import Audit, Model, Record
from workers.audit_pairs.ranks import were_targets


def of_records(session: Session, model: Model, leaving: Collection[str]) -> dict[str, bool]:
    """Return for each audit whether its targets may have been among these stored records."""
    audits = session.exec(select(Audit).where(Audit.model_id == model.id)).all()
    if not audits:
        return {}
    held_out = model.config["training"]["seed"], model.config["held_out"]
    stored = select(Record.record).where(Record.model_id == model.id)
    trained = [
        r
        for r in session.exec(stored.order_by(col(Record.id)))
        if not is_held_out(*held_out, r)
    ]
    return {
        audit.id: bool(
            were_targets(
                int(audit.config["seed"]), int(audit.config["targets"]), trained, leaving
            )
        )
        for audit in audits
    }
