"""One pair of an audit: load the stored rows, compute in memory, record three numbers."""

import logging

from app.service.algorithm_audits import TASK
from app.service.audit_macs import about, mac_key, pair_mac
from app.service.context import Services
from models import Audit, Model
from workers.errors import RefusedError
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.rows import Holdings, assemble, holdings
from workers.families.network.training import device_of, here
from workers.jobs.lease import LONGEST_COOL_DOWN_S, is_outside
from workers.method_audits import (
    queue as audit_queue,
)
from workers.method_audits import (
    report as audit_report,
)
from workers.method_audits.draw import Plan, StoredRows
from workers.method_audits.pair import Pair, run_pair
from workers.method_audits.queue import LeasedPair
from workers.method_audits.report import ROOMS
from workers.provenance import code_digest

log = logging.getLogger(__name__)


class OtherCodeError(RefusedError):
    """A worker of another version came to an audit that was begun with other code."""


def run(services: Services, audit_id: str) -> None:
    """Compute the next pair of an audit, or report it once all are there.

    Each pair that is done sends the next worker on its way. A worker that dies loses the pair
    it held: its lease runs out, and the sweep has it computed again.
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
        # Never its text: it may hold a row's values.
        name = type(error).__name__
        log.error("audit %s: %s, tries %s", audit_id, name, taken.tries)
        outside = is_outside(error)
        if taken.tries >= most and not outside:
            audit_queue.fail(services, audit_id, f"{name}: see the service's log")
        else:
            wait = min(2**taken.tries, LONGEST_COOL_DOWN_S)
            audit_queue.put_off(services, taken, wait, counts=not outside)
        return
    services.dispatcher.nudge(audit_id, TASK)


def _computed(services: Services, taken: LeasedPair) -> dict[str, object]:
    with services.reading() as session:
        audit = session.get_one(Audit, taken.audit_id)
        model = session.get_one(Model, audit.model_id)
        if model.state != "ready":
            raise RefusedError("the model went out of service: start it again afterwards")
        config = network_config(model)
        rows = holdings(assemble(services, session, audit.model_id), config)
        version = model.current_version
    code, made_by = code_digest(*ROOMS), config.method(audit.method).version
    if not audit_queue.pin_code(services, taken.audit_id, code, made_by):
        raise OtherCodeError("the workers' code changed during the audit: start it again")
    done = _pair(services, config, rows, audit.config, taken.pair)
    recorded = {
        "before": done.before.hex(),
        "after": done.after.hex(),
        "retrained": done.retrained.hex(),
        "gave_way": done.gave_way,
        "version": version,
        "environment": here(services),
    }
    common = about(model, taken.audit_id, audit.config, made_by, code)
    key = mac_key(services.master, model)
    return {**recorded, "mac": pair_mac(key, common, taken.pair, recorded)}


def _pair(
    services: Services,
    config: NetworkConfig,
    rows: Holdings,
    asked: dict[str, str],
    pair: int,
) -> Pair:
    plan = Plan(
        seed=int(asked["seed"]),
        pairs=int(asked["pairs"]),
        rows=int(asked["rows"]),
        targets=int(asked["targets"]),
        mislabelled=asked["target"] == "mislabelled",
    )
    stored = {
        client: StoredRows(own.records, own.data, own.held.tolist())
        for client, own in rows.items()
    }
    return run_pair(
        config.network,
        config.training,
        config.method(asked["method"]),
        stored,
        plan,
        pair,
        device_of(services),
    )
