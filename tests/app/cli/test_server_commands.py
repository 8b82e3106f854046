"""`lethe migrate`, `lethe log init|fsck` and `lethe token` as processes see them."""

import base64
import hashlib
import json
import re
import stat
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import event, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, select

from app import steps
from app.cli.migrate import migrate
from app.cli.token import token
from app.ledger.entry_macs import new_entry_key
from app.ledger.log_files import ML_DSA_KEY, ML_DSA_VKEY, make_ml_dsa
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger, open_ledger
from app.settings import Settings
from app.vault.root import create_root
from lethe.cli.log import log
from lethe.errors import LetheError
from lethe.log.key_changes import LOG, ML_DSA
from lethe.log.note import read_note
from lethe.signing.keys import generate_key, private_pem
from migrations import HEAD
from models import BearerToken, WitnessStanding
from models.database.session import make_engine, opened_engine
from tests.app.ledger.samples import append, entry, tamper


@pytest.fixture
def environment(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """An environment with an empty database and a missing data directory."""
    monkeypatch.setenv("LETHE_DATABASE_URL", empty_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "fresh" / "data"))
    monkeypatch.setenv("LETHE_ORIGIN", "ledger.test/cli")
    return Settings()


def run(command: Any, *arguments: str) -> Result:
    """Run a command; like `lethe`, print the detail of a LetheError."""
    result = CliRunner().invoke(command, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, LetheError), result.exception
    return result


def lethe_log(*arguments: str) -> Result:
    return run(log, *arguments)


def error(result: Result) -> str:
    assert isinstance(result.exception, LetheError), result.output
    return result.exception.detail


def test_migrate_makes_a_private_directory_and_may_be_repeated(environment: Settings) -> None:
    for _ in range(2):
        result = run(migrate)
        assert result.exit_code == 0
        assert HEAD in result.output
    assert stat.S_IMODE(environment.data_dir.stat().st_mode) == 0o700


def test_migrate_names_a_database_that_is_not_there_without_its_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "data"))
    secret = uuid.uuid4().hex
    monkeypatch.setenv("LETHE_DATABASE_URL", f"postgresql://u:{secret}@127.0.0.1:1/x")
    result = run(migrate)
    assert "LETHE_DATABASE_URL" in error(result)
    assert secret not in result.output + error(result)


def test_migrate_grants_only_on_postgresql_and_only_to_roles_that_exist(
    environment: Settings,
) -> None:
    detail = error(run(migrate, "--grant", "absent-role"))
    assert "role" in detail


@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_migrate_grants_to_a_role(environment: Settings) -> None:
    engine = make_engine(environment.resolved_database_url)
    name = f"service-{uuid.uuid4().hex[:8]}"
    with engine.begin() as connection:
        connection.execute(text(f'CREATE ROLE "{name}"'))
    assert run(migrate, "--grant", name).exit_code == 0
    with engine.begin() as connection:
        may = "SELECT has_table_privilege(:role, 'log_entries', :verb)"
        granted = {
            verb: connection.execute(text(may), {"role": name, "verb": verb}).scalar()
            for verb in ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")
        }
        connection.execute(text(f'DROP OWNED BY "{name}"'))
        connection.execute(text(f'DROP ROLE "{name}"'))
    engine.dispose()
    assert [verb for verb, yes in granted.items() if yes] == ["SELECT", "INSERT"]


def test_nothing_works_before_migrate_and_each_command_says_so(environment: Settings) -> None:
    for result in (
        lethe_log("init"),
        run(token, "new", "--scope", "operator", "--name", "ann"),
        run(token, "list"),
    ):
        assert "lethe migrate" in error(result)


def test_init_begins_a_log_once_under_the_given_name(environment: Settings) -> None:
    run(migrate)
    result = lethe_log("init")
    assert result.exit_code == 0
    vkey = result.output.splitlines()[-1]
    assert vkey.startswith("ledger.test/cli+")
    assert (environment.keys_dir / "log.vkey").read_text() == vkey + "\n"
    assert "already" in error(lethe_log("init"))


def lines_of_the_first_checkpoint(environment: Settings) -> int:
    with opened_engine(environment.resolved_database_url) as engine:
        ledger = load_ledger(environment, engine)
        known = [*ledger.known(LOG), *ledger.known(ML_DSA)]
        return len(read_note(ledger.latest().note, known).verified)


def test_init_signs_with_ml_dsa_too_by_a_key_of_its_own(environment: Settings) -> None:
    """A key that lies there already would belong to whoever planted it."""
    run(migrate)
    environment.keys_dir.mkdir(mode=0o700)
    planted = make_ml_dsa(environment, ML_DSA_KEY).verifier.vkey
    assert "ML-DSA-44" in lethe_log("init").output
    assert (environment.keys_dir / ML_DSA_VKEY).read_text().strip() != planted
    assert lines_of_the_first_checkpoint(environment) == 2


def test_init_can_leave_the_second_key_out(environment: Settings) -> None:
    run(migrate)
    assert "ML-DSA" not in lethe_log("init", "--no-ml-dsa").output
    assert not (environment.keys_dir / ML_DSA_VKEY).exists()
    assert lines_of_the_first_checkpoint(environment) == 1


def test_init_names_the_keys_that_it_found(environment: Settings) -> None:
    run(migrate)
    environment.keys_dir.mkdir(mode=0o700)
    (environment.keys_dir / "log.key").write_text(private_pem(generate_key("ed25519")))
    (environment.keys_dir / "entries.key").write_bytes(new_entry_key())
    told = lethe_log("init")
    assert told.exit_code == 0, (told.output, told.exception)
    assert "and used: entries.key, log.key. If neither you nor" in told.output
    assert told.output.splitlines()[-1].startswith("ledger.test/cli+")


def test_init_finds_nothing_where_it_made_all(environment: Settings) -> None:
    run(migrate)
    assert "and used" not in lethe_log("init").output


def test_init_refuses_a_master_key_that_does_not_open_what_it_finds(
    environment: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier, killed run used another key."""
    run(migrate)
    environment.keys_dir.mkdir(mode=0o700)
    create_root(environment.keys_dir, b"a" * 32)
    monkeypatch.setenv("LETHE_MASTER_KEY", base64.b64encode(b"b" * 32).decode())
    said = error(lethe_log("init"))
    assert "LETHE_MASTER_KEY is not a master key that opens root.sealed" in said
    assert "if no log was begun with these keys, remove" in said
    assert not (environment.keys_dir / "log.key").exists()
    monkeypatch.setenv("LETHE_MASTER_KEY", base64.b64encode(b"a" * 32).decode())
    assert lethe_log("init").exit_code == 0


@pytest.mark.parametrize("step", ["begun", "stored"])
def test_a_killed_succession_is_repeated_while_the_log_is_empty(
    environment: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    run(migrate)
    lethe_log("init")
    old = environment.keys_dir
    url = "sqlite:///" + str(tmp_path / "next.db")
    monkeypatch.setenv("LETHE_DATABASE_URL", url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "next"))
    monkeypatch.setenv("LETHE_ORIGIN", "ledger.test/next")
    run(migrate)

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if step == "begun":
            patch.setattr(Ledger, "transact", die)
        else:
            steps.install(lambda reached: die() if reached == "ledger.committed" else None)
        try:
            with pytest.raises(Killed):
                CliRunner().invoke(
                    log, ["init", "--succeeds", str(old)], catch_exceptions=False
                )
        finally:
            steps.install(None)
    again = lethe_log("init", "--succeeds", str(old))
    if step == "begun":
        assert again.exit_code == 0, (again.output, again.exception)
        assert "it succeeds the log ledger.test/cli" in again.output
        again = lethe_log("init", "--succeeds", str(old))
    assert "already holds a log" in error(again)
    assert lethe_log("fsck").output.startswith("PASS  1 entries")


def test_init_takes_another_name(environment: Settings) -> None:
    run(migrate)
    result = lethe_log("init", "--origin", "other.test/log")
    assert result.output.splitlines()[-1].startswith("other.test/log+")


def test_fsck_prints_its_verdict_and_findings_and_exits_with_it(environment: Settings) -> None:
    run(migrate)
    assert "lethe log init" in error(lethe_log("fsck"))
    lethe_log("init")
    engine = make_engine(environment.resolved_database_url)
    ledger = open_ledger(environment, engine)
    append(ledger, entry(0), entry(1))
    result = lethe_log("fsck")
    assert (result.exit_code, result.output) == (0, "PASS  2 entries, 2 checkpoints\n")
    tamper(engine, "DELETE FROM log_nodes WHERE level = 1")
    result = lethe_log("fsck")
    engine.dispose()
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "FAIL  2 entries, 2 checkpoints",
        "      node: node 0 of level 1 is missing (entry 1)",
    ]


def test_who_wrote_to_the_database_cannot_act_on_the_terminal(environment: Settings) -> None:
    run(migrate)
    lethe_log("init")
    engine = make_engine(environment.resolved_database_url)
    ledger = open_ledger(environment, engine)
    append(ledger, entry(0), entry(1))
    tamper(engine, "UPDATE log_nodes SET hash = (SELECT hash FROM log_nodes WHERE level = 0 AND \"index\" = 0) WHERE level = 1")  # fmt: skip
    name = "w\r\x9b2K\u202e"
    with Session(engine) as session:
        session.add(WitnessStanding(witness=name, evidence=ledger.latest().note))
        session.add(BearerToken(digest="0" * 64, scope="officer", name=name))
        session.commit()
    told = lethe_log("fsck").output, run(token, "list").output
    engine.dispose()
    assert "      witness: w\ufffd\ufffd2K\ufffd " in told[0]
    assert told[1].startswith("w\ufffd\ufffd2K\ufffd\tofficer\t")
    assert not any(one in text for text in told for one in "\r\x9b\u202e")


def test_fsck_speaks_json(environment: Settings) -> None:
    run(migrate)
    lethe_log("init")
    assert json.loads(lethe_log("fsck", "--json").output) == {
        "result": "PASS",
        "size": 0,
        "before": 0,
        "unread": "",
        "checkpoints": 1,
        "macs": "checked",
        "files": "checked",
        "ended": 0,
        "findings": [],
        "unlisted": {},
    }


def test_fsck_without_the_master_key_checks_the_log_and_says_so(environment: Settings) -> None:
    run(migrate)
    lethe_log("init")
    (environment.keys_dir / "master.key").unlink()
    result = lethe_log("fsck")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "PASS  0 entries, 1 checkpoints",
        "      requests, certificates, models and stored files: "
        "not checked: the master key is not here",
    ]


def test_a_token_is_shown_once_and_kept_as_a_hash(environment: Settings) -> None:
    run(migrate)
    lethe_log("init")
    shown = run(token, "new", "--scope", "auditor", "--name", "Ann Auditor").output.strip()
    assert re.fullmatch(r"lethe_auditor_[A-Za-z0-9_-]{43}", shown)
    engine = make_engine(environment.resolved_database_url)
    with Session(engine) as session:
        row = session.get_one(BearerToken, hashlib.sha256(shown.encode()).hexdigest())
        assert (row.scope, row.name, row.revoked_at) == ("auditor", "Ann Auditor", None)
    engine.dispose()
    listed = run(token, "list").output
    assert "Ann Auditor\tauditor\t" in listed
    assert listed.endswith("\tlive\n")
    assert shown[-43:] not in listed


def test_a_revoked_token_stays_listed_and_frees_its_name(environment: Settings) -> None:
    run(migrate)
    lethe_log("init")
    new = ("new", "--scope", "operator", "--name", "ann")
    first = run(token, *new).output
    assert "active token" in error(run(token, *new))
    assert run(token, "revoke", "ann").exit_code == 0
    assert "no active token" in error(run(token, "revoke", "ann"))
    assert run(token, *new).output != first
    states = [line.split("\t")[3].split()[0] for line in run(token, "list").output.splitlines()]
    assert sorted(states) == ["live", "revoked"]
    told = [json.loads(line) for line in run(token, "list", "--json").output.splitlines()]
    assert [(one["name"], one["state"].split()[0]) for one in told] == [
        ("ann", state) for state in states
    ]
    other = ("new", "--scope", "officer", "--name", "bob", "--json")
    made = json.loads(run(token, *other).output)
    assert made.pop("token").startswith("lethe_officer_")
    assert made == {"name": "bob", "scope": "officer"}
    gone = json.loads(run(token, "revoke", "bob", "--json").output)
    assert gone == {"name": "bob", "revoked": True}


@pytest.mark.parametrize("name", ["", "x" * 81, "two\nlines", "a\tb"])
def test_a_name_that_a_list_cannot_show_is_refused(environment: Settings, name: str) -> None:
    run(migrate)
    lethe_log("init")
    assert "printable" in error(run(token, "new", "--scope", "operator", "--name", name))


def test_scopes_are_a_closed_set(environment: Settings) -> None:
    assert run(token, "new", "--scope", "root", "--name", "x").exit_code == 2


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_command_that_stands_still_loses_the_lock(
    ledger: Ledger, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a stopped `lethe token new` keeps the service from writing until it goes on."""
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    monkeypatch.setenv("LETHE_STALL_SECONDS", "2")
    began: list[int] = []
    with opened_engine(settings.resolved_database_url, 2) as engine:
        other = load_ledger(settings, engine)

        def stands_still(_: object) -> None:
            if not began:
                began.append(1)
                append(other, entry(0))

        event.listen(Engine, "commit", stands_still)
        try:
            result = CliRunner().invoke(token, ["new", "--scope", "operator", "--name", "ann"])
        finally:
            event.remove(Engine, "commit", stands_still)
        assert isinstance(result.exception, DBAPIError), result.exception
        assert other.latest().size == 1
        with Session(engine) as session:
            assert session.exec(select(BearerToken)).all() == []
