"""/v1/log: the transparency log as C2SP tlog-tiles, and its history with proofs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.http.deps import MAX_NUMBER, After, Limit, ServicesDep
from app.api.http.immutable import immutable
from app.schemas.log import ConsistencyView, EntriesPage, InclusionView
from app.service.issued import certificates, public_log

router = APIRouter(prefix="/v1/log", tags=["log"])


Size = Annotated[int | None, Query(ge=1, le=MAX_NUMBER)]
# Days are compared as texts. \d would allow digits of other scripts, which are after all days.
Day = Annotated[str | None, Query(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]


@router.get("/checkpoint", operation_id="getCheckpoint")
def checkpoint(services: ServicesDep) -> Response:
    """Return the latest signed checkpoint."""
    return Response(
        public_log.latest_checkpoint(services),
        media_type="text/plain; charset=utf-8",
        headers={"cache-control": "no-cache"},
    )


@router.get("/witnessed", operation_id="getWitnessedCheckpoint")
def witnessed(services: ServicesDep) -> Response:
    """Return the latest checkpoint that a quorum of witnesses cosigned, with their lines."""
    return Response(
        public_log.witnessed_checkpoint(services),
        media_type="text/plain; charset=utf-8",
        headers={"cache-control": "no-cache"},
    )


@router.get("/vkey", operation_id="getLogKey")
def vkey(services: ServicesDep) -> Response:
    """Return the log's verifier key. Pin it: a key fetched each time proves nothing."""
    return Response(services.ledger.verifier.vkey + "\n", media_type="text/plain")


@router.get("/trust-root", operation_id="getTrustRoot")
def get_trust_root(services: ServicesDep) -> Response:
    """Return the keys that certificates are verified with, from which log entry to which.

    The log's key signs it: compare that key with the one that you know.
    """
    return Response(
        certificates.published_trust_root(services),
        media_type="application/json",
        headers={"cache-control": "no-cache"},
    )


@router.get("/tile/{path:path}", operation_id="getTile")
def tile(path: str, request: Request, services: ServicesDep) -> Response:
    """Return a tile of hashes, or a bundle of entries under tile/entries/."""
    data = public_log.tile(services, f"tile/{path}")
    return immutable(request, data, "application/octet-stream", shared=True)


@router.get("/entries", operation_id="listEntries")
def entries(
    services: ServicesDep,
    ref: str | None = None,
    event: str | None = None,
    kind: str | None = None,
    since: Day = None,
    until: Day = None,
    size: Size = None,
    after: After = None,
    limit: Limit = 100,
) -> EntriesPage:
    """Query the audit history; each entry comes with its inclusion proof.

    Without a filter the entries are a range of the log, with the proof that none is left out.
    What a filter left out cannot be proven. Give `tree_size` of the first page as `size` of
    the next ones: then all are proven against one checkpoint.
    """
    return public_log.entries(
        services,
        after,
        limit,
        size=size,
        ref=ref,
        event=event,
        kind=kind,
        since=since,
        until=until,
    )


@router.get("/proof/inclusion", operation_id="proveInclusion")
def inclusion(
    services: ServicesDep, index: Annotated[int, Query(ge=0, le=MAX_NUMBER)], size: Size = None
) -> InclusionView:
    """Prove that the tree of `size` (default: the latest checkpoint's) holds an entry."""
    return public_log.inclusion(services, index, size)


@router.get("/proof/consistency", operation_id="proveConsistency")
def consistency(
    services: ServicesDep, old: Annotated[int, Query(ge=1, le=MAX_NUMBER)], new: Size = None
) -> ConsistencyView:
    """Prove that the tree of size `new` extends the tree of size `old`."""
    return public_log.consistency(services, old, new)
