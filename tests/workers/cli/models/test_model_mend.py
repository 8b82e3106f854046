"""`lethe model mend` waits until a worker has refitted the model, or says why it has not."""

import json
import re
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.errors import LetheError
from models import Model, Record
from tests.installation import Installation, install
from tests.small import MODEL
from workers.cli.models import command
from workers.jobs.execute import LOST


@pytest.fixture
def here(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """A quarantined model, a worker beside it, and commands that reach its service."""
    with install(settings) as made:
        made.ready()
        monkeypatch.setattr("workers.cli.service.connect", lambda url: made.client())
        with Session(made.services.engine) as session:
            model = session.exec(select(Model)).one()
            model.state, model.failure = "quarantined", "restored from a backup"
            session.commit()
        yield made


def run(at: Installation, *words: str) -> Result:
    """Run the command while a worker processes the queue."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            at.drain()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        return CliRunner().invoke(command.model, ["mend", "--url", "http://x", MODEL, *words])
    finally:
        ended.set()
        worker.join()


def test_it_says_which_version_is_in_service(here: Installation) -> None:
    answer = run(here)
    assert (answer.exit_code, answer.stdout) == (0, f"{MODEL} is ready at version 2\n")


def test_a_program_reads_the_model_itself(here: Installation) -> None:
    answer = run(here, "--json")
    shown = json.loads(answer.stdout)
    assert (shown["state"], shown["current_version"]) == ("ready", 2)


def test_it_says_why_the_model_stays_in_quarantine(here: Installation) -> None:
    with Session(here.services.engine) as session:
        session.connection().execute(delete(Record).where(col(Record.record) == "r9"))
        session.commit()
    answer = run(here)
    *waited, said = answer.stderr.splitlines()
    assert (answer.exit_code, said) == (1, f"Error: not mended: {LOST}")
    assert re.fullmatch(r"  small: fitting after \d+\.\d s", waited[0])


def test_a_model_in_service_is_left_alone(here: Installation) -> None:
    assert run(here).exit_code == 0
    again = run(here)
    assert isinstance(again.exception, LetheError)
    assert "the model is ready" in again.exception.detail
