"""The scores of each judgement by samples, kept and named by digest, whatever it came to.

They outlive the escalation: the evidence of a refuted attempt is destroyed, and its scores are
all that can still say whether it was refuted rightly. The log's event of the judgement commits
to them.
"""

from sqlmodel import Session

from app.service.context import Services
from lethe.certificates.evidence import SCORES as KIND


def keep(services: Services, session: Session, scores: bytes | None) -> dict[str, str]:
    """Seal a scores file; return what the event of the judgement says of it."""
    if scores is None:
        return {}
    return {KIND: services.artifacts.put(session, KIND, scores).digest}
