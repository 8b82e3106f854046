"""A network's method as a method audit runs it: on the stored rows, in memory."""

from collections.abc import Mapping

from sqlmodel import Session

from app.ledger.storage import read_size
from app.service.context import Services
from app.vault.errors import NotStoredError, SealError, ShreddedError
from models import Model
from workers.audit_pairs.draw import Plan, StoredRows
from workers.audit_pairs.pair import Pair, run_pair
from workers.errors import RefusedError
from workers.families.base import AuditedMethod
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.data.rows import Holdings, assemble, holdings
from workers.families.network.training import data_of, device_of, here
from workers.lineage import versions
from workers.lineage.logged import NotLoggedError, check_logged, is_newest
from workers.lineage.versions import OtherModelError, salts_of

NOT_ITS_ROWS = (
    "the rows that are stored of the model are not those of its version in the log: restore "
    "its rows of subjects, feature_blocks, records and model_versions from a backup, and start "
    "another audit"
)


def load(
    services: Services, session: Session, model: Model, settings: Mapping[str, str]
) -> AuditedMethod:
    """Return the audited method with all rows of the model, whoever holds them.

    settings: method, seed, pairs, rows, targets and target, as the audit was started with.
    Raises RefusedError for a method or rows that do not belong to the network, or rows that
    differ from those of its version in the log.
    """
    config = network_config(model)
    method = config.method(settings["method"])
    rows = _published(services, session, model, config)
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


def _published(
    services: Services, session: Session, model: Model, config: NetworkConfig
) -> Holdings:
    """Return the stored rows, checked against the log's digest for the current version.

    session: a snapshot; versions may be published meanwhile. Raises RefusedError.
    """
    assert model.id is not None
    version = versions.current(session, model)
    try:
        rows = holdings(assemble(services, session, model.id), config)
        digest = data_of(rows, salts_of(session, model.id))
        if version is None or version.statistics_digest != digest:
            raise RefusedError(NOT_ITS_ROWS)
        check_logged(services.ledger, model, version)
        if not is_newest(services.ledger, model, version, read_size(session)):
            raise RefusedError(NOT_ITS_ROWS)
    except (NotLoggedError, NotStoredError, OtherModelError, SealError, ShreddedError):
        raise RefusedError(NOT_ITS_ROWS) from None
    return rows
