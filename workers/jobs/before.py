"""The statistics before an update, kept sealed until the last of its requests has ended.

The verifier compares the posterior on both sides with them. They hold the erased rows' sums,
so they live no longer than that: one artifact, shared by the requests of an update.
"""

from sqlmodel import Session, col, select

from app.ledger.sequencer import Transaction
from app.service.context import Services
from models import Job
from workers.judge.base import ClaimedStatistics
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.encoding import decode_statistics, encode_statistics
from workers.methods.ridge.statistics.gram import RidgeStatistics

# 134 MB of G. Beyond it the comparison costs more than it says, and is left out.
WIDEST = 4096


def encode(statistics: RidgeStatistics, config: RidgeConfig) -> bytes | None:
    """Return the statistics before an update as they are sealed, None if too wide."""
    if config.dimension > WIDEST:
        return None
    return encode_statistics(statistics, config.exponents, config.bits, config.penalty)


def keep(services: Services, tx: Transaction, data: bytes | None) -> str | None:
    """Seal what was before an update; return the artifact's id."""
    return None if data is None else services.artifacts.put(tx.session, "before", data).id


def load(services: Services, session: Session, job: Job) -> ClaimedStatistics | None:
    """Return the statistics that `keep` sealed for a job, if it did."""
    if job.before_id is None:
        return None
    statistics, *_ = decode_statistics(services.artifacts.get(session, job.before_id))
    return ClaimedStatistics(statistics.gram, statistics.moment, statistics.rows)


def let_go(services: Services, tx: Transaction, job: Job) -> None:
    """Destroy the statistics with the last job that they are for, which has just ended."""
    if job.before_id is None:
        return
    others = select(Job.id).where(
        Job.before_id == job.before_id, Job.id != job.id, col(Job.done_at).is_(None)
    )
    if tx.session.exec(others).first() is None:
        services.artifacts.shred(tx.session, job.before_id)
