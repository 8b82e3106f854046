"""The workloads by name, and when each has ended."""

from collections.abc import Callable

from sqlmodel import Session, select

from benchmarks.faults import background, clients, officers, operators
from benchmarks.faults.workload import Workload
from models import Contribution, ErasureRequest, Model


def _requests_ended(number: int, state: str) -> Callable[[Session], bool]:
    def ended(session: Session) -> bool:
        return session.exec(select(ErasureRequest.state)).all() == [state] * number

    return ended


def _is_ready(session: Session) -> bool:
    return (
        session.exec(select(Model.state).where(Model.ref == clients.OTHER)).first() == "ready"
    )


def _is_learned(session: Session) -> bool:
    states = session.exec(select(Contribution.state)).all()
    return states == ["learned"] * 2  # the registration is the first one


_CERTIFIED = _requests_ended(1, "certified")
_WITHDRAWN = _requests_ended(1, "withdrawn")
_WAITING = {"batch_min_requests": 3, "batch_max_wait_seconds": 3600}
WORKLOADS = {
    one.name: one
    for one in (
        Workload("erase", clients.erase, _CERTIFIED, 2, 1, work=True),
        Workload(
            "batch",
            clients.batch,
            _requests_ended(3, "certified"),
            4,
            3,
            settings=_WAITING,
            work=True,
        ),
        Workload("withdraw", clients.withdraw, _WITHDRAWN, 0, 1, "withdrawn"),
        Workload("register", clients.register, _is_ready, work=True),
        Workload(
            "contribute",
            clients.contribute,
            _is_learned,
            prepare=clients.registered,
            work=True,
        ),
        Workload("delete", clients.delete),
        Workload("key", clients.key),
        Workload(
            "decide",
            officers.decide,
            _CERTIFIED,
            2,
            1,
            model=officers.REVIEWED,
            prepare=officers.reviewed,
            work=True,
        ),
        Workload("hold", officers.hold),
        Workload(
            "retain",
            officers.retain,
            officers.has_ended,
            2,
            1,
            settings=officers.DUE,
            prepare=officers.erased,
        ),
        Workload("rotate", operators.rotate),
        Workload("rotate-log", operators.replace_log_key, each=True),
        Workload("rotate-master", operators.replace_master_key, each=True),
        Workload(
            "rotate-silo",
            operators.replace_silo_key,
            settings={"silos": 2},
            prepare=operators.network_on_silos,
        ),
        Workload("backup", operators.backup),
        Workload(
            "follow",
            operators.follow,
            prepare=operators.half_followed,
            only="sqlite",
            left=operators.unfollowed,
        ),
        Workload("restore", operators.restored, requests=1, prepare=operators.backed_up),
        Workload("init", operators.begin, only="sqlite"),
        Workload("fsck", operators.fsck),
        Workload("tidy", operators.tidy, prepare=operators.orphaned),
        Workload(
            "notify",
            background.notify,
            background.are_delivered,
            requests=1,
            prepare=background.receiver,
        ),
        Workload("witness", background.cosigned, requests=1, prepare=background.witness),
    )
}
