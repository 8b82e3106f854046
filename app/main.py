"""The HTTP application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

import lethe
from app import steps
from app.api import (
    audits,
    callbacks,
    certificates,
    documents,
    health,
    holds,
    keys,
    log,
    models,
    people,
    period,
    reference,
    releases,
    requests,
    rounds,
    streams,
    verification,
    webhooks,
)
from app.api.http import openapi, problems
from app.api.http.attempts import Limits
from app.api.http.calls import Calls
from app.api.http.limits import BodyLimit, PlainTargets
from app.api.http.parsing import Parsing
from app.api.http.rates import Rates
from app.console import routes as console
from app.console.sign_in.provider import require_installed
from app.counters import REFUSED
from app.notices.stream import Streams
from app.protocols.drp import routes as drp
from app.protocols.opendsr import routes as opendsr
from app.protocols.opendsr.processor import load_processor
from app.service.access import keys as keys_service
from app.service.context import Services, open_services
from app.settings import Settings

ROUTES = (
    requests,
    streams,
    documents,
    people,
    releases,
    rounds,
    keys,
    webhooks,
    callbacks,
    holds,
    models,
    audits,
    log,
    period,
    certificates,
    verification,
    health,
    reference,
    console,
    opendsr,
    drp,
)

# FastAPI's own telemetry contains paths, which hold capabilities, and texts of errors, and goes
# to any global provider that a library has set. `app.traces` has ours.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_app(services: Services | None = None) -> FastAPI:
    """Return the application; services default to those the environment describes.

    Raises LetheError if the log or a key is missing or inconsistent, see `open_services`, or if
    a protocol lacks its keys or library.
    """
    opened = services or open_services(Settings())
    if opened.settings.oidc_issuer:
        require_installed()
    if opened.settings.fault:
        steps.plant(opened.settings.fault)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        opened.close()

    app = FastAPI(
        title="Lethe",
        version=lethe.__version__,
        telemetry=NO_TELEMETRY,
        lifespan=lifespan,
        docs_url=None,  # app.api.reference
        redoc_url=None,
    )
    app.state.services = opened
    app.state.opendsr = load_processor(opened.settings)
    app.state.streams = Streams()
    app.state.sign_ins = Limits()
    app.state.rates = Rates(opened.settings.calls_per_minute)
    app.state.parsing = Parsing(opened.settings.max_parsed_at_once)
    app.state.documents = Parsing(opened.settings.max_parsed_at_once)
    app.state.verifications = Parsing(opened.settings.max_parsed_at_once)

    def known(header: str) -> bool:
        with opened.reading() as session:
            return keys_service.is_known_token(session, header)

    app.add_middleware(BodyLimit, settings=opened.settings, known=known)
    app.add_middleware(PlainTargets)
    problems.install(app)
    REFUSED.expect(openapi.answerable())
    app.add_middleware(Calls)  # outermost, so that answers of the others have an id too
    _route(app)
    if opened.settings.intake:
        from app.intake.route import IntakeLimitError
        from app.intake.routes import router as intake

        app.state.intake_limits = Limits(refused=IntakeLimitError)
        app.include_router(intake)
    return app


def described() -> dict[str, Any]:
    """Return the OpenAPI document; no database or key is opened."""
    app = FastAPI(title="Lethe", version=lethe.__version__)
    _route(app)
    return app.openapi()


def _route(app: FastAPI) -> None:
    for module in ROUTES:
        app.include_router(module.router)
    openapi.install(app)
