"""Look a person up in one or all models, and open a case that erases what was found."""

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from sqlmodel import Session, col, select

from app import traces
from app.ledger.transaction import Transaction
from app.problems import ConflictError, UnknownRecordError
from app.reconcile.case_parts import FOLLOWING, Part
from app.reconcile.journal import LEARNED
from app.reconcile.model_events import request_events
from app.schemas.people import (
    CaseView,
    FoundPage,
    FoundView,
    HeldOutRemoval,
    HeldOutRemoved,
    NewCase,
    PersonQuery,
)
from app.service.admission import choose
from app.service.context import Services
from app.service.deadlines import due_at, zone_of
from app.service.desk import people
from app.service.desk.cases import show
from app.service.desk.pending import Unsummed, read_rounds, require_learned
from app.service.desk.people import Found
from app.service.desk.submission import claimant, on_behalf, request_for
from app.service.models import held_out, registry
from app.service.on_behalf import follow, log_part, submit
from app.service.parts import BEFORE, ERASING, NOTHING, ONLY_HELD_OUT, certified_at
from app.service.queue import PARKED
from app.service.requests import require_own_ref
from app.service.scope import changed, holds_any, named_places
from app.vault.master import ADD_BACK
from lethe.identity import Identity
from lethe.log.entries import parse_leaf
from models import Case, ErasureRequest, LogEntry, Model


def find(services: Services, wanted: PersonQuery) -> FoundPage:
    """Look a person up in some models or in all.

    Raises PeopleChangedError: the identities of a model are not those of the log;
    UnknownModelError: there is no such model.
    """
    found = _find(services, wanted.person.identity(), wanted.models)
    with services.reading() as session:
        uncertified = [
            bool(_uncertified(services, session, one) or _is_back(services, session, one))
            for one in found
        ]
    return FoundPage(
        items=[
            FoundView(
                model=one.model.ref,
                records=list(one.learned),
                held_out=list(one.held_out),
                erased=0 if open_ else one.erased,
                uncertified=one.erased if open_ else 0,
            )
            for one, open_ in zip(found, uncertified, strict=True)
        ]
    )


def _find(services: Services, person: Identity, refs: Sequence[str] | None) -> list[Found]:
    with services.reading() as session:
        models = people.models_of(services, session, refs)
    return [people.find(services, model, person) for model in models]


def _ids(session: Session) -> set[int | None]:
    return set(session.exec(select(Model.id)).all())


def open_case(
    services: Services,
    wanted: NewCase,
    operator: str,
    named: str | None = None,
    also: Callable[[Transaction, Case], None] | None = None,
    issued_by: str | None = None,
) -> CaseView:
    """Look a person up, submit a request for each model that has records, and log both.

    `max_scope_records` bounds what a body names, not what is found here: otherwise whoever puts
    an identity on more rows prevents that person's erasure.

    named: the ref of the case; if it exists, it is shown and nothing is submitted. also: runs
    in the transaction once the case is stored; if it raises, nothing is stored. issued_by: who
    issued the code with which a person opens the case on the intake page.

    Raises:
        PeopleChangedError: The identities of a model are not those of the log.
        ContributionPendingError: Rows are still being learned that may be the person's.
        ModelNotReadyError: A model that has records of the person has no fitted version.
        ConflictError: There is no model.
        ScopeChangedError: Rows of the person, or models, were added since the lookup.
    """
    person = wanted.person.identity()
    with services.reading() as session:
        known = _ids(session)
    found = _find(services, person, wanted.models)
    if not found:
        raise ConflictError("no model is registered: there is nothing to search")
    for one in found:
        choose(one.model, request_for(wanted, one)) if one.learned else None

    rounds = read_rounds(services, [one.model for one in found], person)

    def effect(tx: Transaction) -> tuple[str, dict[str, str]]:
        if named is not None and tx.session.get(Case, named) is not None:
            return named, {}
        if wanted.models is None and _ids(tx.session) - known:
            raise changed()  # a model was registered since the lookup, maybe with the person
        case = Case(
            ref=named or str(uuid.uuid4()),
            opened_by=operator,
            regulation=wanted.regulation,
            key=secrets.token_bytes(32),
            parts=[],
            ticket=wanted.ticket,
            checked=wanted.checked,
            contact=wanted.contact,
            received_at=tx.now,
            due_at=due_at(tx.now, wanted.regulation, zone_of(services.settings)),
        )
        jobs: dict[str, str] = {}
        parts = [
            _open_part(services, tx, case, wanted, person, one, rounds, jobs, issued_by)
            for one in found
        ]
        case.parts = parts
        tx.session.add(case)
        tx.session.flush()
        if also is not None:
            also(tx, case)
        return case.ref, jobs

    ref, jobs = services.ledger.transact(effect)
    for job, stage in jobs.items():
        traces.queued(job, "erase")
        if stage != PARKED:
            services.dispatcher.nudge(job)
    return show(services, ref)


def _open_part(
    services: Services,
    tx: Transaction,
    case: Case,
    wanted: NewCase,
    person: Identity,
    seen: Found,
    rounds: Unsummed,
    jobs: dict[str, str],
    issued_by: str | None,
) -> dict[str, Any]:
    session = tx.session
    require_learned(services, session, seen.model, rounds)
    model = session.get_one(Model, seen.model.id)
    # Exactly the rows that were checked against the log.
    if people.looked_up(session, services.root_secret, model, person).rows != seen.rows:
        raise changed()
    kind, records, request_id = NOTHING, 0, None
    if seen.learned:
        kind, records = ERASING, len(seen.learned)
        said_of = on_behalf(session, case, wanted, seen, issued_by)
        request_id = claimant(services, session, model, seen.learned)
        if request_id is None:
            method = choose(model, request_for(wanted, seen))
            own, job = submit(
                tx, case, model, method, seen.learned, said_of, services.root_secret
            )
            request_id, jobs[job.id] = own.id, job.stage
        else:
            kind = FOLLOWING
            claims = session.get_one(ErasureRequest, request_id)
            follow(tx, claims, seen.learned, said_of)
    elif seen.erased:
        records = seen.erased
        kind, request_id = _erased(services, session, seen)
    elif seen.held_out:
        kind, records = ONLY_HELD_OUT, len(seen.held_out)
    removed, removal_index = _remove_held_out(services, tx, model, seen)
    assert case.key is not None
    request_ref = None
    if request_id is not None:
        request_ref = session.get_one(ErasureRequest, request_id).ref
    part = Part(
        model.ref, kind, records, request_id, request_ref, removed, removal_index, tx.next_index
    )
    log_part(tx, case, part)
    return asdict(part)


def _erased(services: Services, session: Session, seen: Found) -> tuple[str, str | None]:
    """Return the kind and request of a part whose records an earlier request erased.

    Rows are marked as erased at the execution. Until the log has the certificate, the part
    follows the request, and fails with it.

    Raises ConflictError if several are not certified yet, or the records may be learned again.
    """
    uncertified = _uncertified(services, session, seen)
    if not uncertified:
        if _is_back(services, session, seen):
            raise ConflictError(
                f"a client added erased records back to the model {seen.model.ref}, and they "
                "may be the person's: import the identities of these records, then try again"
            )
        return BEFORE, seen.erased_by[-1] if seen.erased_by else None
    ended = [one for one in uncertified if not request_events(services.ledger, one.ref)]
    if len(uncertified) > 1 and not ended:
        raise ConflictError(
            f"the person's records in the model {seen.model.ref} were erased by several "
            "requests that are not certified yet: try again once they are"
        )
    return FOLLOWING, (ended or uncertified)[0].id


def _uncertified(services: Services, session: Session, seen: Found) -> list[ErasureRequest]:
    """Return the requests that erased the records and have no certificate in the log."""
    found = [session.get_one(ErasureRequest, one) for one in seen.erased_by]
    for one in found:
        require_own_ref(services, one)
    return [one for one in found if certified_at(services, session, one.ref) is None]


def _is_back(services: Services, session: Session, seen: Found) -> bool:
    """Return whether records that no row names any more may have been added back.

    Rows that were erased before they kept a tag of their record are not linked again when it
    returns (`people.add`). The log does not say which records returned.
    """
    if all(one.record is not None or one.request_id is None for one in seen.rows):
        return False
    refs = [session.get_one(ErasureRequest, one).ref for one in seen.erased_by]
    last = max(certified_at(services, session, ref) or 0 for ref in refs)
    query = select(LogEntry.leaf).where(
        LogEntry.ref == seen.model.ref,
        LogEntry.event == LEARNED,
        col(LogEntry.index) > last,
    )
    return any(ADD_BACK in parse_leaf(leaf).digests for leaf in session.exec(query))


def _remove_held_out(
    services: Services, tx: Transaction, model: Model, seen: Found
) -> tuple[int, int | None]:
    """Remove the person's held-out rows; return how many were stored, and the log index.

    Trees and weights were not fitted on them: later versions are measured without them. Those
    that the bins of a forest were computed from are records too, and the request erases them.
    """
    if not seen.held_out:
        return 0, None
    gone, index = held_out.remove(services, tx, model, seen.held_out)
    people.bury(services, tx, model, {}, dict.fromkeys(gone))
    return len(gone), index


def _refuse_records(session: Session, model: Model, held_out: Sequence[str]) -> None:
    """Refuse held-out rows behind a forest's bins: their removal would change no version."""
    if "bins" in model.config and holds_any(session, model.id, held_out):
        raise ConflictError(
            "the bin edges of the model come from some of these rows: erase them by a request, "
            "with `lethe request submit`"
        )


def remove_held_out(services: Services, wanted: HeldOutRemoval) -> HeldOutRemoved:
    """Remove stored held-out rows by their ids, all of them or none.

    Raises:
        UnknownModelError: There is no such model.
        UnknownRecordError: Some have no stored held-out row; the problem has their places.
        ConflictError: Some were used to make the model: only a request erases these.
        HeldOutChangedError: The rows are not stored as they were logged.
    """

    def effect(tx: Transaction) -> HeldOutRemoved:
        model = registry.find(tx.session, wanted.model)
        records = wanted.records
        _refuse_records(tx.session, model, records)
        gone, index = held_out.remove(services, tx, model, records)
        known = set(gone)
        unknown = [place for place, one in enumerate(records, 1) if one not in known]
        if unknown or index is None:
            raise UnknownRecordError(
                f"{len(unknown)} of {len(records)} records are no stored held-out rows of the "
                f"model; by their places in the list: {named_places(unknown)}",
                places=named_places(unknown),
            )
        people.bury(services, tx, model, {}, dict.fromkeys(gone))
        return HeldOutRemoved(removed=len(gone), log_index=index)

    return services.ledger.transact(effect)
