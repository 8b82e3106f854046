"""`lethe drop process` on a running service: cases, statuses, a second run, hostile files."""

import zipfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lethe.cli.drop import drop
from lethe.client import Client
from lethe.identity import digests
from tests.installation import Installation
from tests.workers.jobs.desk.test_cases import shown
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, ready, write

EMAIL, PHONE = "20260801_4821_Email.csv", "20260801_4821_Phone.csv"
LISTED = {"AAAAAAAAAAA1": ANN, "AAAAAAAAAAA2": "nobody@example.org", "AAAAAAAAAAA3": EVE}


def csv(people: dict[str, str]) -> str:
    """Return a list of DROP: base64 of SHA-256 of each address."""
    rows = [
        f"{item},{b64encode(digests('email', email)['sha256']).decode()}\n"
        for item, email in people.items()
    ]
    return "ID,Hash\n" + "".join(rows)


def zipped(path: Path, **lists: str) -> Path:
    """Write a download, with the list of e-mail addresses and others."""
    with zipfile.ZipFile(path, "w") as written:
        for name, text in ({"Email": csv(LISTED)} | lists).items():
            written.writestr(f"20260801_4821_{name}.csv", text)
    return path


@pytest.fixture
def broker(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Models with Ann's rows, and Eve in held-out rows that were never sent."""
    ready(installation, "one", "two", r99=EVE)
    monkeypatch.setattr("lethe.client.Client", lambda url, **_: installation.client())
    return installation


def run(file: Path, out: Path, *more: str) -> Result:
    """Run the command."""
    arguments = ["process", str(file), "--out", str(out), "--url", "http://x", *more]
    return CliRunner().invoke(drop, arguments, env={"LETHE_TOKEN": "t"})


def cases_of(out: Path) -> dict[str, str]:
    """Return the case of each work item."""
    lines = (out / "cases.csv").read_text().splitlines()
    return {line.split(",")[0]: line.split(",")[1] for line in lines if line}


def test_a_list_is_answered_and_answered_again(broker: Installation, tmp_path: Path) -> None:
    file, out = zipped(tmp_path / "x.zip", Phone="ID,Hash\n"), tmp_path / "out"
    first = run(file, out)
    assert first.exit_code == 1, first.output  # something is pending
    assert first.output.splitlines() == [
        f"{EMAIL:32} 3 rows: 1 not found, 2 pending",
        f"{PHONE:32} 0 rows: none",
    ]
    assert (out / EMAIL).read_text() == "Id,Status\nAAAAAAAAAAA2,5\n"
    assert (out / PHONE).read_text() == "Id,Status\n"
    refs = cases_of(out)
    assert refs.keys() == {"AAAAAAAAAAA1", "AAAAAAAAAAA3"}
    case = shown(broker, refs["AAAAAAAAAAA1"]).json()
    assert case["regulation"] == "ccpa"
    assert {part["outcome"] for part in case["parts"]} == {"in progress"}
    assert (out / "pending.csv").read_text().splitlines() == [
        "ID,List,State,Case",
        f"AAAAAAAAAAA1,{EMAIL},in progress,{refs['AAAAAAAAAAA1']}",
        f"AAAAAAAAAAA3,{EMAIL},held out at its source,{refs['AAAAAAAAAAA3']}",
    ]
    entries = broker.services.ledger.latest().size
    assert run(file, out).exit_code == 1
    assert broker.services.ledger.latest().size == entries  # nothing was submitted again
    broker.drain()
    assert run(file, out).exit_code == 1
    assert (out / EMAIL).read_text() == "Id,Status\nAAAAAAAAAAA1,3\nAAAAAAAAAAA2,5\n"
    assert cases_of(out) == refs
    assert f"AAAAAAAAAAA1,{refs['AAAAAAAAAAA1']},3\n" in (out / "cases.csv").read_text()
    broker.check()


def test_a_state_that_the_log_has_not_is_no_status(
    broker: Installation, tmp_path: Path
) -> None:
    file, out = zipped(tmp_path / "x.zip", Email=csv({"AAAAAAAAAAA1": ANN})), tmp_path / "out"
    run(file, out)
    write(broker, "UPDATE erasure_requests SET state = 'certified'")
    refused = run(file, out)
    assert "disagree" in str(refused.exception)
    assert (out / EMAIL).read_text() == "Id,Status\n"


def test_without_its_notes_nothing_is_erased_twice(
    broker: Installation, tmp_path: Path
) -> None:
    file = zipped(tmp_path / "x.zip", Email=csv({"AAAAAAAAAAA1": ANN}))
    run(file, tmp_path / "first")
    run(file, tmp_path / "second")
    refs = [cases_of(tmp_path / name)["AAAAAAAAAAA1"] for name in ("first", "second")]
    requests = [{p["request"] for p in shown(broker, ref).json()["parts"]} for ref in refs]
    assert refs[0] != refs[1]
    assert requests[0] == requests[1]  # the second case refers to the first one's requests
    broker.drain()
    third = run(file, tmp_path / "third")
    assert third.exit_code == 0, third.output
    assert (tmp_path / "third" / EMAIL).read_text() == "Id,Status\nAAAAAAAAAAA1,3\n"
    assert cases_of(tmp_path / "third") == {}  # it was erased before


def test_a_second_command_for_the_same_folder_opens_no_second_case(
    broker: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = zipped(tmp_path / "x.zip", Email=csv({"AAAAAAAAAAA1": ANN})), tmp_path / "out"
    honest, beside = Client.open_case, list[Result]()

    def opened(client: Client, *given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Client, "open_case", honest)
        beside.append(run(file, out))
        return honest(client, *given, **more)

    monkeypatch.setattr(Client, "open_case", opened)
    assert run(file, out).exit_code == 1  # it is pending
    assert "another command" in str(beside[0].exception)
    assert (out / "cases.csv").read_text().count("\n") == 1


def test_a_line_that_a_crash_cut_is_no_case(broker: Installation, tmp_path: Path) -> None:
    file, out = zipped(tmp_path / "x.zip", Email=csv({"AAAAAAAAAAA1": ANN})), tmp_path / "out"
    run(file, out)
    whole = (out / "cases.csv").read_text()
    (out / "cases.csv").write_text(whole[:-9])
    run(file, out)
    last = (out / "cases.csv").read_text().splitlines()[-1]
    assert shown(broker, last.split(",")[1]).status_code == 200


def test_a_rehearsal_submits_and_writes_nothing(broker: Installation, tmp_path: Path) -> None:
    entries = broker.services.ledger.latest().size
    file, out = zipped(tmp_path / "x.zip"), tmp_path / "out"
    done = run(file, out, "--dry-run")
    assert (done.exit_code, done.output) == (
        0,
        f"{EMAIL:32} 3 rows: 1 not found, 2 to be erased\n",
    )
    assert not out.exists()
    assert broker.services.ledger.latest().size == entries


def test_a_withdrawn_item_is_left_alone_and_its_case_named(
    broker: Installation, tmp_path: Path
) -> None:
    file, out = zipped(tmp_path / "x.zip", Email=csv({"AAAAAAAAAAA1": ANN})), tmp_path / "out"
    run(file, out)
    ref = cases_of(out)["AAAAAAAAAAA1"]
    listed = csv({"AAAAAAAAAAA1": ANN}).splitlines()[1]
    removed = f"ID,Hash,ListType\n{listed},Email\n"
    zipped(file, Email=csv({"AAAAAAAAAAA2": BOB}), Removed=removed)
    run(file, out)
    pending = (out / "pending.csv").read_text()
    assert f"AAAAAAAAAAA1,,withdrawn by the consumer,{ref}\n" in pending
    assert cases_of(out).keys() == {"AAAAAAAAAAA1", "AAAAAAAAAAA2"}


def test_a_list_that_nobody_can_be_found_by_is_refused(
    broker: Installation, tmp_path: Path
) -> None:
    """Otherwise everybody in it would be "not found"."""
    file, out = zipped(tmp_path / "x.zip", Phone=csv({"BBBBBBBBBBB1": "x"})), tmp_path / "out"
    refused = run(file, out)
    assert "--list Phone=drop-phone" in str(refused.exception)
    assert not out.exists()
    assert run(file, out, "--list", "Fax=fax").exit_code == 2
    hashed = tmp_path / "phones.csv"
    hashed.write_text(f"record,drop-phone\nr7,{digests('email', 'x')['sha256'].hex()}\n")
    from lethe.cli.person import person

    known = ["import", str(hashed), "--kind", "drop-phone", "--model", "one"]
    known += ["--hashed", "sha256", "--url", "http://x"]
    imported = CliRunner().invoke(person, known, env={"LETHE_TOKEN": "t"})
    assert imported.exit_code == 0, imported.output
    run(file, out, "--list", "Phone=drop-phone")
    assert "BBBBBBBBBBB1" in cases_of(out)


def test_a_wrong_line_submits_nothing(broker: Installation, tmp_path: Path) -> None:
    entries = broker.services.ledger.latest().size
    file = zipped(tmp_path / "x.zip", Email=csv(LISTED) + "=1+1,x\n")
    refused = run(file, tmp_path / "out")
    assert f"{EMAIL}, line 5" in str(refused.exception)
    assert not (tmp_path / "out").exists()
    assert broker.services.ledger.latest().size == entries
