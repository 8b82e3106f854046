"""Changes that an attacker with write access to the tables may make before a certificate.

Each change is given the judged request and another one, which has its certificate.
"""

from collections.abc import Callable

from sqlmodel import Session, col, select

from models import ErasureRequest, Job, Model, ModelVersion, RequestEvent, Verification


def job_of(session: Session, request: str) -> Job:
    return session.exec(select(Job).where(Job.request_id == request)).one()


def a_later_head(session: Session, request: str, _: str) -> None:
    version = session.get_one(Verification, request).version_id
    session.get_one(ModelVersion, version).head_digest = "0" * 64


def an_earlier_head(session: Session, *_: str) -> None:
    before = session.exec(select(ModelVersion).where(ModelVersion.number == 2)).one()
    before.head_digest = "0" * 64


def another_version(session: Session, request: str, _: str) -> None:
    first = session.exec(select(ModelVersion).where(ModelVersion.number == 1)).one()
    assert first.id is not None
    session.get_one(Verification, request).version_id = first.id


def another_scope(session: Session, request: str, _: str) -> None:
    session.get_one(ErasureRequest, request).scope = {"level": "client", "client": "c1"}


def another_entry(session: Session, request: str, _: str) -> None:
    session.get_one(ErasureRequest, request).log_index += 1


def another_reference(session: Session, request: str, certified: str) -> None:
    mine, other = (session.get_one(ErasureRequest, one) for one in (request, certified))
    mine.event_key, mine.log_index = other.event_key, other.log_index
    reference, other.ref = other.ref, "-"
    session.flush()
    mine.ref = reference


def another_key(session: Session, request: str, _: str) -> None:
    session.get_one(ErasureRequest, request).event_key = bytes(32)


def another_judgement(session: Session, request: str, certified: str) -> None:
    mine, other = (session.get_one(Verification, one) for one in (request, certified))
    mine.evidence_id = other.evidence_id


def another_event(session: Session, request: str, certified: str) -> None:
    another_judgement(session, request, certified)
    mine, other = (
        session.exec(
            select(RequestEvent).where(
                RequestEvent.request_id == one, RequestEvent.event == "request.verified"
            )
        ).one()
        for one in (request, certified)
    )
    mine.payload = other.payload


def no_event(session: Session, request: str, _: str) -> None:
    query = select(RequestEvent).where(RequestEvent.request_id == request)
    last = session.exec(query.order_by(col(RequestEvent.log_index).desc())).first()
    session.delete(last)


def no_judgement(session: Session, request: str, _: str) -> None:
    session.delete(session.get_one(Verification, request))


def no_draft(session: Session, request: str, _: str) -> None:
    job_of(session, request).draft_id = None


def a_draft_of_another_kind(session: Session, request: str, _: str) -> None:
    job_of(session, request).draft_id = session.get_one(Verification, request).evidence_id


def a_shredded_draft(session: Session, request: str, certified: str) -> None:
    job_of(session, request).draft_id = job_of(session, certified).draft_id


def another_configuration(session: Session, *_: str) -> None:
    model = session.exec(select(Model)).one()
    model.extractor = {**model.extractor, "digest": "0" * 64}


def another_model(session: Session, *_: str) -> None:
    session.exec(select(Model)).one().ref = "other"


UNREADABLE = "what is stored of the judgement cannot be read"
TAMPERED: list[tuple[Callable[[Session, str, str], None], str]] = [
    (a_later_head, "the tables and the log disagree on a version"),
    (an_earlier_head, "the tables and the log disagree on a version"),
    (another_version, "the version that was judged is not the one that was executed"),
    (another_scope, "the request is about something else than what was received"),
    (another_entry, "the request points at another entry than the one it has"),
    (another_reference, "the log has no open request of this reference"),
    (another_key, f"{UNREADABLE}: The commitment does not open"),
    (another_judgement, "the evidence is not that of the request's last judgement in the log"),
    (another_event, f"{UNREADABLE}: The commitment does not open"),
    (no_event, f"{UNREADABLE}: The commitment does not open"),
    (no_judgement, "nothing is stored of this request's judgement"),
    (no_draft, "nothing is stored of this request's judgement"),
    (a_draft_of_another_kind, "the draft is not the one that the log has as executed"),
    (a_shredded_draft, f"{UNREADABLE}: Erased"),
    (another_configuration, "the model is not as it was registered"),
    (another_model, "the request is about something else than what was received"),
]
