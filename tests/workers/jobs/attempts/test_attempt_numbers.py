"""An attempt has the same number in the log, the API, the command line and the certificate.

The escalation skips one step of the ladder, and the method of the next raises once before it
makes a model: neither leaves a gap.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import Session, col, select

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement, read_escalation
from lethe.cli.text.request import print_status
from lethe.client.answers import parse_status
from lethe.report.certificate import Sheet, certificate_html
from lethe.words.texts import texts
from models import RequestEvent
from tests.installation import Installation
from tests.lethe.cli.certificates import run
from tests.workers.jobs.attempts.ladders import HF_KCU, policy, view
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import networks
from workers.methods.network.natural import Natural

CHEAP = {"method": "natural", "settings": {"recovery": {"rounds": 1}}}
NATURAL = "natural(recovery.rounds=1)"
LOGGED = [  # the event, its number, and the method that it names
    ("executed", 1, "puf-special"),
    ("verified", 1, None),
    ("escalated", 2, NATURAL),  # hf-kcu was skipped: over the budget
    ("executed", 2, NATURAL),
    ("verified", 2, None),
    ("escalated", 3, "retrain"),
    ("executed", 3, "retrain"),
    ("verified", 3, None),
]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the numbers do not depend on it."""
    return sqlite_url


def test_an_attempt_has_one_number_everywhere(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    networks.register(installation, policy=policy(HF_KCU, CHEAP, budget="2"))
    planted = plant(monkeypatch, "yeom:auc", "yeom:auc")
    raising = raise_once(monkeypatch)
    on_the_way: list[Any] = []
    request_id = networks.submit(installation, networks.whole("c1"))
    planted.told = lambda: on_the_way.append(view(installation, request_id)["attempt"])
    installation.drain()
    assert raising == [True]
    # It raised and is tried again, under the number that it had.
    assert view(installation, request_id)["attempt"] == {
        **{"number": 2, "method": NATURAL, "ahead": ["retrain", "decision"]}
    }
    installation.recover()
    assert logged(installation, request_id) == LOGGED
    # The API, while it is judged and afterwards.
    assert [(one["number"], one["method"]) for one in on_the_way] == [
        (1, "puf-special"),
        (2, NATURAL),
    ]
    shown = view(installation, request_id)
    assert shown["attempt"] == {"number": 3, "method": "retrain", "ahead": []}
    assert numbers_of(shown["history"]) == AFTER_AN_ESCALATION
    case = installation.caller.operator("GET", f"/v1/cases/{shown['ref']}").json()
    assert numbers_of(case["timeline"]) == AFTER_AN_ESCALATION
    # The certificate.
    bundle = installation.caller.http.get(f"/v1/requests/{request_id}/certificate").content
    parameters = parse_statement(parse_bundle(bundle).payload).predicate.method.parameters
    assert parameters["attempt"] == "3"
    assert [(one.number, one.method) for one in read_escalation(parameters)] == [
        (1, "puf-special"),
        (None, "hf-kcu"),
        (2, NATURAL),
    ]
    # The command line.
    answer = installation.caller.http.get(f"/v1/requests/{request_id}")
    print_status(parse_status(answer), as_json=False)
    printed = capsys.readouterr().out
    assert re.search(r"^attempt +3: retrain$", printed, re.MULTILINE)
    found = re.findall(r"request\.(\w+), attempt (\d+), log entry", printed)
    assert [(name, int(number)) for name, number in found] == AFTER_AN_ESCALATION
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(bundle)
    lines = run("show", path).output.splitlines()
    labels = r"((?:no )?attempt(?: \d+)?) +([^:]+):"
    assert [m.groups() for line in lines if (m := re.match(labels, line))] == [
        ("attempt 1", "puf-special"),
        ("no attempt", "hf-kcu"),
        ("attempt 2", NATURAL),
        ("attempt 3", "retrain"),
    ]
    # The printed certificate.
    page = certificate_html(Sheet.of(bundle), texts("en"))
    rows = re.findall(r">(attempt \d+(?:, then)?)</t[hd]><td[^>]*>([^:<]+):", page)
    assert rows == [
        ("attempt 1", "puf-special"),
        ("attempt 1, then", "hf-kcu"),
        ("attempt 2", NATURAL),
        ("attempt 3", "retrain"),
    ]
    # Inside, a job counts the steps of the ladder, and may skip some.
    assert networks.jobs(installation)[-1].step == 4
    installation.check()


def raise_once(patch: pytest.MonkeyPatch) -> list[bool]:
    """Make `natural` raise at its first run; return a list with an item once it has."""
    honest, raised = Natural.run, list[bool]()

    def run(*arguments: Any) -> Any:
        if not raised:
            raised.append(True)
            raise RuntimeError
        return honest(*arguments)

    patch.setattr(Natural, "run", run)
    return raised


AFTER_AN_ESCALATION = [(event, number) for event, number, _ in LOGGED[2:]]


def logged(made: Installation, request_id: str) -> list[tuple[str, int, str | None]]:
    with Session(made.services.engine) as session:
        query = select(RequestEvent).where(RequestEvent.request_id == request_id)
        events = session.exec(query.order_by(col(RequestEvent.log_index))).all()
    return [
        (one.event.removeprefix("request."), one.payload["attempt"], one.payload.get("method"))
        for one in events
        if "attempt" in one.payload
    ]


def numbers_of(items: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [
        (one["event"].removeprefix("request."), int(one["detail"]["attempt"]))
        for one in items
        if "attempt" in one["detail"]
    ]
