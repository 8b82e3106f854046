"""`lethe intake code`, and the reserved token name."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlmodel import Session, select

from app.cli.intake import CheckedError, intake
from app.ledger.sequencer import Ledger
from app.problems import ForbiddenError, TokenNameError, UnauthorizedError
from app.service.access.tokens import mint, revoke_named
from app.service.intake.codes import find, tag_of
from app.settings import Settings
from app.vault.master import RootSecret
from lethe.errors import LetheError
from lethe.identity import IdentityError
from models import IntakeCode
from models.database.types import utcnow

CUSTOMER = ("--kind", "customer", "--checked", "passport")


def minted(ledger: Ledger, scope: str = "operator") -> str:
    """Return a token named desk."""
    with Session(ledger.engine) as session:
        token = mint(session, scope, "desk")
        session.commit()
    return token


def run(
    settings: Settings,
    *arguments: str,
    entered: str | None = None,
    token: str | None = None,
    config: str = "nowhere",
) -> str:
    """Run `lethe intake code` in an installation's environment; return its output."""
    environment = {
        "LETHE_DATABASE_URL": settings.database_url,
        "LETHE_DATA_DIR": str(settings.data_dir),
        "LETHE_ORIGIN": settings.origin,
        "LETHE_TOKEN": token,
        "LETHE_CONFIG": config,
    }
    done = CliRunner().invoke(intake, ["code", *arguments], input=entered, env=environment)
    if isinstance(done.exception, LetheError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_code_is_printed_once_and_neither_it_nor_the_identity_is_stored(
    settings: Settings, ledger: Ledger
) -> None:
    said = run(settings, *CUSTOMER, entered="C 77\n", token=minted(ledger, "officer"))
    assert "C 77" not in said
    code = said.splitlines()[-1]
    assert len(code.split("-")) == 4
    root_secret = RootSecret.load(settings)
    with Session(ledger.engine) as session:
        (row,) = session.exec(select(IntakeCode)).all()
        assert row.tag == tag_of(root_secret, "customer", "c77", code.lower())
        assert (row.checked, row.issued_by) == ("passport", "desk")
        found = find(session, root_secret, row.tag, utcnow())
        assert found is not None
        assert find(session, root_secret, row.tag, row.expires_at) is None
        assert find(session, root_secret, "0" * 64, utcnow()) is None


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
        run(settings, *arguments, token=minted(ledger))
    with Session(ledger.engine) as session:
        assert session.exec(select(IntakeCode)).all() == []


def test_nobody_issues_a_code_without_a_token_of_their_own(
    settings: Settings, ledger: Ledger, tmp_path: Path
) -> None:
    arguments = (*CUSTOMER, "--value", "7")
    with pytest.raises(UnauthorizedError):
        run(settings, *arguments, token="lethe_operator_x")
    with pytest.raises(ForbiddenError):
        run(settings, *arguments, token=minted(ledger, "auditor"))
    with pytest.raises(AssertionError, match="a token is needed"):
        run(settings, *arguments, token="")
    with Session(ledger.engine) as session:
        revoke_named(session, "desk")
        session.commit()
    login = tmp_path / "login.toml"
    login.write_text(f'url = "https://x.example"\ntoken = "{minted(ledger)}"\n')
    login.chmod(0o600)
    run(settings, *arguments, config=str(login))
    with Session(ledger.engine) as session:
        assert [row.issued_by for row in session.exec(select(IntakeCode))] == ["desk"]


@pytest.mark.parametrize("name", ["intake", "Intake"])
def test_no_token_is_called_as_the_page(ledger: Ledger, name: str) -> None:
    with Session(ledger.engine) as session, pytest.raises(TokenNameError):
        mint(session, "operator", name)


def test_a_kind_that_the_page_does_not_ask_for_is_pointed_out(
    settings: Settings, ledger: Ledger
) -> None:
    token, identity = minted(ledger), ("--checked", "passport", "--value", "7")
    environment = {
        "LETHE_DATABASE_URL": settings.database_url,
        "LETHE_DATA_DIR": str(settings.data_dir),
        "LETHE_ORIGIN": settings.origin,
        "LETHE_TOKEN": token,
        "LETHE_INTAKE_KINDS": "customer,phone",
    }
    for kind, said in (("customer", False), ("email", False), ("costumer", True)):
        words = ["code", "--kind", kind, *identity]
        done = CliRunner().invoke(intake, words, env=environment)
        assert done.exit_code == 0, done.output
        assert ("the page does not ask for costumer: correct --kind" in done.stderr) == said
        assert ("LETHE_INTAKE_KINDS=customer,phone,costumer" in done.stderr) == said
