"""The verifier's input and output: the executed job, the verdict, and the attempt after it.

The verifier never sees the method.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import Session

from app.reconcile.inputs import is_as_received
from app.reconcile.judgement import is_judged
from app.reconcile.model_events import request_events, requests_events
from app.service.context import Services
from lethe.errors import LetheError
from lethe.log.entries import Leaf as LogLeaf
from models import Artifact, ErasureRequest, Job, Model, ModelVersion, RequestEvent
from models.database.session import read_by_id
from workers.judge.base import Report
from workers.leases.lease import queued_behind
from workers.lineage import versions
from workers.updates import draft
from workers.updates.draft import Draft, OtherDraftError

ELSE = "the request is about something else than what was received"


@dataclass(frozen=True, slots=True)
class ExecutedJob:
    """An executed job, its model, and the versions before and after the update.

    token: fences the job, so that only the holder of the leased job may have changed it.
    """

    job_id: str
    token: int
    step: int
    request: ErasureRequest
    plan: Draft
    model: Model
    before: ModelVersion
    after: ModelVersion


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's report, and further measurements for the evidence, as strings.

    scores: the scores file from which the report can be recomputed; only for reports on
    samples. repeated: whether the judge repeated the training that made the version.
    """

    verifier: str
    version: str
    report: Report
    details: Mapping[str, str]
    scores: bytes | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The next attempt. skipped: methods left out before it, with the reasons as text.

    step: of the job. compared: whether its model is compared with the sealed model from before
    the update.
    """

    step: int
    method: str
    skipped: tuple[str, ...] = ()
    compared: bool = False


# Runs without a session: repeating a training takes minutes.
Judge = Callable[[], Verdict]
# Verdicts on the executed jobs of one version, in their order.
Judges = Callable[[], Sequence[Verdict]]


def load(
    services: Services,
    session: Session,
    job: Job,
    first: ExecutedJob | None = None,
    leaves: Sequence[tuple[int, LogLeaf]] | None = None,
) -> ExecutedJob:
    """Load the versions that an executed job is about.

    first: a loaded job that may be of the same version. leaves: the log's entries of the
    request, if the caller has read them.

    Raises:
        OtherDraftError: The log has another execution of the request, or none, or already a
            judgement of this one: a refuted version would pass by chance if it were judged
            often enough. Or the received scope differs from the one that would be judged.
    """
    request = session.get_one(ErasureRequest, job.request_id)
    if leaves is None:
        leaves = request_events(services.ledger, request.ref)
    events = draft.open_events(session, request, leaves)
    plan = draft.load_executed(services, session, job, events)
    if is_judged([leaf.event or "" for _, leaf in leaves]):
        raise OtherDraftError("the log has a judgement of this execution already")
    model = session.get_one(Model, job.model_id)
    if not is_as_received(request, model, events):
        raise OtherDraftError(ELSE)
    numbers = plan.before_number, plan.number
    if first is not None and (first.before.number, first.after.number) == numbers:
        before, after = first.before, first.after
    else:
        # The version of the update that removed the records, or of a refit that replaced it.
        before, after = (versions.numbered(session, job.model_id, one) for one in numbers)
    return ExecutedJob(
        job_id=job.id,
        token=job.lease_token,
        step=job.step,
        request=request,
        plan=plan,
        model=model,
        before=before,
        after=after,
    )


def load_others(
    services: Services, session: Session, first: ExecutedJob
) -> Iterator[ExecutedJob]:
    """Yield the other jobs that the update of a loaded job executed, in their order.

    Stops at the first one that cannot be loaded: it gets the error at its own turn.
    """
    behind = queued_behind(session, first.job_id, "verify")
    leaves = read_stored(services, session, behind)
    for job in behind:
        try:
            case = load(services, session, job, first, leaves.get(job.id))
        except (OtherDraftError, LetheError, OSError):
            return
        if case.after.id != first.after.id:
            return
        yield case


def read_stored(
    services: Services, session: Session, jobs: Sequence[Job]
) -> dict[str, list[tuple[int, LogLeaf]]]:
    """Prefetch what is stored about executed jobs in few queries: the session caches it.

    Returns the log's entries of each job's request, by the job's id.
    """
    ids = [job.request_id for job in jobs if job.request_id is not None]
    requests = {one.id: one for one in read_by_id(session, ErasureRequest, ids)}
    read_by_id(session, Artifact, [job.draft_id for job in jobs if job.draft_id is not None])
    leaves = requests_events(services.ledger, [one.ref for one in requests.values()])
    read_by_id(session, RequestEvent, [index for own in leaves.values() for index, _ in own])
    return {
        job.id: leaves[requests[job.request_id].ref]
        for job in jobs
        if job.request_id in requests
    }
