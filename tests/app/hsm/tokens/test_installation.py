"""A service whose log's and issuer's keys are in a token: from `log init` to a certificate."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlmodel import Session

from app.cli.backup import backup, restore
from app.cli.doctor import doctor
from app.cli.log import init
from app.cli.service_key import service_key
from app.hsm import sessions
from app.hsm.errors import HsmError
from app.hsm.token_keys import generate
from app.hsm.uri import parse_uri
from app.keys.issuer import signing_issuer
from app.keys.rotate import rotate_issuer
from app.keys.trust_root import trust_root
from app.ledger.entry_macs import KeyMissingError
from app.ledger.guard import ForkedError
from app.ledger.key_files import KeyPlaceError
from app.ledger.log_files import LOG_KEY, load_signer
from app.ledger.receipt import UnpublishedError
from app.ledger.startup import ISSUER_KEY, create_keys, init_log, load_ledger
from app.settings import Settings
from lethe.certificates.keys import read_issuer, read_log_key
from lethe.certificates.verify import verify_certificate
from models.database.session import make_engine
from tests.app.api.test_requests import problem
from tests.app.cli.test_backup import point_at
from tests.app.hsm.tokens.softhsm import PIN, SoftHsm
from tests.app.keys.test_issuer import certified
from tests.app.ledger.samples import append, entry
from tests.installation import Installation, install

LOG, ISSUER = "pkcs11:token=lethe;object=log", "pkcs11:token=lethe;object=issuer"


def run(command: Any, *words: str) -> Result:
    done = CliRunner().invoke(command, words)
    assert PIN not in done.output
    return done


@pytest.fixture
def made(settings: Settings) -> Iterator[Installation]:
    """A running installation whose keys are in the token, and whose small model is fitted."""
    done = run(init, "--log-key", LOG, "--issuer-key", ISSUER)
    assert done.exit_code == 0, done.output
    with install(settings) as installation:
        installation.ready()
        yield installation


def failing(made: Installation) -> str:
    """Return which parts /readyz names, and why."""
    answer = made.caller.http.get("/readyz")
    assert answer.status_code == 503, answer.text
    assert PIN not in answer.text
    return f"{answer.json()['failed']}: {made.services.seen['keys'][1]}"


def test_from_log_init_to_a_certificate(made: Installation) -> None:
    keys = made.settings.keys_dir
    assert (keys / LOG_KEY).read_text() == f"{LOG}\n"
    assert (keys / ISSUER_KEY).read_text() == f"{ISSUER}\n"
    data = certified(made, "r1")
    log, issuer = read_log_key(keys / "log.vkey"), read_issuer(keys / "issuer.pem")
    assert verify_certificate(data, log=log, issuer=issuer).result == "PASS"
    assert made.caller.http.get("/readyz").status_code == 200
    assert trust_root(made.settings, made.services.ledger)
    made.check()
    listed = run(service_key, "list")
    assert listed.exit_code == 0, listed.output
    assert log.key_id.hex() in listed.output
    assert "ok           keys" in run(doctor).output


def test_init_keeps_keys_and_names_what_is_wrong(settings: Settings, hsm: SoftHsm) -> None:
    engine = make_engine(settings.resolved_database_url)
    hsm.take_away()
    with pytest.raises(HsmError, match="there is no token lethe"):
        init_log(settings, engine, log_at=parse_uri(LOG))
    hsm.bring_back()
    first = init_log(settings, engine, log_at=parse_uri(LOG))
    assert load_signer(settings).verifier == first.verifier
    assert b"PRIVATE KEY" in (settings.keys_dir / ISSUER_KEY).read_bytes()
    with pytest.raises(KeyPlaceError, match="another key already"):
        create_keys(settings, parse_uri(ISSUER))
    engine.dispose()


def test_while_the_token_is_away_nothing_is_lost(made: Installation, hsm: SoftHsm) -> None:
    ledger = made.services.ledger
    before = ledger.latest().size
    hsm.take_away()
    sessions.end(made.settings)
    answer = made.caller.erase_records("r1", headers={"Idempotency-Key": "once"})
    problem(answer, 503, "log-unpublished")
    assert "keys" in (why := failing(made))
    assert "there is no token lethe" in why
    assert "there is no token lethe" in run(doctor).output
    with Session(ledger.engine) as session:
        assert ledger.size(session) > before  # it is stored, and not signed
    assert ledger.latest().size == before
    with suppress(UnpublishedError):  # a worker waits for the token too
        made.drain()
    hsm.bring_back()
    again = made.caller.erase_records("r1", headers={"Idempotency-Key": "once"})
    assert again.status_code == 202, again.text
    made.recover()
    request = again.json()["id"]
    assert made.caller.http.get(f"/v1/requests/{request}").json()["state"] == "certified"
    assert made.caller.http.get("/readyz").status_code == 200
    made.check()


def test_certificates_wait_for_the_issuers_token(settings: Settings, hsm: SoftHsm) -> None:
    hsm.add_token("certificates")
    apart = "pkcs11:token=certificates;object=issuer"
    assert run(init, "--issuer-key", apart).exit_code == 0
    with install(settings) as made:
        made.ready()
        hsm.take_away()
        sessions.end(settings)
        answer = made.caller.erase_records("r1")
        assert answer.status_code == 202, answer.text
        made.drain()
        state = made.caller.http.get(f"/v1/requests/{answer.json()['id']}").json()["state"]
        assert state == "verifying"
        assert "there is no token certificates" in failing(made)
        hsm.bring_back()
        made.recover()
        state = made.caller.http.get(f"/v1/requests/{answer.json()['id']}").json()["state"]
        assert state == "certified"
        made.check()


def test_a_key_that_the_log_does_not_name_signs_nothing(made: Installation) -> None:
    settings, ledger = made.settings, made.services.ledger
    rotate_issuer(settings, ledger)
    (settings.keys_dir / ISSUER_KEY).write_text(f"{ISSUER}\n")  # in the token as before
    with pytest.raises(KeyMissingError, match="not the key issuer-2"):
        signing_issuer(settings, ledger)
    rotate_issuer(settings, ledger)
    assert signing_issuer(settings, ledger)[1] == "issuer-3"
    # Another key of the token in the place of the log's: a process at work does not take it,
    # and one that starts refuses the log.
    run(service_key, "rotate", "log")
    (settings.keys_dir / "log.next.vkey").unlink()
    own = ledger.verifier
    (settings.keys_dir / LOG_KEY).write_text("pkcs11:token=lethe;object=log-2\n")
    append(ledger, entry(0))
    assert ledger.verifier == own
    assert "differs from the one loaded at the start" in failing(made)


def test_another_log_key_of_the_token_is_refused_at_the_start(made: Installation) -> None:
    settings = made.settings
    place = parse_uri("pkcs11:token=lethe;object=stranger")
    generate(settings, place, "ed25519")
    (settings.keys_dir / LOG_KEY).write_text(str(place))
    with pytest.raises(ForkedError, match="another key"):
        load_ledger(settings, made.services.engine)


def test_a_backup_names_the_keys_and_restores_with_the_token(
    made: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified(made, "r1")
    copy, keys = tmp_path / "backup", tmp_path / "keys"
    told = run(backup, "new", str(copy), "--keys", str(keys))
    assert told.exit_code == 0, told.output
    assert "not included: the private keys that issuer.key and log.key name" in told.output
    assert (keys / LOG_KEY).read_text() == f"{LOG}\n"
    new = made.settings.model_copy(
        update={
            "data_dir": tmp_path / "new",
            "database_url": f"sqlite:///{tmp_path / 'new.db'}",
        }
    )
    shutil.copytree(made.settings.keys_dir, new.keys_dir)  # these were not lost
    point_at(new, monkeypatch)
    restored = run(restore, str(copy))
    assert restored.exit_code == 0, restored.output
    with install(new) as again:
        again.caller.key = made.caller.key
        certified(again, "r2")
        again.check()
