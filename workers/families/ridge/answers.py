"""What clients answered of the records that are to go."""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from app.service.context import Services
from models import Release
from workers.errors import RefusedError
from workers.families.ridge.removal import Released
from workers.jobs.asking import AnswerError
from workers.jobs.members import Member
from workers.methods.ridge.statistics.message import check_message
from workers.secure_sum.wire import unpack_message


def answers(
    services: Services, session: Session, members: Sequence[Member], bits: int
) -> list[Released]:
    """Return what clients answered, and operators decided, for these requests.

    Raises:
        AnswerError: An answer is of no rows.
    """
    query = select(Release).where(
        col(Release.request_id).in_([member.request_id for member in members]),
        col(Release.state).in_(["answered", "dropped"]),
    )
    found = []
    for release in session.exec(query):
        asked = release.id, release.request_id, release.subject_id
        if release.upload_id is None:
            found.append(Released(*asked, message=None))
            continue
        data = services.artifacts.get(session, release.upload_id)
        try:
            envelope = unpack_message(data, bits=bits)
            check_message(envelope.message, bits=bits)
        except RefusedError:
            raise AnswerError(release.id) from None
        found.append(
            Released(*asked, message=envelope.message, records=frozenset(envelope.records))
        )
    return found
