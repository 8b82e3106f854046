"""A whole installation in one process: API, workers without a broker, an operator's token."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import update
from sqlmodel import Session
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from app.main import create_app
from app.reconcile.fsck.journal import fsck_journal
from app.reconcile.fsck.run import fsck
from app.reconcile.fsck.vault import fsck_vault
from app.service.access.tokens import mint
from app.service.context import Services, open_services
from app.settings import Settings
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import Predicate, parse_statement
from lethe.client import Client
from models import Job
from models.database.types import utcnow
from tests.doubles.dispatcher import InlineDispatcher
from tests.small import MODEL, Caller


@dataclass
class Installation:
    """Open services and a caller; `restart` is what a crashed process does next."""

    settings: Settings
    services: Services
    dispatcher: InlineDispatcher
    caller: Caller

    def drain(self) -> None:
        """Run all queued work."""
        self.dispatcher.drain(self.services)

    def ready(self, **changes: Any) -> None:
        """Register key and model and fit it."""
        assert self.caller.register_key().status_code == 201
        assert self.caller.register_model(**changes).status_code == 201
        self.drain()

    def client(self, **options: Any) -> Client:
        """Return the Python client of this installation, with the operator's token."""
        transport = self.caller.http._transport
        options = {"token": self.caller.token, "transport": transport, **options}
        return Client("http://testserver", **options)

    def recover(self) -> None:
        """Let the leases of the dead run out and sweep."""
        with Session(self.services.engine) as session:
            past = utcnow().replace(year=2020)
            session.connection().execute(update(Job).values(created_at=past))
            session.connection().execute(
                update(Job).where(Job.lease_until.is_not(None)).values(lease_until=past)  # type: ignore[union-attr]
            )
            session.commit()
        self.dispatcher.nudges.clear()
        self.dispatcher.sweep(self.services)

    def check(self) -> None:
        """Run fsck and insist on a clean log."""
        report = fsck(self.services.ledger)
        fsck_vault(
            self.services.engine, self.services.artifacts, self.services.root_secret, report
        )
        fsck_journal(
            self.services.engine, self.services.root_secret, self.services.journal, report
        )
        assert report.ok, report.findings


def make_token(services: Services, scope: str = "operator", name: str = "") -> str:
    """Store a bearer token, of a new name if none is given; returns it."""
    with Session(services.engine) as session:
        token = mint(session, scope, name or f"test {secrets.token_hex(8)}")
        session.commit()
    return token


routes: list[BaseRoute] = []


@contextmanager
def install(settings: Settings) -> Iterator[Installation]:
    """Open an installation whose log was begun."""
    dispatcher = InlineDispatcher()
    services = replace(open_services(settings), dispatcher=dispatcher)
    app = create_app(services)
    # FastAPI compiles an application's routes at its first call, in 0.2 s. They hold nothing of
    # an installation (`app.state` does), so all applications of a test process share them.
    routes[:] = routes or app.router.routes
    app.router.routes[:] = routes
    with TestClient(app) as http:
        caller = Caller(http, make_token(services))
        yield Installation(settings, services, dispatcher, caller)


@contextmanager
def taken(made: Installation, turns: str, number: int) -> Iterator[None]:
    """Hold turns of a service: "parsing", "documents" or "verifications"."""
    http = made.caller.http
    assert http.portal is not None
    with ExitStack() as held:
        for _ in range(number):
            turn = getattr(http.app.state, turns).turn()  # type: ignore[attr-defined]
            held.enter_context(http.portal.wrap_async_context_manager(turn))
        yield


def answer_errors(http: TestClient) -> None:
    """Have an error of the service answered as over a network, and not raised in the test."""
    http._transport.raise_server_exceptions = False  # type: ignore[attr-defined]


def shown(made: Installation, request: str) -> dict[str, Any]:
    """Return a request as its holder sees it."""
    found: dict[str, Any] = made.caller.http.get(f"/v1/requests/{request}").json()
    return found


def state(made: Installation, request: str) -> str:
    """Return a request's state, as its holder sees it."""
    return str(shown(made, request)["state"])


def predicate(made: Installation, request: str) -> Predicate:
    """Return what a request's certificate states."""
    bundle = made.caller.http.get(f"/v1/requests/{request}/certificate")
    assert bundle.status_code == 200, bundle.text
    return parse_statement(parse_bundle(bundle.content).dsse_envelope.payload).predicate


def head(made: Installation, ref: str = MODEL) -> bytes:
    """Return the file of a model's current version."""
    path = f"/v1/models/{ref}/versions/current/artifact"
    return made.caller.operator("GET", path).content


def named(made: Installation, name: str, scope: str = "operator") -> Caller:
    """Return a caller whose token has this name."""
    return replace(made.caller, token=make_token(made.services, scope, name))
