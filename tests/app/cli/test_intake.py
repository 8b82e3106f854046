"""`lethe intake code` and the name that no token may have."""

import pytest
from click.testing import CliRunner
from sqlmodel import Session, select

from app.cli.intake import CheckedError, intake
from app.ledger.sequencer import Ledger
from app.problems import TokenNameError
from app.service.access.tokens import mint
from app.service.intake.codes import find, tag_of
from app.settings import Settings
from app.vault.master import MasterKey
from lethe.identity import IdentityError
from models import IntakeCode
from models.database.types import utcnow


def run(settings: Settings, *arguments: str, entered: str | None = None) -> str:
    """Run `lethe intake code` in the environment of an installation; return what it prints."""
    environment = {
        "LETHE_DATABASE_URL": settings.database_url,
        "LETHE_DATA_DIR": str(settings.data_dir),
        "LETHE_ORIGIN": settings.origin,
    }
    done = CliRunner().invoke(intake, ["code", *arguments], input=entered, env=environment)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_a_code_is_printed_once_and_neither_it_nor_the_identity_is_stored(
    settings: Settings, ledger: Ledger
) -> None:
    said = run(settings, "--kind", "customer", "--checked", "passport", entered="C 77\n")
    assert "C 77" not in said
    code = said.splitlines()[-1]
    assert len(code.split("-")) == 4
    master = MasterKey.load(settings)
    with Session(ledger.engine) as session:
        (row,) = session.exec(select(IntakeCode)).all()
        assert row.tag == tag_of(master, "customer", "c77", code.lower())
        assert row.checked == "passport"
        found = find(session, master, row.tag, utcnow())
        assert found is not None
        assert find(session, master, row.tag, row.expires_at) is None
        assert find(session, master, "0" * 64, utcnow()) is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--kind", "customer", "--value", "7", "--checked", ""), CheckedError),
        (("--kind", "customer", "--value", "7", "--checked", "x" * 301), CheckedError),
        (("--kind", "customer", "--value", "7", "--checked", "a\nb"), CheckedError),
        (("--kind", "No Kind", "--value", "7", "--checked", "x"), IdentityError),
        (("--kind", "customer", "--value", " ", "--checked", "x"), IdentityError),
    ],
)
def test_what_is_no_identity_gets_no_code(
    settings: Settings, ledger: Ledger, arguments: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        run(settings, *arguments)
    with Session(ledger.engine) as session:
        assert session.exec(select(IntakeCode)).all() == []


@pytest.mark.parametrize("name", ["intake", "Intake"])
def test_no_token_is_called_as_the_page(ledger: Ledger, name: str) -> None:
    with Session(ledger.engine) as session, pytest.raises(TokenNameError):
        mint(session, "operator", name)
