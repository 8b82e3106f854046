"""The statistics before an update, which the verifier compares with those after it."""

from sqlmodel import Session

from app.service.context import Services
from models import Job
from workers.judge.ridge.claim import ClaimedStatistics
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


def load(services: Services, session: Session, job: Job) -> ClaimedStatistics | None:
    """Return the statistics that `keep` sealed for a job, if it did."""
    if job.before_id is None:
        return None
    statistics, *_ = decode_statistics(services.artifacts.get(session, job.before_id))
    return ClaimedStatistics(statistics.gram, statistics.moment, statistics.rows)
