"""A network's method as a method audit runs it: on the stored rows, in memory."""

from collections.abc import Mapping

from sqlmodel import Session

from app.service.context import Services
from models import Model
from workers.families.base import AuditedMethod
from workers.families.network.config import network_config
from workers.families.network.data.rows import assemble, holdings
from workers.families.network.training import device_of, here
from workers.method_audits.draw import Plan, StoredRows
from workers.method_audits.pair import Pair, run_pair


def load(
    services: Services, session: Session, model: Model, settings: Mapping[str, str]
) -> AuditedMethod:
    """Return the audited method with all rows of the model, whoever holds them.

    settings: method, seed, pairs, rows, targets and target, as the audit was started with.
    Raises RefusedError for a method or rows that are not the network's.
    """
    assert model.id is not None
    config = network_config(model)
    method = config.method(settings["method"])
    rows = holdings(assemble(services, session, model.id), config)
    stored = {
        client: StoredRows(own.records, own.data, own.held.tolist())
        for client, own in rows.items()
    }
    plan = Plan(
        seed=int(settings["seed"]),
        pairs=int(settings["pairs"]),
        rows=int(settings["rows"]),
        targets=int(settings["targets"]),
        mislabelled=settings["target"] == "mislabelled",
    )
    device = device_of(services)

    def pair(number: int) -> Pair:
        return run_pair(config.network, config.training, method, stored, plan, number, device)

    return AuditedMethod(method.version, here(services), pair)
