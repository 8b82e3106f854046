"""The scores of each judgement by samples, kept and named by digest, whatever it came to.

They outlive the climb: the evidence of a refuted rung is destroyed, and its scores are all that
can still say whether it was refuted rightly. The log's event of the judgement commits to them.
"""

from collections.abc import Sequence

from sqlmodel import Session

from app.certificates.evidence import scores_part
from app.certificates.statement import EvidencePart
from app.ledger.judgement import VERIFIED, Event
from app.service.context import Services

KIND = "scores"
BY_SAMPLES = "empirical-approximate"


def keep(services: Services, session: Session, scores: bytes | None) -> dict[str, str]:
    """Seal a scores file; return what the event of the judgement says of it."""
    if scores is None:
        return {}
    return {KIND: services.artifacts.put(session, KIND, scores).digest}


def parts(events: Sequence[Event], claim: str) -> list[EvidencePart]:
    """Return what the certificate of a claim says of all scores of its request, in order.

    events: the request's, as the log has them. The last scores are of the verdict that is
    certified, if it is one by samples; all others are of the rungs before it.
    """
    digests = [event.payload.get(KIND) for event in events if event.event == VERIFIED]
    own = len(digests) - 1 if claim == BY_SAMPLES else None
    return [
        scores_part(digest, certified=place == own)
        for place, digest in enumerate(digests)
        if digest is not None
    ]
