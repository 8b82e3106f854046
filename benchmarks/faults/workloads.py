"""The workloads by name, and when each has ended."""

from collections.abc import Callable

from sqlmodel import Session, select

from benchmarks.faults import (
    agents,
    auditors,
    background,
    called_back,
    clients,
    controllers,
    networks,
    officers,
    operators,
    rounds,
    tables,
    visitors,
)
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
        Workload("case", officers.case, officers.are_closed, 2, 1, work=True),
        Workload(
            "intake",
            visitors.ask_and_withdraw,
            visitors.are_withdrawn,
            requests=visitors.FORMS,
            settings=visitors.SETTINGS,
            prepare=visitors.known,
            cases=visitors.FORMS,
            doubled=visitors.doubled,
        ),
        *(
            Workload(
                name,
                act,
                called_back.have_ended,
                2,
                2,
                settings=settings,
                prepare=prepare,
                cases=2,
                doubled=called_back.doubled,
            )
            for name, act, settings, prepare in (
                ("agent", agents.exercise_and_revoke, agents.SETTINGS, agents.registered),
                (
                    "controller",
                    controllers.ask_and_cancel,
                    controllers.SETTINGS,
                    controllers.registered,
                ),
            )
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
        Workload(
            "round",
            rounds.learn_and_erase,
            rounds.is_erased,
            2,
            1,
            model=rounds.MODEL,
            prepare=rounds.enrolled,
            work=True,
        ),
        Workload(
            "network",
            networks.learn,
            _CERTIFIED,
            networks.GONE,
            1,
            model=networks.MODEL,
            rows=networks.ROWS,
            work=True,
        ),
        Workload(
            "silos",
            networks.retrain_on_silos,
            _CERTIFIED,
            networks.GONE,
            1,
            model=networks.MODEL,
            rows=networks.ROWS,
            settings=networks.SILOS,
            prepare=networks.trained_on_silos,
            work=True,
        ),
        Workload(
            "audit",
            networks.audit,
            networks.are_reported,
            prepare=networks.trained,
            work=True,
        ),
        *(
            Workload(
                name,
                several.learn_and_erase,
                several.are_certified,
                len(several.refs) * tables.GONE,
                len(several.refs),
                model=several.refs[0],
                also=tuple(several.refs[1:]),
                rows=len(several.refs) * tables.ROWS,
                work=True,
                prepare=several.fitted,
                doubled=several.doubled,
            )
            for name, several in (("table", tables.UPDATED), ("refit", tables.REFITTED))
        ),
        Workload(
            "mend",
            operators.mend,
            operators.is_mended,
            prepare=operators.quarantined,
            work=True,
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
        Workload(
            "watch",
            auditors.watch,
            requests=1,
            prepare=auditors.mirrored,
            left=auditors.unmirrored,
        ),
        Workload("fork", auditors.see_a_fork),
        Workload("witness", background.cosigned, requests=1, prepare=background.witness),
        Workload("late", background.cosigned_later, requests=1, prepare=background.unwitnessed),
    )
}
