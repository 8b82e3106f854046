"""The judgement that a certificate repeats, read from the log; tables only locate it."""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy.exc import NoResultFound
from sqlmodel import Session, col, select

from app.reconcile.inputs import is_as_received, versions_of
from app.reconcile.judgement import EXECUTED, Event, contradiction, escalation_problem, opened
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.scope import holds_any
from app.vault.errors import NotStoredError, ShreddedError
from app.vault.master import ADD_BACK
from lethe import canonical
from lethe.certificates.errors import CertificateError
from lethe.certificates.evidence import Evidence, Removal, parse_evidence, record_commitment
from lethe.errors import LetheError
from lethe.log.entries import CommitmentError, EntryError, Leaf, parse_leaf
from models import (
    Artifact,
    ErasureRequest,
    Job,
    LogEntry,
    Model,
    ModelVersion,
    Verification,
)
from models.database.session import read_by_id, rows_in
from workers.cases.case import ELSE, read_stored
from workers.errors import RefusedError
from workers.leases.lease import JobContext
from workers.lineage import versions
from workers.lineage.logged import check_logged, registered
from workers.updates import draft
from workers.updates.draft import Draft

RECEIVED, LEARNED = "request.received", "contribution.learned"
# Errors of reading a file that differs from what the tables say. Retrying fixes none of them.
UNREADABLE = (
    *(CertificateError, canonical.NotCanonicalError, CommitmentError, EntryError),
    *(NotStoredError, ShreddedError, NoResultFound),
    *(AttributeError, LookupError, TypeError, ValueError),
)


class NotJudgedError(RefusedError):
    """The log has no PASS of what the tables would certify."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A judgement that the log has as PASS, and its subject.

    token: fences the job, so that only the holder of the leased job may have changed it.
    received: the log's entry that received the request; events: all entries of the request,
    decrypted.
    """

    job_id: str
    token: int
    draft_id: str
    request: ErasureRequest
    model: Model
    before: ModelVersion
    after: ModelVersion
    plan: Draft
    evidence: Evidence
    evidence_file: bytes
    received: Leaf
    events: Sequence[Event]

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.id


class LoggedVersions:
    """The versions of one model in one snapshot, each compared with the log once."""

    def __init__(self, services: Services, session: Session, model: Model) -> None:
        self._services, self._session, self._model = services, session, model
        self._rows: dict[int, ModelVersion] = {}

    @cached_property
    def indexes(self) -> list[int]:
        """The log indexes of the versions, in their order."""
        return [index for index, _ in versions_of(self._services.ledger, self._model)]

    @cached_property
    def _unchanged(self) -> bool:
        return registered(self._services.ledger, self._model).unchanged

    def checked(self, number: int) -> ModelVersion:
        """Return the row of a version, as it was published.

        Raises:
            NotLoggedError: The log has different values for it.
            NotJudgedError: The model is not as it was registered.
        """
        if number not in self._rows:
            assert self._model.id is not None
            row = versions.numbered(self._session, self._model.id, number)
            check_logged(self._services.ledger, self._model, row)
            self._rows[number] = row
        if not self._unchanged:
            raise NotJudgedError("the model is not as it was registered")
        return self._rows[number]


def passed_all(leased: JobContext, session: Session, jobs: Sequence[Job]) -> Iterator[Passed]:
    """Yield the judgement of each job's request, once the log agrees with all of it.

    The jobs are of the leased job's model, and are read in one snapshot: that of `session`.

    Raises:
        RefusedError: The log does not agree. The message names the difference, and no person.
        LetheError: The log itself cannot be read, or does not match its signed checkpoint.
    """
    services = leased.services
    leaves = read_stored(services, session, jobs)
    judged = _judged(session, jobs)
    read_by_id(session, Artifact, [evidence_id for evidence_id, _ in judged.values()])
    model = session.get_one(Model, leased.lease.model_id)
    logged = LoggedVersions(services, session, model)
    for job in jobs:
        try:
            yield _passed(services, session, job, model, leaves[job.id], judged, logged)
        except UNREADABLE as error:
            title = error.title if isinstance(error, LetheError) else type(error).__name__
            raise NotJudgedError(
                f"what is stored of the judgement cannot be read: {title}"
            ) from None


def _judged(session: Session, jobs: Sequence[Job]) -> dict[str, tuple[str, int]]:
    """Return the evidence's id and the version's for each request that has a verdict.

    The report is not loaded: the evidence repeats its checks, and it is the largest column.
    """
    query = select(Verification.request_id, Verification.evidence_id, Verification.version_id)
    asked = [job.request_id for job in jobs if job.request_id is not None]
    found = rows_in(session, query, col(Verification.request_id), asked)
    return {request: (file, version) for request, file, version in found}


def _passed(
    services: Services,
    session: Session,
    job: Job,
    model: Model,
    leaves: Sequence[tuple[int, Leaf]],
    judged: Mapping[str, tuple[str, int]],
    logged: LoggedVersions,
) -> Passed:
    request = session.get_one(ErasureRequest, job.request_id)
    events = opened(session, request, leaves)
    _check_received(request, model, events)
    if request.id not in judged or job.draft_id is None:
        raise NotJudgedError("nothing is stored of this request's judgement")
    evidence_id, version_id = judged[request.id]
    file = services.artifacts.get(session, evidence_id)
    plan = draft.load_executed(services, session, job, events)
    problem = contradiction(events, hashlib.sha256(file).hexdigest(), plan.claim)
    if problem is not None:
        raise NotJudgedError(problem)
    evidence = parse_evidence(file)
    _check_evidence(evidence, json.loads(file)["removal"], plan)
    before, after = logged.checked(plan.before_number), logged.checked(plan.number)
    if version_id != after.id:
        raise NotJudgedError("the version that was judged is not the one that was executed")
    _check_draft(plan, before, after)
    _check_executed(logged.indexes, after, events)
    check_scope(services, session, model, events, evidence.removal)
    if (problem := escalation_problem(events, plan.method, plan.parameters)) is not None:
        raise NotJudgedError(problem)
    return Passed(
        job.id,
        job.lease_token,
        job.draft_id,
        request,
        model,
        before,
        after,
        plan,
        evidence,
        file,
        leaves[0][1],
        events,
    )


def _check_received(request: ErasureRequest, model: Model, events: Sequence[Event]) -> None:
    if not events or events[0].event != RECEIVED:
        raise NotJudgedError("the log has no open request of this reference")
    if events[0].index != request.log_index:
        raise NotJudgedError("the request points at another entry than the one it has")
    if not is_as_received(request, model, events):
        raise NotJudgedError(ELSE)


def _check_evidence(evidence: Evidence, removal: Mapping[str, Any], plan: Draft) -> None:
    """Check that evidence is a PASS of the executed removal. removal: the file's, as JSON."""
    if evidence.report.result != "PASS":
        raise NotJudgedError("the judgement is no PASS")
    statistics = {"before": plan.statistics_before, "after": plan.statistics_after}
    # A removal has one encoding, and the file's was just parsed.
    if (removal, dict(evidence.statistics)) != (plan.removal, statistics):
        raise NotJudgedError("the evidence covers another removal than the one executed")


def _check_draft(plan: Draft, before: ModelVersion, after: ModelVersion) -> None:
    drafted = plan.head_before, plan.statistics_before, plan.statistics_after
    if drafted != (before.head_digest, before.statistics_digest, after.statistics_digest):
        raise NotJudgedError("the draft is of other versions than those in the log")


def check_scope(
    services: Services,
    session: Session,
    model: Model,
    events: Sequence[Event],
    removal: Removal,
) -> None:
    """Check that the removal covers exactly the records that the request names.

    The verifier finds the rows of a client or subject: any that are left fail it.
    """
    for one in removal.records:
        if record_commitment(one.salt, one.record) != one.commitment:
            raise NotJudgedError("a removed commitment is not of the record beside it")
    named = Scope.model_validate(events[0].payload["scope"]).records
    if named is None:
        return
    erased = {one.record for one in removal.records}
    if not erased <= set(named):
        raise NotJudgedError("records were removed that the request does not name")
    # A record that another request erased may have been added back since, on a newer consent.
    held = holds_any(session, model.id, sorted(set(named) - erased))
    if held and not _came_back(services, session, model, events[0].index):
        raise NotJudgedError("records that the request names were not removed")


def _came_back(services: Services, session: Session, model: Model, since: int) -> bool:
    """Return whether the log has erased records added back to a model after an index."""
    query = select(LogEntry).where(
        LogEntry.ref == model.ref, LogEntry.event == LEARNED, col(LogEntry.index) > since
    )
    key = services.ledger.entry_key
    authentic = [
        one for one in session.exec(query) if key is not None and key.is_authentic(one)
    ]
    return any(ADD_BACK in parse_leaf(entry.leaf).digests for entry in authentic)


def _check_executed(
    published: Sequence[int], after: ModelVersion, events: Sequence[Event]
) -> None:
    """Check that the request was last executed in this very version, not in an equal one.

    published: the log indexes of the model's versions. The version and the execution are logged
    in one transaction, the version first. A refit may produce identical bits.
    """
    executed = [event for event in events if event.event == EXECUTED]
    digests = {"head": after.head_digest, "statistics": after.statistics_digest}
    if not executed or {**executed[-1].payload, **digests} != executed[-1].payload:
        raise NotJudgedError("the log has another execution of this request")
    earlier = bisect_left(published, executed[-1].index)
    if published[earlier - 1 : earlier] != [after.log_index]:
        raise NotJudgedError("the request was executed in another version")
