"""`lethe round` before it calls anybody."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lethe.errors import LetheError
from lethe.signing.keys import generate_key, load_public_key, private_pem, public_pem
from workers.cli.round import round_


@pytest.fixture
def files(tmp_path: Path) -> Path:
    key = generate_key("ed25519")
    (tmp_path / "a.pem").write_text(private_pem(key))
    (tmp_path / "a.pub").write_text(public_pem(key))
    (tmp_path / "other.pub").write_text(public_pem(generate_key("ecdsa-p256-sha256")))
    np.savez(
        tmp_path / "a.npz",
        features=np.zeros((2, 3)),
        labels=np.zeros(2, dtype=np.int64),
        clients=np.array(["a", "a"]),
        records=np.array(["r1", "r2"]),
    )
    return tmp_path


def test_a_roster_is_made_of_public_keys(files: Path) -> None:
    made = CliRunner().invoke(
        round_, ["roster", f"a={files}/a.pub", f"b={files}/other.pub"], catch_exceptions=False
    )
    assert made.exit_code == 0
    roster = json.loads(made.stdout)
    assert set(roster) == {"a", "b"}
    assert load_public_key(roster["a"].encode()) == load_public_key(
        (files / "a.pub").read_bytes()
    )


def test_a_private_key_does_not_get_into_a_roster(files: Path) -> None:
    made = CliRunner().invoke(round_, ["roster", f"a={files}/a.pem"])
    assert isinstance(made.exception, LetheError)
    assert "private key" in str(made.exception)
    assert made.stdout == ""


@pytest.mark.parametrize("item", ["a", "a=", "a=/nowhere.pub"])
def test_members_without_a_file(files: Path, item: str) -> None:
    assert CliRunner().invoke(round_, ["roster", item]).exit_code == 2


BAD_ROSTERS = {"not-json": "{", "a-list": "[]", "no-key": '{"a": "no PEM"}'}


@pytest.mark.parametrize("text", BAD_ROSTERS.values(), ids=BAD_ROSTERS.keys())
def test_a_roster_that_pins_nothing_stops_before_any_call(files: Path, text: str) -> None:
    (files / "roster.json").write_text(text)
    given = ["--url", "http://127.0.0.1:1", "--key", f"{files}/a.pem", "--keyid", "a"]
    given += ["--roster", f"{files}/roster.json", "--data", f"{files}/a.npz"]
    done = CliRunner().invoke(round_, ["join", *given])
    assert isinstance(done.exception, LetheError)
    assert "roster" in str(done.exception)


def test_data_that_is_no_data(files: Path) -> None:
    (files / "roster.json").write_text("{}")
    (files / "bad.npz").write_bytes(b"no")
    given = ["--url", "http://127.0.0.1:1", "--key", f"{files}/a.pem", "--keyid", "a"]
    given += ["--roster", f"{files}/roster.json", "--data", f"{files}/bad.npz"]
    done = CliRunner().invoke(round_, ["join", *given])
    assert isinstance(done.exception, LetheError)


def test_what_a_service_says_of_a_round_does_not_act_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Service:
        def __enter__(self) -> "Service":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def round(self, round_id: str) -> dict[str, str]:
            return {"reason": "\x9b8m hidden\u202e"}

    monkeypatch.setattr("workers.cli.round._operator", lambda url, token: Service())
    shown = CliRunner().invoke(round_, ["status", "--url", "http://x", "--token", "t", "r"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output) == {"reason": "\x9b8m hidden\u202e"}
    assert shown.output.replace("\n", "").isprintable()
