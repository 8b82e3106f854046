"""`lethe person`, `lethe case` and `lethe request submit --person` on a running service."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.service.issued import certificates
from lethe.cli.case import case
from lethe.cli.person import person, print_found
from lethe.cli.request import request
from lethe.cli.text.case import count_removed
from lethe.client import Client
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN, EVE, ready


class Operator:
    """An operator's shell: commands reach the installation without a socket."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation

    def run(self, group: Any, *arguments: str) -> Result:
        return CliRunner().invoke(group, arguments, env={"LETHE_URL": "http://testserver"})

    def opened(self, *arguments: str) -> dict[str, Any]:
        result = self.run(
            request, "submit", "--on-behalf", "--ticket", "T-1", "--json", *arguments
        )
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found


@pytest.fixture
def operator(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Operator:
    ready(installation, "one", "two", r99=EVE)
    caller = installation.caller

    class Inside(Client):
        def __init__(self, base: str, *arguments: Any, **options: Any) -> None:
            super().__init__(base, token=caller.token)
            self._http = caller.http

        def close(self) -> None:
            """Do nothing: the installation closes its own client."""

    monkeypatch.setattr("lethe.client.Client", Inside)
    monkeypatch.setattr("lethe.cli.request.Client", Inside)
    return Operator(installation)


def test_a_person_is_found_in_every_model(operator: Operator) -> None:
    result = operator.run(person, "find", f"email={ANN}")
    assert result.stdout.splitlines() == [
        "one                      2 records: r0, r5",
        "two                      2 records: r0, r5",
    ]
    held = operator.run(person, "find", f"email={EVE}", "--model", "two")
    assert held.stdout == "two                      1 held out, never learned: r99\n"
    nobody = operator.run(person, "find", "email=nobody@example.org")
    assert nobody.exit_code == 1
    assert nobody.stdout.splitlines()[0] == "one                      nothing found"
    assert nobody.stderr == ""
    assert operator.run(person, "find", ANN).exit_code != 0


def test_a_kind_that_may_be_mistyped_is_pointed_out(operator: Operator) -> None:
    hint = "nobody is found by mail unless a model was registered with --person mail=COLUMN"
    on_behalf = ("--on-behalf", "--ticket", "T-1")
    for command, *words in (
        (person, "find", f"mail={ANN}"),
        (case, "list", "--person", f"mail={ANN}"),
        (request, "submit", "--person", f"mail={ANN}", *on_behalf),
    ):
        assert operator.run(command, *words).stderr.count(hint) == 1
    opened = operator.run(request, "submit", "--person", f"email={ANN}", *on_behalf)
    assert hint not in opened.stderr


def test_rows_that_make_bins_are_records_and_held_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_found({"model": "m", "records": ["r1", "r2"], "held_out": ["r2", "r9"], "erased": 0})
    said = "2 records: r1, r2; of these 1 held out for bins: r2; 1 held out, never learned: r9"
    assert capsys.readouterr().out.split(maxsplit=1) == ["m", f"{said}\n"]
    assert "no version" in count_removed(1, 5, only=True)
    assert "no version" not in count_removed(1, 5, only=False)


def test_a_list_is_imported_and_its_unknown_record_named(
    operator: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("record,email\nr2,Eve@example.org\nr3,\nr4,eve@example.org\n")
    arguments = ("import", str(file), "--kind", "email", "--model", "one")
    left = "; left out: 1 row without a value\n"
    assert operator.run(person, *arguments).stdout == "2 identities read, 2 new in one" + left
    assert operator.run(person, *arguments).stdout == "2 identities read, 0 new in one" + left
    found = operator.run(person, "find", f"email={EVE}", "--model", "one")
    assert found.stdout.strip().endswith("2 records: r2, r4; 1 held out, never learned: r99")
    file.write_text("record,email\nr2,a@example.org\nnot-there,b@example.org\n")
    refused = operator.run(person, *arguments)
    assert refused.exit_code == 1
    assert "not-there (line 3)" in refused.output
    assert "b@example.org" not in refused.output
    assert operator.run(person, "find", "email=a@example.org").exit_code == 1
    wide = "name,id,mail,age\nEve,r2,eve@example.org,40\nX,r3,,1\nY,r4,eve@example.org,2\n"
    file.write_text(wide)
    by_name = (*arguments, "--record-id", "id", "--column", "mail")
    assert operator.run(person, *by_name).stdout == "2 identities read, 0 new in one" + left
    file.write_text(wide.replace("id,mail", "record,email"))
    assert operator.run(person, *arguments).stdout == "2 identities read, 0 new in one" + left
    lacking = operator.run(person, *arguments, "--column", "mail")
    assert (
        "the file must have exactly one column mail: name another with --column"
        in lacking.output
    )
    file.write_text("record,email,email\nr2,a@example.org,b@example.org\n")
    assert "must have exactly one column email" in operator.run(person, *arguments).output
    file.write_text("record,sha256\nr2,zz\n")
    bad = operator.run(person, *arguments, "--hashed", "sha256")
    assert bad.exit_code == 1
    assert "line 2: a digest by sha256 is 64 hex digits" in bad.output


@pytest.mark.parametrize(
    "data",
    [
        "record,email\nr2,ren\u00e9@example.org\n".encode("latin-1"),
        "record,email\nr2,a@example.org\n".encode("utf-16"),
        b'record,email\nr2,"' + b"a" * 200_000,
    ],
)
def test_a_list_that_is_no_csv_in_utf_8_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(data)
    known = ("import", str(file), "--kind", "email", "--model", "one")
    answer = CliRunner().invoke(person, known, env={"LETHE_URL": "http://127.0.0.1:9"})
    assert answer.exit_code == 1
    assert "save it as such" in answer.output


def test_from_an_address_to_a_verified_answer(operator: Operator, tmp_path: Path) -> None:
    opened = operator.opened(
        "--person", f"email={ANN}", "--checked", "passport", "--contact", "Main St"
    )
    ref, installation = opened["ref"], operator.installation
    assert opened["state"] == "open"
    installation.drain()
    shown = operator.run(case, "show", ref).stdout
    assert shown.count("certified, 2 records") == 2
    assert shown.count("request.on-behalf") == 1  # one line names both models
    contact = operator.run(case, "contact", ref)
    assert contact.stdout == "Main St\n"
    assert "opened with log entry" in contact.stderr
    answer, pem = tmp_path / "answer.json", tmp_path / "issuer.pem"
    folder = tmp_path / "certificates"
    wanted = ("summary", ref, "--out", str(answer), "--certificates", str(folder))
    downloaded = operator.run(case, *wanted)
    file = folder / "one.sigstore.json"
    assert downloaded.stdout.split() == [
        str(answer),
        str(file),
        str(folder / "two.sigstore.json"),
    ]
    pem.write_text(certificates.issuer_pem(installation.services))
    arguments = ("verify", str(answer), "--issuer-key", str(pem))
    passed = operator.run(case, *arguments, "--certificate", str(file))
    assert passed.exit_code == 0, passed.output
    assert passed.stdout.startswith("PASS")
    told = json.loads(operator.run(case, *arguments, "--json").stdout)
    assert (told["result"], told["answer"]["case"]) == ("PASS", ref)
    failed = operator.run(case, *arguments, "--certificate", str(pem))
    assert (failed.exit_code, failed.stdout[:4]) == (1, "FAIL")
    closed = operator.run(case, "close", ref)
    assert "closed" in closed.stdout
    assert operator.run(case, "contact", ref).exit_code == 1
    again = operator.opened("--person", f"email={ANN}", "--model", "two")
    assert [part["outcome"] for part in again["parts"]] == ["erased before"]


def test_a_case_is_watched_to_its_end(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def work(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            operator.installation.drain()

    monkeypatch.setattr("lethe.cli.text.case.time.sleep", work)
    opened = operator.opened("--person", f"email={ANN}", "--watch")
    assert opened["state"] == "answered"
    assert [part["outcome"] for part in opened["parts"]] == ["certified", "certified"]
    assert len(waits) == 2


def test_whoever_waits_no_longer_is_told_what_is_open(operator: Operator) -> None:
    arguments = ("--person", f"email={ANN}", "--watch", "--timeout", "0")
    result = operator.run(request, "submit", "--on-behalf", "--ticket", "T-1", *arguments)
    assert result.exit_code == 1
    assert "in progress" in result.stdout
    reference = result.stdout.split()[1]
    assert result.stderr.startswith(f"opened case {reference}, waiting")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--person", "email=a@b.c", "--on-behalf"],
        ["--person", "email=a@b.c", "--ticket", "T"],
        ["--on-behalf", "--ticket", "T"],
        ["--person", "email=a@b.c", "--on-behalf", "--ticket", "T", "--record", "r1"],
        ["--record", "r1", "--model", "one", "--ticket", "T"],
        ["--record", "r1", "--model", "one"],
    ],
)
def test_options_that_do_not_go_together_are_refused(
    operator: Operator, arguments: list[str]
) -> None:
    result = operator.run(request, "submit", *arguments)
    assert result.exit_code == 2
    assert "Usage" in result.output
