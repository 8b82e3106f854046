"""Metrics for Prometheus: of the whole service, from the database, and of this process.

Any API process answers for the whole service: requests, certificates, jobs and the log are
rows, so one snapshot covers all processes. It is read when scraped, at most once in FRESH_S.
Waits, durations and refused calls are counted by each process (`app.counters`); a worker
exposes its own at LETHE_WORKER_METRICS, without the database's values, which a sum over
targets would count several times.

No label names a person, a record, a key or a model: references of models are chosen by people
and grow without limit. Labels are states, kinds, stages, problem types, operations.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Literal, get_args

from sqlalchemy import Select, case, func, text
from sqlalchemy import select as columns
from sqlmodel import Session, col

from app.backup.beats import read_beats
from app.counters import COUNTERS, HISTOGRAMS
from app.ledger import storage
from app.notices.events import DELIVERED, DROPPED, FAILED, WAITING
from app.schemas.requests import State
from app.service import health
from app.service.context import Services
from app.service.deadlines import REMIND_DAYS
from app.service.desk.queue import dues_of_following
from app.service.queue import waits_for_a_worker
from app.service.requests import is_running, overdue_at
from app.witnesses.rows import Rows
from app.witnesses.standing import are_up, contradictions, standings
from lethe.certificates.statement import Outcome
from lethe.errors import LetheError
from models import Certificate, Delivery, ErasureRequest, Job, ScheduleLease
from models.database.types import clock
from models.erasure_request import OPEN

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/plain; version=1.0.0; charset=utf-8"  # what generate_latest writes
FRESH_S = 5.0  # lifetime of the cached answer: more frequent scrapes cost nothing
STATEMENT_S = 2.0  # limit of one statement; Prometheus gives up a scrape after 10 s
_STEPS = 10_000  # instructions of SQLite's virtual machine between two checks of the clock

_reading = threading.Lock()  # concurrent scrapes wait for the same answer


@dataclass(frozen=True, slots=True)
class Family:
    """One metric read now; samples: value by label values."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    samples: Mapping[tuple[str, ...], float]
    labels: tuple[str, ...] = ()


class WorkerMetricsError(LetheError):
    """This process cannot listen at the address in LETHE_WORKER_METRICS."""

    slug, title = "settings", "The configuration is refused"


def whole_service(services: Services) -> bytes:
    """Return the text that an API process serves. Never raises if a part is unavailable."""
    found = read(services)
    return _text(lambda: chain(_families(found), _own()))


def serve_own(address: str) -> None:
    """Serve this process's own counters at HOST:PORT, from a thread.

    Raises WorkerMetricsError if the address cannot be listened at.
    """
    from prometheus_client import start_http_server

    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host, registry=_registry(_own))
    except (OSError, OverflowError) as error:
        raise WorkerMetricsError(
            f"LETHE_WORKER_METRICS: cannot listen there ({type(error).__name__}): each worker "
            "on a machine needs a port of its own"
        ) from None


def read(services: Services) -> list[Family]:
    """Return the metrics of the whole service, at most FRESH_S old."""
    with _reading:
        at, found = services.seen.get("metrics", (float("-inf"), None))
        if time.monotonic() - at >= FRESH_S:
            found = _read(services)
            services.seen["metrics"] = time.monotonic(), found
    assert isinstance(found, list)
    return found


def _read(services: Services) -> list[Family]:
    found: list[Family] = []
    answered: dict[tuple[str, ...], float] = {}
    parts: dict[str, Callable[[Services], list[Family]]] = {
        "database": _database,
        "disk": _disk,
        "followers": _followers,
        "broker": _broker,
        "readiness": lambda s: _readiness(s, database_alone=not answered["database",]),
    }
    for name, part in parts.items():
        try:
            found += part(services)
            answered[name,] = 1.0
        except Exception as error:  # whatever a driver raises: this part does not answer
            log.warning("metrics of the %s not read: %s", name, type(error).__name__)
            answered[name,] = 0.0
    answer = "Whether this part answered the scrape; if 0, its metrics are missing."
    return [*found, Family("lethe_scrape_ok", "gauge", answer, answered, ("part",))]


def _disk(services: Services) -> list[Family]:
    free = float(shutil.disk_usage(services.settings.data_dir).free)
    least = float(services.settings.min_free_bytes)
    return [
        _gauge("lethe_free_bytes", "Free space of the data directory's disk.", free),
        _gauge("lethe_min_free_bytes", "Free space below which /readyz answers 503.", least),
    ]


def _followers(services: Services) -> list[Family]:
    beats = read_beats(services.settings)
    lag = [beat.lag.total_seconds() for beat in beats]
    late = [float(beat.is_late) for beat in beats]
    return [
        Family(
            "lethe_follower_lag_seconds",
            "gauge",
            "How far the directory of a follower may be behind the database, the furthest.",
            {(): max(lag)} if lag else {},
        ),
        _gauge("lethe_followers_late", "Followers that do not keep their interval.", sum(late)),
    ]


def _broker(services: Services) -> list[Family]:
    dropped = float(services.dispatcher.check())
    meaning = "Broker messages dropped because Lethe did not send them."
    return [_counter("lethe_messages_dropped", meaning, dropped)]


def _readiness(services: Services, *, database_alone: bool) -> list[Family]:
    """Ask what /readyz asks; what that found a moment ago is not asked again.

    database_alone: the database gave no answer in time a moment ago, and would keep each part
    waiting, one after the other, for longer than a scrape may take.
    """
    found, _ = health.look(services, database_alone=database_alone)
    parts: dict[tuple[str, ...], float] = {
        (part,): float(why is None) for part, why in found.items()
    }
    meaning = "Whether /readyz has this part ok; only the database's if it is late."
    return [Family("lethe_ready", "gauge", meaning, parts, ("part",))]


def _database(services: Services) -> list[Family]:
    """Read everything in one snapshot, so that the values fit together."""
    with services.reading() as session, _bounded(session):
        now = clock(session)
        size, latest = storage.read_size(session), storage.latest_checkpoint(session)
        states = _zeros(get_args(State)) | _grouped(
            session,
            columns(col(ErasureRequest.state), func.count()).group_by(
                col(ErasureRequest.state)
            ),
        )
        certified = _zeros(get_args(Outcome)) | _grouped(
            session,
            columns(col(Certificate.result), func.count()).group_by(col(Certificate.result)),
        )
        waiting = (
            columns(col(Job.kind), col(Job.stage), func.count())
            .where(col(Job.done_at).is_(None))
            .group_by(col(Job.kind), col(Job.stage))
        )
        queued: dict[tuple[str, ...], float] = {
            (kind, stage): float(n) for kind, stage, n in session.connection().execute(waiting)
        }
        due, until = col(ErasureRequest.due_at), now + timedelta(days=REMIND_DAYS[0])
        overdue = columns(func.count()).where(overdue_at(now))
        soon = columns(func.count()).where(is_running(), due >= now, due < until)
        following = dues_of_following(session, until)
        late = sum(one < now for one in following)
        each = (
            columns(func.count().label("held"))
            .where(col(ErasureRequest.keyid).is_not(None), text(OPEN))
            .group_by(col(ErasureRequest.keyid))
            .subquery()
        )
        most = columns(func.max(each.c.held))
        # An attempt counts once a worker takes it. A request executed together with another
        # was never taken by itself.
        begun = case((col(Job.stage) != "execute", 1), (col(Job.lease_token) > 0, 1), else_=0)
        steps = columns(func.sum(col(Job.step) - 1 + begun)).where(col(Job.kind) == "erase")
        leases = columns(func.count()).where(
            col(Job.lease_until) > now, col(Job.done_at).is_(None)
        )
        schedule = columns(func.count()).where(col(ScheduleLease.until) > now)  # of one row
        notices = _zeros((WAITING, DELIVERED, FAILED, DROPPED)) | _grouped(
            session, columns(col(Delivery.state), func.count()).group_by(col(Delivery.state))
        )
        # The oldest job is the head of its queue, or waits behind one that was begun.
        oldest = columns(func.min(col(Job.created_at))).where(
            *waits_for_a_worker(services.settings, now)
        )
        since = session.connection().execute(oldest).scalar_one()
        quorum = Rows(services.ledger).witnessed(session)
        witnesses = standings(session)
        unseen = 0 if services.policy is None else size - (quorum[0] if quorum else 0)
        return [
            _counter(
                "lethe_requests_accepted", "Erasure requests accepted.", sum(states.values())
            ),
            Family("lethe_requests", "gauge", "Erasure requests by state.", states, ("state",)),
            _gauge(
                "lethe_requests_overdue",
                "Open erasure requests, and cases that follow others', past their deadline.",
                _number(session, overdue) + late,
            ),
            _gauge(
                "lethe_requests_due_soon",
                f"Open erasure requests, and cases that follow others', due within "
                f"{REMIND_DAYS[0]} days.",
                _number(session, soon) + len(following) - late,
            ),
            _gauge(
                "lethe_requests_open_of_a_key",
                "Open erasure requests of the key that has most of them.",
                _number(session, most),
            ),
            Family(
                "lethe_certified", "counter", "Certificates issued.", certified, ("result",)
            ),
            _counter(
                "lethe_steps",
                "Steps of erasures that a worker began or skipped.",
                _number(session, steps),
            ),
            Family("lethe_jobs", "gauge", "Unfinished jobs.", queued, ("kind", "stage")),
            _gauge("lethe_leases_held", "Jobs a worker holds.", _number(session, leases)),
            _gauge(
                "lethe_schedule_running",
                "Whether a process runs the schedule: it holds the lease.",
                _number(session, schedule),
            ),
            _gauge(
                "lethe_queue_oldest_seconds",
                "Age of the oldest unfinished job that needs nothing but a worker.",
                0.0 if since is None else (now - since).total_seconds(),
            ),
            Family(
                "lethe_deliveries",
                "gauge",
                "Notices by state, of the last 30 days: waiting, delivered, failed, dropped.",
                notices,
                ("state",),
            ),
            _gauge("lethe_log_entries", "Entries of the log.", float(size)),
            _gauge(
                "lethe_checkpoint_lag_entries",
                "Entries of the log that no checkpoint covers yet.",
                float(size - (0 if latest is None else latest.size)),
            ),
            Family(
                "lethe_witness_up",
                "gauge",
                "Whether a witness cosigned when it was asked last.",
                are_up(witnesses, services.policy),
                ("witness",),
            ),
            _gauge(
                "lethe_witness_forks",
                "Witnesses that hold another tree signed by this log's key.",
                float(len(list(contradictions(session, services.ledger)))),
            ),
            _gauge(
                "lethe_witnessed_lag_entries",
                "Entries of the log that no quorum of witnesses cosigned yet.",
                float(unseen),
            ),
        ]


def _counter(name: str, meaning: str, value: float) -> Family:
    return Family(name, "counter", meaning, {(): value})


def _gauge(name: str, meaning: str, value: float) -> Family:
    return Family(name, "gauge", meaning, {(): value})


def _grouped(session: Session, query: Select[str, int]) -> dict[tuple[str, ...], float]:
    return {(key,): float(n) for key, n in session.connection().execute(query)}


def _zeros(values: Iterable[str]) -> dict[tuple[str, ...], float]:
    """Return 0 for each value of a label.

    Rules ask for what is new (`delta`), and a series that begins with its first event has
    nothing new. Jobs have no zeros: no rule compares their number with an earlier one.
    """
    return {(value,): 0.0 for value in values}


def _number(session: Session, query: Select[int]) -> float:
    return float(session.connection().execute(query).scalar_one() or 0)


@contextmanager
def _bounded(session: Session) -> Iterator[None]:
    """Cancel statements in the block that take longer than STATEMENT_S; the database raises."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        ms = int(STATEMENT_S * 1000)
        connection.execute(text(f"SET LOCAL statement_timeout = {ms}"))
        yield
        return
    driver = connection.connection.driver_connection
    assert driver is not None
    until = time.monotonic() + STATEMENT_S
    driver.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _families(families: list[Family]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for one in families:
        made = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
        family = made(one.name, one.meaning, labels=one.labels)
        for labels, value in sorted(one.samples.items()):
            family.add_metric(labels, value)
        yield family


def _own() -> "Iterator[Metric]":
    """Yield what this process counted since it started."""
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    for counter in COUNTERS:
        counted = CounterMetricFamily(counter.name, counter.meaning, labels=[counter.label])
        for label, value in sorted(counter.read().items()):
            counted.add_metric([label], value)
        yield counted
    for one in HISTOGRAMS:
        labels = [one.label] if one.label else []
        durations = HistogramMetricFamily(one.name, one.meaning, labels=labels)
        bounds = [*map(str, one.bounds), "+Inf"]
        for label, (counts, total) in sorted(one.read().items()):
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            durations.add_metric([label] if one.label else [], buckets, total)
        yield durations


class _Collector:
    def __init__(self, collect: "Callable[[], Iterator[Metric]]") -> None:
        self.collect = collect


def _registry(collect: "Callable[[], Iterator[Metric]]") -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry

    # Not the library's global one: its process collector reads /proc at each scrape, and
    # other libraries may register anything there.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(collect))
    return registry


def _text(collect: "Callable[[], Iterator[Metric]]") -> bytes:
    from prometheus_client import generate_latest

    written: bytes = generate_latest(_registry(collect))
    return written
