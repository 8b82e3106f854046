"""One pair of an audit: load the stored rows, compute in memory, record three numbers."""

import logging

from app.method_audits.audits import TASK
from app.method_audits.macs import about, pair_mac
from app.service.context import Services
from app.vault.master import audit_mac_key
from models import Audit, Model
from workers.errors import RefusedError
from workers.families import base as family
from workers.leases.retries import cool_down_s, is_outside
from workers.method_audits import queue as audit_queue
from workers.method_audits import report as audit_report
from workers.method_audits.queue import LeasedPair
from workers.provenance import NETWORK_ROOMS, code_digest

log = logging.getLogger(__name__)


class OtherCodeError(RefusedError):
    """This worker's code differs from the code that the audit was begun with."""


def run(services: Services, audit_id: str) -> None:
    """Compute the next pair of an audit, or report it once all are computed.

    Each finished pair nudges the next worker. A worker that dies loses its pair: the lease
    expires, and the sweep has it computed again.
    """
    taken = audit_queue.take(services, audit_id)
    if taken is None:
        audit_report.issue_if_complete(services, audit_id)
        return
    most = services.settings.max_tries
    if taken.tries > most:
        audit_queue.fail(services, audit_id, f"a pair ended its worker {most} times")
        return
    try:
        with audit_queue.renewed(services, taken):
            values = _computed(services, taken)
        audit_queue.record(services, taken, values)
    except RefusedError as error:
        audit_queue.fail(services, audit_id, str(error))
        return
    except Exception as error:
        # Never the error's text: it may hold a row's values.
        name = type(error).__name__
        log.error("audit %s: %s, tries %s", audit_id, name, taken.tries)
        outside = is_outside(error)
        if taken.tries >= most and not outside:
            audit_queue.fail(services, audit_id, f"{name}: see the service's log")
        else:
            wait = cool_down_s(taken.tries)
            audit_queue.put_off(services, taken, wait, counts=not outside)
        return
    services.dispatcher.nudge(audit_id, TASK)


def _computed(services: Services, taken: LeasedPair) -> dict[str, object]:
    with services.reading() as session:
        audit = session.get_one(Audit, taken.audit_id)
        model = session.get_one(Model, audit.model_id)
        if model.state != "ready":
            raise RefusedError(
                "the model went out of service during the audit: start another once it is ready"
            )
        method = family.of(model).audited_method(services, session, model, audit.config)
        version = model.current_version
    code = code_digest(*NETWORK_ROOMS)
    if not audit_queue.pin_code(services, taken.audit_id, code, method.version):
        raise OtherCodeError("the workers' code changed during the audit: start another")
    pair = method.run_pair(taken.pair)
    recorded = {
        "before": pair.before.hex(),
        "after": pair.after.hex(),
        "retrained": pair.retrained.hex(),
        "gave_way": pair.gave_way,
        "version": version,
        "environment": dict(method.environment),
    }
    common = about(model, taken.audit_id, audit.config, method.version, code)
    key = audit_mac_key(services.root_secret, model)
    return {**recorded, "mac": pair_mac(key, common, taken.pair, recorded)}
