"""Whether this process can take a request, part by part.

A load balancer asks each second, so the costly checks are repeated less often.
"""

import logging
import shutil
import time
from collections.abc import Callable

from sqlalchemy import text

from app.keys.issuer import signing_issuer
from app.keys.log import require_logged
from app.ledger import lock, storage
from app.ledger.entry_macs import KeyMissingError
from app.ledger.guard import GuardError, require_extends
from app.ledger.startup import ISSUER_PEM, load_issuer, open_ledger
from app.problems import NotReadyError
from app.service.context import Services
from app.service.issued import public_log
from app.vault.master import RootSecret
from app.witnesses.standing import CONTRADICTED, contradictions
from lethe.errors import LetheError
from lethe.signing.keys import public_pem

log = logging.getLogger(__name__)

STILL_S = 5.0  # a holder of the log's lock that is idle for this long is frozen
TRY_S = 1.0  # time-out for SQLite's lock and the guard's
LAG_S = 15.0  # longest without a checkpoint: three sweeps, each of which would sign one
FRESH_S, ARTIFACTS_FRESH_S = 1.0, 30.0  # lifetime of a result
WITNESSES_FRESH_S = 10.0
REFUSED = "messages-refused"
PARTS = (
    *("database", "lock", "log", "checkpoint", "guard", "keys", "space", "artifacts"),
    *("witnesses", "broker"),
)


def ready(services: Services) -> dict[str, str]:
    """Return "ok" for each part, and how many foreign messages workers have dropped.

    Raises NotReadyError if some are not; `failed` names which, and the log says why.
    """
    found, refused = look(services)
    failed = [name for name, why in found.items() if why is not None]
    if failed:
        raise NotReadyError(
            "the service cannot take requests: see its log", failed=", ".join(failed)
        )
    return {**dict.fromkeys(PARTS, "ok"), REFUSED: refused}


def look(
    services: Services, *, database_alone: bool = False
) -> tuple[dict[str, str | None], str]:
    """Return why each part is not ready, None of one that is, and the messages dropped.

    Whoever looks shares what was found a moment ago with all others: `Services.seen`.
    database_alone: ask no other part. Most of them read the database, and nothing bounds how
    long.
    """
    refused = "?"

    def broker() -> None:
        nonlocal refused
        refused = str(services.dispatcher.check())

    checks: dict[str, tuple[float, Callable[[Services], object]]] = {
        "database": (FRESH_S, _database),
        "lock": (FRESH_S, lambda s: lock.require_lock_moves(s.engine, _patience(s))),
        "log": (FRESH_S, public_log.check_published),
        "checkpoint": (FRESH_S, _checkpoint),
        "guard": (FRESH_S, _guard),
        "keys": (0.0, _keys),  # small files: a missing one is reported at once
        "space": (FRESH_S, _space),
        "artifacts": (ARTIFACTS_FRESH_S, _artifacts),
        "witnesses": (WITNESSES_FRESH_S, _witnesses),
        "broker": (0.0, lambda _: broker()),
    }
    if database_alone:
        return {"database": _found(services, "database", *checks["database"])}, refused
    found = {name: _found(services, name, *checks[name]) for name in PARTS}
    failed = {name: why for name, why in found.items() if why is not None}
    _log_changes(services, failed)
    return found, refused


def _found(
    services: Services, name: str, fresh_s: float, check: Callable[[Services], object]
) -> str | None:
    """Return why a part is not ready, None if it is; reuses results younger than `fresh_s`."""
    at, why = services.seen.get(name, (float("-inf"), None))
    if time.monotonic() - at >= fresh_s:
        try:
            check(services)
            why = None
        except LetheError as error:
            why = error.detail
        except Exception as error:  # whatever a driver raises: this part does not answer
            why = type(error).__name__
        services.seen[name] = (time.monotonic(), why)
    return None if why is None else str(why)


def _log_changes(services: Services, failed: dict[str, str]) -> None:
    """Log once that a part is not ready and why, and once that it is ready again."""
    _, before = services.seen.get("reported", (0.0, frozenset()))
    assert isinstance(before, frozenset)
    for name in failed.keys() - before:
        log.error("not ready: %s: %s", name, failed[name])
    for name in before - failed.keys():
        log.warning("ready again: %s", name)
    services.seen["reported"] = (time.monotonic(), frozenset(failed))


def _patience(services: Services) -> float:
    return TRY_S if services.engine.dialect.name == "sqlite" else STILL_S


def _database(services: Services) -> None:
    with services.reading() as session:
        session.connection().execute(text("SELECT 1"))


def _checkpoint(services: Services) -> None:
    """Check that entries get a checkpoint in time: without it they have no receipts."""
    with services.reading() as session:
        latest, size = storage.latest_checkpoint(session), storage.read_size(session)
    published = 0 if latest is None else latest.size
    since, behind = services.seen.get("lag", (0.0, None))
    if published >= size:
        services.seen.pop("lag", None)
    elif behind != published:  # progress since the last check: the rest is being signed
        services.seen["lag"] = (time.monotonic(), published)
    elif time.monotonic() - since > LAG_S:
        raise LetheError(
            f"{size - published} entries have no checkpoint: see the log for why none is signed"
        )


def _guard(services: Services) -> None:
    ledger = services.ledger
    ledger.guard.require_free(TRY_S)
    held = ledger.guard.read()  # before the snapshot, which can then only be newer
    with services.reading() as session:
        size = storage.read_size(session)
        require_extends(held, ledger.origin, size, storage.NodeTable(session).root_at)


def _keys(services: Services) -> None:
    """Check that the key files are those that this process and the database use.

    Without the issuer's key no certificate can be issued, and under another master key nothing
    can be decrypted: both would only show as requests that wait.
    """
    settings = services.settings
    stored = open_ledger(settings, services.engine)
    if not stored.has_keys_of(services.ledger):
        raise KeyMissingError(
            "a key of the log differs from the one loaded at the start: restore it"
        )
    try:
        services.ledger.require_named()
        require_logged(services.ledger)
        issuer = signing_issuer(settings, services.ledger)[0]
    except GuardError:  # the part `guard` reports it
        issuer = load_issuer(settings)[0]
    if (settings.keys_dir / ISSUER_PEM).read_text() != public_pem(issuer.public_key()):
        raise KeyMissingError(
            "the issuer's key does not match issuer.pem: restore it, or run `lethe "
            "service-key rotate issuer` again where that was interrupted"
        )
    with services.reading() as session:
        services.artifacts.require_master(session, RootSecret.load(settings))


def _space(services: Services) -> None:
    if shutil.disk_usage(services.settings.data_dir).free < services.settings.min_free_bytes:
        raise LetheError(
            "the data directory's disk has less free space than "
            "LETHE_MIN_FREE_BYTES: free space there"
        )


def _witnesses(services: Services) -> None:
    """Check that no witness holds proof that this log's key signed another tree."""
    with services.reading() as session:
        for witness in contradictions(session, services.ledger):
            raise LetheError(f"the witness {witness} {CONTRADICTED}")


def _artifacts(services: Services) -> None:
    missing = services.artifacts.missing(services.engine)
    if missing:
        raise LetheError(
            f"{missing} rows of artifacts have no file: restore the data directory "
            "from its backup"
        )
