"""The keys of log and issuer in environment variables: begun, rotated, missing and foreign."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.log import init
from app.cli.service_key import service_key
from app.hsm.errors import KeyAwayError
from app.ledger.key_environment import EnvironmentKey, parse_environment_key
from app.ledger.key_files import KeyPlaceError, kept_elsewhere
from app.ledger.log_files import LOG_KEY, NEXT_KEY
from app.ledger.startup import ISSUER_KEY, load_ledger
from app.settings import Settings
from lethe.certificates.trust_root import parse_trust_root
from lethe.signing.keys import Algorithm, generate_key, private_pem
from tests.app.cli.test_backup import point_at
from tests.app.keys.test_issuer import certified, verdict
from tests.app.keys.test_log_key import ids, signers, trust
from tests.installation import Installation, install

LOG, ISSUER = "LETHE_LOG_KEY", "LETHE_ISSUER_KEY"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: tables do not know where keys are."""
    return sqlite_url


def run(command: Any, *words: str) -> Result:
    return CliRunner().invoke(command, words)


@pytest.fixture
def supply(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a new key in a variable; the text is returned."""

    def put(name: str, algorithm: Algorithm) -> str:
        text = private_pem(generate_key(algorithm))
        monkeypatch.setenv(name, text)
        return text

    return put


@pytest.fixture
def made(
    settings: Settings, supply: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    point_at(settings, monkeypatch)
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    supply(LOG, "ed25519")
    supply(ISSUER, "ecdsa-p256-sha256")
    done = run(init, "--no-ml-dsa", "--log-key", f"env:{LOG}", "--issuer-key", f"env:{ISSUER}")
    assert done.exit_code == 0, done.output
    with install(settings) as installation:
        installation.ready()
        yield installation


def test_keys_of_the_environment_sign_and_are_replaced(made: Installation, supply: Any) -> None:
    settings, ledger = made.settings, made.services.ledger
    folder, old = settings.keys_dir, ledger.verifier
    assert kept_elsewhere(folder) == [ISSUER_KEY, LOG_KEY]
    assert (folder / LOG_KEY).read_text() == f"env:{LOG}\n"
    before = certified(made, "r1")

    refused = run(service_key, "rotate", "log")
    assert isinstance(refused.exception, KeyAwayError)
    assert "LETHE_LOG_KEY_2 is not set here" in refused.exception.detail
    assert not (folder / NEXT_KEY).exists()

    supply(f"{LOG}_2", "ed25519")
    supply(f"{ISSUER}_2", "ecdsa-p256-sha256")
    for command in (("rotate", "issuer"), ("rotate", "log")):
        done = run(service_key, *command)
        assert done.exit_code == 0, done.output
    assert (folder / NEXT_KEY).read_text() == f"env:{LOG}_2\n"
    within = certified(made, "r2")
    assert len(signers(ledger)) == 2
    done = run(service_key, "revoke", "log")
    assert f"still in the environment: destroy env:{LOG} there" in done.output
    after = certified(made, "r3")
    assert signers(ledger) == ids(ledger.verifier) != ids(old)
    root = parse_trust_root(trust(made), old)
    for data in (before, within, after):
        assert verdict(data, root).result == "PASS", verdict(data, root).failed
    made.check()


def test_out_of_the_environment_into_a_file(made: Installation) -> None:
    for role in ("log", "issuer"):
        done = run(service_key, "rotate", role, "--to", "file")
        assert done.exit_code == 0, done.output
    assert run(service_key, "revoke", "log").exit_code == 0
    assert kept_elsewhere(made.settings.keys_dir) == []
    made.check()


def test_no_key_follows_itself(made: Installation) -> None:
    refused = run(service_key, "rotate", "log", "--to", f"env:{LOG}")
    assert isinstance(refused.exception, KeyPlaceError)
    assert "give another --to" in refused.exception.detail


def test_a_process_without_the_key_does_not_start(
    made: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOG)
    with pytest.raises(Exception, match="LETHE_LOG_KEY is not set here"):
        load_ledger(made.settings, made.services.engine)


def test_another_key_in_the_variable_signs_nothing(made: Installation, supply: Any) -> None:
    text = supply(LOG, "ed25519")
    with pytest.raises(Exception) as refused:
        load_ledger(made.settings, made.services.engine)
    assert text.splitlines()[1] not in str(refused.value)


@pytest.mark.parametrize("name", ["PATH", "LETHE_MASTER", "LETHE_PKCS11_PIN", "LETHE_KEY=1"])
def test_other_variables_are_not_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name.partition("=")[0], private_pem(generate_key("ed25519")))
    with pytest.raises(KeyAwayError, match="is named LETHE_"):
        parse_environment_key(f"env:{name}")


def test_what_is_no_key_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG, "secret")
    with pytest.raises(KeyAwayError, match="not a private key in PEM") as refused:
        EnvironmentKey(LOG).load()
    assert "secret" not in refused.value.detail


def test_the_next_variable_has_the_next_number() -> None:
    second = EnvironmentKey(LOG).numbered(2)
    assert str(second) == "env:LETHE_LOG_KEY_2"
    assert second.numbered(3).name == "LETHE_LOG_KEY_3"
