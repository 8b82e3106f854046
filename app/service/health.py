"""Whether this process can take a request."""

from collections.abc import Callable

from sqlalchemy import text

from app.errors import LetheError
from app.service import audit
from app.service.context import Services


class NotReadyError(LetheError):
    """Something the service needs does not answer."""

    slug, title, status = "not-ready", "Not ready", 503


def ready(services: Services) -> dict[str, str]:
    """Return "ok" for the database, the broker and the log.

    Raises:
        NotReadyError: One of them is not; `failed` names which.
    """

    def database() -> None:
        with services.reading() as session:
            session.connection().execute(text("SELECT 1"))

    checks: dict[str, Callable[[], object]] = {
        "database": database,
        "log": lambda: audit.check_published(services),
        "broker": services.dispatcher.check,
    }
    failed = [name for name, check in checks.items() if not _passes(check)]
    if failed:
        raise NotReadyError(
            "the service cannot take requests: see its log", failed=", ".join(failed)
        )
    return dict.fromkeys(checks, "ok")


def _passes(check: Callable[[], object]) -> bool:
    # Whatever a driver raises means the same here: this part does not answer.
    try:
        check()
    except Exception:
        return False
    return True
