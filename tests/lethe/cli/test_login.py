"""`lethe login`: what is saved serves later commands, for its own service only."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lethe.cli import saved
from lethe.cli.main import lethe
from lethe.signing.keys import fingerprint, private_pem, public_of
from tests.lethe.client.service import SIGNER, TOKEN, FakeService, serve
from tests.lethe.signing.signer import ED25519


@pytest.fixture
def service() -> Iterator[FakeService]:
    made = FakeService()
    made.keys = {fingerprint(ED25519): public_of(ED25519)}
    with serve(made):
        yield made


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LETHE_URL", "LETHE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LETHE_CONFIG", str(tmp_path / "settings" / "login.toml"))
    return tmp_path / "settings" / "login.toml"


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(lethe, arguments, input=given)


def test_commands_need_no_options_after_it(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "me.pem").write_text(private_pem(ED25519))
    (tmp_path / "log.vkey").write_text(SIGNER.verifier.vkey)
    files = ("--key", str(tmp_path / "me.pem"), "--log-key", str(tmp_path / "log.vkey"))
    done = run("login", service.base, *files, given=f"{TOKEN}\n")
    assert done.exit_code == 0, done.output
    assert TOKEN not in done.output
    sent = run("request", "submit", "--model", "digits", "--record", "r1")
    assert sent.exit_code == 0, sent.output
    assert "inclusion verified" in sent.stdout
    (stored,) = service.requests.values()
    listed = run("request", "list")
    assert listed.stdout.splitlines() == [
        f"{'REQUEST':{len(stored.id)}}  MODEL   STATE     RECEIVED    DUE",
        f"{stored.id}  digits  received  2026-12-02  2027-01-02",
    ]
    assert run("request", "list", "--state", "failed").stdout == ""
    service.shows_ids = False
    assert json.loads(run("request", "list", "--json").stdout)["ref"] == stored.ref
    assert run("request", "list").stdout.splitlines()[1].startswith(stored.ref)


def test_a_given_key_keeps_the_logs_key_of_the_login(
    service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "me.pem").write_text(private_pem(ED25519))
    (tmp_path / "log.vkey").write_text(SIGNER.verifier.vkey)
    key = ("--key", str(tmp_path / "me.pem"))
    saved_key = ("--log-key", str(tmp_path / "log.vkey"))
    done = run("login", service.base, *key, *saved_key, given=f"{TOKEN}\n")
    assert done.exit_code == 0, done.output
    sent = run("request", "submit", "--model", "digits", "--record", "r1", *key)
    assert sent.exit_code == 0, sent.output
    assert "inclusion verified" in sent.stdout


def test_registered_keys_are_listed(service: FakeService, tmp_path: Path) -> None:
    assert run("login", service.base, given=TOKEN).exit_code == 0
    assert run("key", "list").stdout == ""
    made = run("key", "new", "--out", f"{tmp_path}/")
    keyid = made.stdout.strip()
    public = str(tmp_path / f"{keyid}.pub.pem")
    assert run("key", "register", "--public-key", public, "--client", "c1").exit_code == 0
    listed = run("key", "list")
    assert listed.exit_code == 0, repr(listed.exception)
    heads, row = listed.stdout.splitlines()
    names = ["KEYID", "ROLE", "BOUND", "TO", "REGISTERED", "BY", "CONFIRMED", "BY", "REVOKED"]
    assert heads.split() == names
    assert row.split() == [keyid, "requester", "client", "c1", "2026-12-02", "ops"]
    confirmed = run("key", "confirm", keyid, "--public-key", public)
    assert confirmed.stdout == f"confirmed {keyid} of client c1, which ops registered\n"
    assert run("key", "list").stdout.splitlines()[1].split()[-1] == "dpo"
    run("key", "new", "--out", f"{tmp_path}/other")
    another = run("key", "confirm", keyid, "--public-key", f"{tmp_path}/other.pub.pem")
    assert another.exit_code != 0
    assert json.loads(run("key", "list", "--json").stdout)["keyid"] == keyid


def test_another_service_gets_neither_token_nor_signature(
    service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "me.pem").write_text(private_pem(ED25519))
    login = ("login", service.base, "--key", str(tmp_path / "me.pem"))
    assert run(*login, given=TOKEN).exit_code == 0
    other = FakeService()
    with serve(other):
        url = ("--url", other.base)
        assert run("request", "list", *url).exit_code == 2
        submitted = run("request", "submit", *url, "--model", "digits", "--record", "r1")
        assert submitted.exit_code == 2
        run("model", "list", *url)
    assert not any(
        name in seen.headers for seen in other.seen for name in ("authorization", "signature")
    )


def test_what_is_given_comes_first(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved.write(saved.Login("http://127.0.0.1:9", token="lethe_operator_old"))
    monkeypatch.setenv("LETHE_URL", service.base)
    monkeypatch.setenv("LETHE_TOKEN", TOKEN)
    assert run("request", "list").exit_code == 0
    assert service.seen[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_wrong_token_is_not_saved(service: FakeService, file: Path) -> None:
    refused = run("login", service.base, given="lethe_operator_wrong\n")
    assert refused.exit_code == 1
    assert "nothing was saved" in refused.output
    assert not file.exists()
    assert run("login", service.base, given="\n").exit_code == 2  # nothing to save
    assert not file.exists()


def test_only_the_owner_reads_it(service: FakeService, file: Path) -> None:
    before = os.umask(0)
    try:
        assert run("login", service.base, given=TOKEN).exit_code == 0
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    refused = run("request", "list")
    assert isinstance(refused.exception, saved.LoginError)
    assert "chmod 600" in str(refused.exception)


@pytest.mark.parametrize(
    "text", ["", "url = 1", "url = 'x'\nother = 'y'", "not toml", "url = 'x'\n[token]\n"]
)
def test_a_file_that_is_no_login_is_named(text: str, file: Path) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    assert "run `lethe login` again" in str(run("request", "list").exception)


def test_logout_deletes_it(service: FakeService, file: Path) -> None:
    assert run("login", service.base, given=TOKEN).exit_code == 0
    assert run("logout").stdout == "deleted\n"
    assert not file.exists()
    assert run("logout").stdout == "nothing was saved\n"
    assert run("request", "list").exit_code == 2


def test_odd_characters_survive(file: Path) -> None:
    odd = saved.Login("https://a.example", token='"\\\n\x7f€', key="/tmp/ä ö.pem")
    saved.write(odd)
    assert saved.read() == odd
    assert file.exists()


@pytest.mark.parametrize("name", ["\N{GRINNING FACE}", "a\x7fb"])
def test_a_key_of_any_text_can_be_saved(name: str, file: Path) -> None:
    login = saved.Login("https://lethe.example", key=f"/home/{name}/me.pem")
    saved.write(login)
    assert saved.read() == login
    with pytest.raises(saved.LoginError, match="nothing was saved"):
        saved.write(saved.Login("https://lethe.example", key=os.fsdecode(b"/home/\xff")))
    assert saved.read() == login
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(shell: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0, script.output
    assert "_LETHE_COMPLETE" in script.stdout


def test_completion_imports_no_command() -> None:
    program = (
        "import sys; from lethe.cli.main import lethe\n"
        "try: lethe(prog_name='lethe')\n"
        "finally: print([name for name in sys.modules if name.startswith('lethe.cli.')])"
    )
    words = {"_LETHE_COMPLETE": "bash_complete", "COMP_WORDS": "lethe re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
    )
    assert "plain,request" in done.stdout
    assert "lethe.cli.request" not in done.stdout
