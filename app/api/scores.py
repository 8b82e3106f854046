"""/v1/scores: what verdicts by samples were computed from, by digest."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from app.api.deps import OperatorOrAuditor, ServicesDep
from app.api.immutable import unkept
from app.service import certificates
from lethe.certificates.evidence import SCORES_TYPE

router = APIRouter(prefix="/v1/scores", tags=["requests"])
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


@router.get("/{digest}", operation_id="getScores", dependencies=[OperatorOrAuditor])
def get_scores(digest: Digest, services: ServicesDep) -> Response:
    """Download the scores that a certificate names by digest."""
    return unkept(certificates.scores(services, digest), SCORES_TYPE)
