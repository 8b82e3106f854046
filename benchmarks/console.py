"""Time of the console's pages with many open cases.

    python -m benchmarks.console [--quick] [--json FILE]

An embedded installation (SQLite) with one certified erasure, and with 100,000 open cases of one
request each that wait for review; --quick makes 2,000. The application runs in this process, so
that a page's processor time is known beside its wall-clock time: the former does not depend on
what else the machine does. Each figure is the median of its runs. With --extended the deadline
of every request was extended: the requests are then due later than their cases.
"""

import json
import statistics
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from sqlalchemy import insert, text
from sqlmodel import Session, select
from starlette.testclient import TestClient

from app.main import create_app
from app.service.context import Services, open_services
from app.settings import Settings
from benchmarks.service.installation import Installation
from models import Case, ErasureRequest
from models.database.types import utcnow

CASES, QUICK_CASES = 100_000, 2_000
RUNS = 7
EXPORT = "queue, JSON of all"  # once: it takes seconds
SEARCH, REQUESTER = "queue, one requester", "benchmark"  # who opened all cases
AT_ONCE = 5_000  # rows of one INSERT
MODEL = "model"
EXTENSION = timedelta(days=60)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="2,000 cases")
@click.option("--extended", is_flag=True, help="all deadlines were extended")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False))
def main(quick: bool, extended: bool, file: Path | None) -> None:
    """Run the benchmark."""
    count = QUICK_CASES if quick else CASES
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), count, EXTENSION if extended else timedelta())
    if file is not None:
        pages = {name: {"wall_s": a, "cpu_s": b} for name, (a, b) in found.items()}
        report = {"cases": count, "extended": extended, "pages": pages}
        file.write_text(json.dumps(report, indent=2) + "\n")


def measure(folder: Path, count: int, extension: timedelta) -> dict[str, tuple[float, float]]:
    """Return wall-clock and processor seconds of each page by its name."""
    installation = Installation(folder, {"LETHE_PUBLIC_URL": ""})  # its own address
    certified = _certify(installation)
    environment = {
        name.removeprefix("LETHE_").lower(): value
        for name, value in installation.environment.items()
        if name.startswith("LETHE_")
    }
    services = open_services(Settings.model_validate(environment))
    populate(services, certified, count, extension)
    with TestClient(create_app(services)) as http:
        sign_in(http, installation.token)
        first = http.get("/console")
        after = first.text.partition("/console?after=")[2].partition('"')[0]
        pages = {
            "queue": "/console",
            "queue, second page": f"/console?after={after}",
            "queue, one state": "/console?state=awaiting-review",
            "queue, answered": "/console?state=answered",
            "queue, held": "/console?held=true",
            "queue, one model": f"/console?model={MODEL}",
            "queue, overdue": "/console?overdue=true",
            "queue, 30 days": "/console?due_within=30",
            SEARCH: "/console/search",
            "a case": f"/console/cases/{certified}",
            "a certificate": f"/console/certificates/{certified}",
            "models": "/console/models",
            "a model": f"/console/models/{MODEL}",
            "log": "/console/log",
            "health": "/console/health",
            EXPORT: "/console/queue.json",
        }
        found = {}
        click.echo(f"{count} open cases; milliseconds: wall clock, processor")
        for name, address in pages.items():
            runs = 1 if name == EXPORT else RUNS
            found[name] = wall, processor = _timed(http, address, runs, asks=name == SEARCH)
            click.echo(f"{name:24} {1e3 * wall:9.1f} {1e3 * processor:9.1f}")
        return found


def _certify(installation: Installation) -> str:
    """Return the public reference of a request that was certified."""
    with installation.serving(workers=1) as (port,):
        (record, *_) = installation.register(port, MODEL, 200)
        with installation.client(port) as client:
            request = client.submit_erasure(MODEL, records=[record])
            while client.status(request.id).certificate is None:
                time.sleep(0.05)
            (summary,) = client.requests(state="certified")
    return str(summary.ref)


def populate(services: Services, like: str, count: int, extension: timedelta) -> None:
    """Add open cases, each with a request like one that exists, due over the next 30 days."""
    with Session(services.engine) as session:
        request = session.exec(select(ErasureRequest).where(ErasureRequest.ref == like)).one()
        now, like_it = utcnow(), request.model_dump()
        for start in range(0, count, AT_ONCE):
            cases: list[dict[str, Any]] = []
            requests: list[dict[str, Any]] = []
            for number in range(start, min(start + AT_ONCE, count)):
                due = now + timedelta(days=30) * (number + 1) / count
                case: dict[str, Any] = {
                    "ref": str(uuid.uuid4()),
                    "opened_by": REQUESTER,
                    "regulation": "gdpr",
                    "key": None,
                    "parts": [],
                    "received_at": now,
                    "due_at": due,
                }
                cases.append(case)
                requests.append(
                    like_it
                    | {
                        "id": str(uuid.uuid4()),
                        "ref": str(uuid.uuid4()),
                        "case_ref": case["ref"],
                        "keyid": None,  # of cases, no key signed
                        "idempotency_key": None,
                        "state": "awaiting-review",
                        "due_at": due + extension,
                    }
                )
            session.connection().execute(insert(Case), cases)
            session.connection().execute(insert(ErasureRequest), requests)
        session.commit()
        session.connection().execute(text("ANALYZE"))
        session.commit()


def sign_in(http: TestClient, token: str) -> None:
    """Sign a browser in with a bearer token."""
    form = {"form_token": _form_token(http, "/console/sign-in"), "token": token}
    done = http.post("/console/sign-in", data=form)
    assert done.url.path == "/console", done.text


def _form_token(http: TestClient, address: str) -> str:
    page = http.get(address).text.partition("<main")[2]  # above it is the form to sign out
    return page.partition('name="form_token" value="')[2].partition('"')[0]


def _timed(
    http: TestClient, address: str, runs: int, *, asks: bool = False
) -> tuple[float, float]:
    """Return the medians of wall-clock and processor seconds of a page."""
    wall, processor = [], []
    for _ in range(runs):
        # A form is taken once.
        token = _form_token(http, address) if asks else ""
        form = {"form_token": token, "requester": REQUESTER}
        began, spent = time.perf_counter(), time.process_time()
        answer = http.post(address, data=form) if asks else http.get(address)
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - spent)
        assert answer.status_code == 200, f"{address}: {answer.status_code}"
    return statistics.median(wall), statistics.median(processor)


if __name__ == "__main__":
    main()
