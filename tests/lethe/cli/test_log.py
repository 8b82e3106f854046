"""`lethe log`: a verdict for every log, and 0, 1 or 2 for scripts."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from lethe.canonical import format_base64
from lethe.cli.log import log
from lethe.client import Client
from lethe.errors import LetheError
from lethe.log.cosigner import Cosigner
from lethe.log.fetch import LogError, LogUnreachableError, fetch_from
from lethe.log.follow import mirror_log, verify_log, witnessed
from lethe.log.log_keys import LogKey, LogKeys
from lethe.log.note import NoteError, NoteSigner, sign_note
from lethe.log.policy import parse_policy
from tests.lethe.certificates.test_trust_root import NEXT, Published, Rotated
from tests.lethe.client.log_service import LogService, history
from tests.lethe.log import oracle
from tests.lethe.log.logs import SIGNER, STRANGER, VERIFIER, fetch_files, log_files

FILES = log_files(oracle.entries(300))
VKEY = VERIFIER.vkey


def invoke(*args: str) -> Result:
    return CliRunner().invoke(log, args)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    mirror_log(fetch_files(FILES), VERIFIER, tmp_path / "log")
    return tmp_path / "log"


def damage(directory: Path) -> None:
    path = directory / "tile" / "0" / "001.p" / "44"
    path.write_bytes(bytes(32) + path.read_bytes()[32:])


def test_an_honest_log_passes(directory: Path) -> None:
    result = invoke("verify", str(directory), "--vkey", VKEY)
    assert result.exit_code == 0
    assert result.output.startswith("PASS  log.example\n")
    assert "size 300" in result.output
    assert "300 entries and 3 tiles checked" in result.output


def test_a_key_file_that_is_missing_is_named(directory: Path) -> None:
    result = invoke("verify", str(directory), "--vkey", "trusted/log.vkey")
    assert isinstance(result.exception, NoteError)
    assert str(result.exception).startswith("--vkey: there is no file trusted/log.vkey")


def test_json_tells_what_was_checked(directory: Path) -> None:
    result = invoke("verify", str(directory), "--vkey", VKEY, "--json")
    assert result.exit_code == 0
    root = FILES["checkpoint"].decode().splitlines()[2]
    assert json.loads(result.output) == {
        "result": "PASS",
        "origin": "log.example",
        "size": 300,
        "root": root,
        "entries": 300,
        "tiles": 3,
        "entries_before": 0,
        "unverified": [],
    }


def test_later_calls_say_what_an_earlier_one_verified(directory: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state.json")
    verify = ("verify", str(directory), "--vkey", VKEY, "--state", state)
    mirror = ("mirror", str(directory), str(tmp_path / "mirror"), "--vkey", VKEY)
    for command in (verify, mirror):
        assert "300 entries and 3 tiles checked\n" in invoke(*command).output
    mirror_log(fetch_files(log_files(oracle.entries(301))), VERIFIER, directory)
    for command in (verify, mirror):
        result = invoke(*command)
        assert result.exit_code == 0
        # The partial bundle of the last 44 entries is a new file, with one entry more.
        assert "45 entries and 2 tiles checked, the first 300 entries by an" in result.output
        assert json.loads(invoke(*command, "--json").output)["entries_before"] == 301
        full = json.loads(invoke(*command, "--full", "--json").output)
        assert (full["entries"], full["tiles"], full["entries_before"]) == (301, 3, 0)


def test_a_log_that_was_rolled_back_fails_against_the_state_file(
    directory: Path, tmp_path: Path
) -> None:
    state = str(tmp_path / "state.json")
    assert invoke("verify", str(directory), "--vkey", VKEY, "--state", state).exit_code == 0
    mirror_log(fetch_files(log_files(oracle.entries(299))), VERIFIER, tmp_path / "old")
    old = str(tmp_path / "old")
    assert invoke("verify", old, "--vkey", VKEY).exit_code == 0
    result = invoke("verify", old, "--vkey", VKEY, "--state", state)
    assert result.exit_code == 1
    assert "has 299 entries and the state file 300: it was rolled back" in result.output


def test_a_policy_asks_for_a_quorum_of_its_witnesses(directory: Path, tmp_path: Path) -> None:
    policy, path = tmp_path / "witness.policy", directory / "checkpoint"
    witness = Cosigner("witness.example", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    named = f"witness w {witness.verifier.vkey}\nquorum w\n"
    policy.write_text(named)
    verify = ("verify", str(directory), "--vkey", VKEY, "--policy", str(policy))
    alone = invoke(*verify)
    assert alone.exit_code == 1
    assert "0 of 1 witnesses of the policy signed size 300: its quorum is not" in alone.output
    note = path.read_text()
    text = note.partition("\n\n")[0] + "\n"
    path.write_text(note + witness.line(text, 1_790_000_000))
    signed = invoke(*verify)
    assert signed.exit_code == 0, signed.output
    assert "1 of 1 witnesses of the policy signed: its quorum is met" in signed.output
    assert "not verified" not in signed.output
    said = json.loads(invoke(*verify, "--json").output)
    assert said["witnesses"].startswith("1 of 1")
    assert said["unverified"] == []
    policy.write_text(f"log {STRANGER.verifier.vkey}\n{named}")
    assert "the policy lists other logs" in invoke(*verify).output
    policy.write_text("quorum none\n")
    assert "and it requires none" in invoke(*verify).output
    policy.write_text(named)
    path.write_text(note + witness.line(text.replace("300", "301"), 1_790_000_000))
    forged = invoke(*verify)
    assert (forged.exit_code, forged.output.startswith("FAIL  checkpoint: ")) == (1, True)


def test_a_key_of_the_log_that_the_policy_does_not_list_is_not_enough(
    directory: Path,
) -> None:
    """As of a certificate: the log's old key alone signed what the policy's log should have."""
    keys = LogKeys((LogKey(VERIFIER, 0, 1000), LogKey(STRANGER.verifier, 0)))
    found = verify_log(fetch_from(directory), keys)
    for listed, refused in ((VERIFIER, False), (STRANGER.verifier, True)):
        policy = parse_policy(f"log {listed.vkey}\nquorum none\n".encode())
        with (
            pytest.raises(LogError, match="that the policy lists") if refused else nullcontext()
        ):
            witnessed(found, keys, policy)


@pytest.mark.parametrize("name", ["log.example\x9b8m", "log.example\u202e"])
def test_a_logs_name_cannot_repaint_the_terminal(tmp_path: Path, name: str) -> None:
    """U+009B begins a control sequence, such as one that hides what follows."""
    signer = NoteSigner(name, SIGNER.key)
    mirror_log(fetch_files(log_files(oracle.entries(3), signer)), signer.verifier, tmp_path)
    done = invoke("verify", str(tmp_path), "--vkey", signer.verifier.vkey)
    assert (done.exit_code, done.output.splitlines()[0]) == (
        0,
        "PASS  log.example\ufffd" + name[12:],
    )


def test_a_signature_line_of_an_unknown_key_is_ignored_and_named(directory: Path) -> None:
    path = directory / "checkpoint"
    text, _, line = path.read_text().rpartition("\n\n")
    witness = NoteSigner("witness.example\N{RIGHT-TO-LEFT OVERRIDE}", STRANGER.key)
    cosigned = sign_note(text + "\n", witness)
    path.write_text(cosigned + line)
    result = invoke("verify", str(directory), "--vkey", VKEY)
    assert result.exit_code == 0
    told = f"witness.example\ufffd+{witness.verifier.key_id.hex()}"
    assert f"not verified, their keys were not given: {told}" in result.output
    as_json = json.loads(invoke("verify", str(directory), "--vkey", VKEY, "--json").output)
    assert as_json["result"] == "PASS"
    (name,) = as_json["unverified"]
    assert name.endswith(f"+{witness.verifier.key_id.hex()}")
    only = directory.parent / "only"
    mirror_log(fetch_from(directory), VERIFIER, only)  # a mirror keeps the witness's line
    assert (only / "checkpoint").read_text() == cosigned + line
    path.write_text(cosigned)
    assert invoke("verify", str(directory), "--vkey", VKEY).exit_code == 1


def test_a_damaged_log_fails_and_names_the_file(directory: Path) -> None:
    damage(directory)
    result = invoke("verify", str(directory), "--vkey", VKEY)
    assert result.exit_code == 1
    assert result.output.startswith("FAIL  tile/0/001.p/44: hash 0 is not that of the entry")


def test_json_tells_what_failed(directory: Path) -> None:
    damage(directory)
    result = invoke("verify", str(directory), "--vkey", VKEY, "--json")
    assert result.exit_code == 1
    verdict = json.loads(result.output)
    assert (verdict["result"], verdict["path"]) == ("FAIL", "tile/0/001.p/44")
    assert "hash 0" in verdict["detail"]


@pytest.mark.parametrize("ending", ["", "\n"])
def test_the_key_may_be_a_file(directory: Path, tmp_path: Path, ending: str) -> None:
    (tmp_path / "log.vkey").write_text(VKEY + ending)
    result = invoke("verify", str(directory), "--vkey", str(tmp_path / "log.vkey"))
    assert result.exit_code == 0


def test_another_key_fails(directory: Path) -> None:
    result = invoke("verify", str(directory), "--vkey", STRANGER.verifier.vkey)
    assert result.exit_code == 1
    assert "no known key" in result.output


@pytest.mark.parametrize("vkey", ["", "no such file", "x" * 5000, "\0", VKEY[:-1]])
def test_what_is_no_key_is_an_error(directory: Path, vkey: str) -> None:
    with pytest.raises(NoteError, match="--vkey"):
        CliRunner().invoke(
            log, ["verify", str(directory), "--vkey", vkey], catch_exceptions=False
        )


def test_a_binary_key_file_is_an_error(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    error = invoke("verify", str(directory), "--vkey", str(tmp_path / "key")).exception
    assert isinstance(error, NoteError)


def test_no_log_is_an_error_and_not_a_verdict(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        result = invoke("verify", str(place), "--vkey", VKEY, "--json")
        assert isinstance(result.exception, LogUnreachableError)
        assert result.output == ""
    told = str(invoke("verify", str(tmp_path), "--vkey", VKEY).exception)
    assert told.endswith("the prefix that `checkpoint` lies under, such as URL/v1/log")


def test_mirror_copies_and_then_refuses_a_fork(directory: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    result = invoke("mirror", str(directory), str(mirror), "--vkey", VKEY)
    assert (result.exit_code, result.output[:4]) == (0, "PASS")
    assert (mirror / "checkpoint").read_bytes() == FILES["checkpoint"]

    forked = log_files((b"forked", *oracle.entries(400)[1:]))
    for path, data in forked.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    result = invoke("mirror", str(directory), str(mirror), "--vkey", VKEY)
    assert result.exit_code == 1
    assert "forked: its first 300 entries" in result.output
    assert (mirror / "checkpoint").read_bytes() == FILES["checkpoint"]


def test_verifying_needs_the_base_install_only(directory: Path) -> None:
    program = (
        "import sys\n"
        "from lethe.cli.log import log\n"
        "log(sys.argv[1:], standalone_mode=False)\n"
        "extra = {'numpy', 'scipy', 'sqlmodel', 'sqlalchemy', 'pydantic', 'fastapi',\n"
        "         'starlette', 'celery', 'redis', 'models', 'workers', 'httpx2'}\n"
        "print(sorted(extra & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "verify", str(directory), "--vkey", VKEY],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("PASS")
    assert done.stdout.splitlines()[-1] == "[]"  # a directory needs no HTTP client either


def test_a_watch_ends_with_what_is_wrong(directory: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    often = ("--every", "0", "--full-every", "0", "--vkey", VKEY)
    damage(directory)
    result = invoke("watch", str(directory), copy, *often)
    assert result.exit_code == 1
    assert "CHANGED: tile/0/001.p/44: hash 0" in result.output
    assert "the signed checkpoint is kept in" in result.output
    (tmp_path / "none").mkdir()
    away = invoke("watch", str(tmp_path / "none"), copy, *often, "--patience", "0", "--json")
    assert away.exit_code == 2
    assert json.loads(away.output)["alarm"] == "unreachable"


def test_a_watch_tells_of_growth_and_of_a_fork(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([log_files(oracle.entries(400)), log_files((b"x", *oracle.entries(500)[1:]))])

    def grow(seconds: float) -> None:
        assert seconds == 7
        write(directory, next(steps))

    monkeypatch.setattr("lethe.cli.log.time.sleep", grow)
    often = ("--every", "7", "--vkey", VKEY, "--json")
    result = invoke("watch", str(directory), str(tmp_path / "copy"), *often)
    assert result.exit_code == 1
    first, second, fork = map(json.loads, result.output.splitlines())
    assert (first["size"], second["size"], fork["alarm"]) == (300, 400, "fork")
    assert Path(fork["evidence"]).exists()


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)


@pytest.mark.parametrize("root", ["proven", "none", "of another log"])
def test_a_watch_goes_on_with_a_key_that_the_known_one_leads_to(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Rotated()
    leaves, served = office.log.leaves, tmp_path / "served"
    write(served, log_files(leaves[: office.start], office.old))
    published = {"proven": office.root(), "of another log": Published().root()}
    files = log_files(leaves, NEXT)
    if root in published:
        files["trust-root"] = published[root]
    steps = iter([files, log_files((b"x", *leaves[1:]), NEXT)])
    monkeypatch.setattr("lethe.cli.log.time.sleep", lambda _: write(served, next(steps)))
    vkey = office.old.verifier.vkey
    result = invoke("watch", str(served), str(tmp_path / "copy"), "--vkey", vkey, "--json")
    assert result.exit_code == 1
    first, *rest = map(json.loads, result.output.splitlines())
    assert first["size"] == office.start
    if root != "proven":
        assert [one["alarm"] for one in rest] == ["changed"]
        return
    rotated, grown, fork = rest
    assert rotated["rotated"] == NEXT.verifier.vkey
    assert (grown["size"], fork["alarm"]) == (len(leaves), "fork")
    assert Path(fork["evidence"]).exists()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> LogService:
    """A service that `lethe log list` asks."""
    service = LogService(history(23), signer=SIGNER)
    made = partial(Client, transport=httpx2.MockTransport(service.respond))
    monkeypatch.setattr("lethe.client.Client", made)
    return service


def listed(*args: str) -> Result:
    return invoke("list", "--url", "https://erasure.example", "--vkey", VKEY, *args)


def test_a_range_is_listed_after_its_proof_was_checked(asked: LogService) -> None:
    result = listed("--from", "5", "--to", "9")
    assert result.exit_code == 0, result.output
    first, heads, *rows = result.output.splitlines()
    root = format_base64(oracle.mth(tuple(asked.entries)))
    proven = f"complete, proven against the checkpoint of size 23, root {root}"
    assert first == f"PASS  entries 5 to 9 of a log of 23: {proven}"
    assert heads.split() == ["ENTRY", "DAY", "EVENT", "REF"]
    assert [row.split()[0] for row in rows] == ["5", "6", "7", "8", "9"]
    assert rows[0].split()[1:] == ["2026-03-04", "model.version", "small"]
    document = json.loads(listed("--from", "5", "--to", "9", "--json").output)
    assert document["detail"] == first.removeprefix("PASS  ")
    assert (document["start"], document["end"], document["size"]) == (5, 10, 23)
    assert (document["result"], document["complete"], document["root"]) == ("PASS", True, root)
    assert [row["log_index"] for row in document["entries"]] == [5, 6, 7, 8, 9]


def test_a_filters_answer_says_what_is_not_proven_and_how_it_can_be(asked: LogService) -> None:
    result = listed("--kind", "model-event")
    assert result.exit_code == 0
    assert "7 matches among entries 0 to 22 of a log of 23, each proven" in result.output
    assert "the filter left none out cannot be proven: give --prove" in result.output
    assert json.loads(listed("--kind", "model-event", "--json").output)["complete"] is False
    result = listed("--kind", "model-event", "--prove")
    assert (
        "7 matches among entries 0 to 22 of a log of 23: complete, read whole" in result.output
    )
    assert "cannot be proven" not in result.output


def test_a_range_with_a_hidden_entry_is_not_listed(asked: LogService) -> None:
    asked.change = lambda answer: answer["items"].pop(1)
    result = listed("--from", "5", "--to", "9")
    assert result.exit_code == 1
    assert result.output.startswith("FAIL  the range has 5 entries, 4 were given")
    assert json.loads(listed("--json").output)["result"] == "FAIL"
    asked.signer = STRANGER
    assert listed().exit_code == 1


def test_a_range_without_entries_says_so(asked: LogService) -> None:
    result = listed("--from", "23")
    assert result.exit_code == 0
    assert "the log has 23 entries, none in this range: proven against" in result.output
    assert listed("--from", "9", "--to", "8").exit_code == 2
    assert listed("--from", "-1").exit_code == 2


@pytest.fixture
def second(tmp_path: Path) -> Cosigner:
    """The log's ML-DSA-44 key; its verifier key is in log-mldsa.vkey."""
    found = Cosigner(VERIFIER.name, MLDSA44PrivateKey.generate())
    (tmp_path / "log-mldsa.vkey").write_text(found.verifier.vkey + "\n")
    return found


def signed_by(key: Cosigner, note: str) -> str:
    return note + key.line(note.partition("\n\n")[0] + "\n", 1_790_000_000)


@pytest.mark.parametrize("command", ["verify", "mirror"])
def test_the_second_signature_of_the_log_is_required(
    directory: Path, tmp_path: Path, second: Cosigner, command: str
) -> None:
    path, copy = directory / "checkpoint", tmp_path / "copy"
    places = [str(directory), *([str(copy)] if command == "mirror" else [])]
    run = (command, *places, "--vkey", VKEY)
    required = ("--log-mldsa-key", str(tmp_path / "log-mldsa.vkey"))
    note = path.read_text()
    alone = invoke(*run, *required)
    assert alone.exit_code == 1
    assert "the log's ML-DSA-44 key did not sign this checkpoint" in alone.output
    assert not (copy / "checkpoint").exists()
    other = Cosigner(VERIFIER.name, MLDSA44PrivateKey.generate())
    path.write_text(signed_by(other, note))
    assert invoke(*run, *required).exit_code == 1
    path.write_text(signed_by(second, note))
    passed = invoke(*run, *required)
    assert passed.exit_code == 0, passed.output
    assert "not verified" not in passed.output
    assert "not verified" in invoke(*run).output  # its key was not given


def test_a_mirror_from_before_the_second_key_goes_on(
    directory: Path, tmp_path: Path, second: Cosigner
) -> None:
    copy, state = tmp_path / "copy", tmp_path / "state"
    mirror = ("mirror", str(directory), str(copy), "--vkey", VKEY)
    verify = ("verify", str(directory), "--vkey", VKEY, "--state", str(state))
    for command in (mirror, verify):
        assert invoke(*command).exit_code == 0
    path = directory / "checkpoint"
    path.write_text(signed_by(second, path.read_text()))
    for command in (mirror, verify):
        done = invoke(*command, "--log-mldsa-key", str(tmp_path / "log-mldsa.vkey"))
        assert done.exit_code == 0, done.output


def test_a_policy_and_the_second_key_are_both_required(
    directory: Path, tmp_path: Path, second: Cosigner
) -> None:
    path, policy = directory / "checkpoint", tmp_path / "witness.policy"
    policy.write_text("quorum none\n")
    path.write_text(signed_by(second, path.read_text()))
    verify = ("verify", str(directory), "--vkey", VKEY, "--policy", str(policy))
    passed = invoke(*verify, "--log-mldsa-key", str(tmp_path / "log-mldsa.vkey"))
    assert passed.exit_code == 0, passed.output
    assert "not verified" not in passed.output


def test_entries_are_listed_under_both_signatures(
    asked: LogService, tmp_path: Path, second: Cosigner
) -> None:
    required = ("--log-mldsa-key", str(tmp_path / "log-mldsa.vkey"))
    alone = listed(*required)
    assert alone.exit_code == 1
    assert "the log's ML-DSA-44 key did not sign this checkpoint" in alone.output

    def sign(answer: dict[str, Any]) -> None:
        answer["checkpoint"] = signed_by(second, answer["checkpoint"])

    asked.change = sign
    passed = listed(*required)
    assert passed.exit_code == 0, passed.output


def test_a_key_of_another_log_is_no_second_key(directory: Path, tmp_path: Path) -> None:
    other = Cosigner("other.example", MLDSA44PrivateKey.generate())
    for name, vkey in (("other.vkey", other.verifier.vkey), ("first.vkey", VKEY)):
        (tmp_path / name).write_text(vkey + "\n")
        result = invoke(
            "verify", str(directory), "--vkey", VKEY, "--log-mldsa-key", str(tmp_path / name)
        )
        assert isinstance(result.exception, LetheError)
        assert f"{name} is not an ML-DSA-44 key of log.example" in result.exception.detail


@pytest.mark.parametrize("rotated", [False, True])
def test_a_watch_requires_the_second_signature(
    rotated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once the log's other key was rotated; what only the other key signed is kept."""
    office = Rotated()
    second = Cosigner(office.old.name, MLDSA44PrivateKey.generate())
    (tmp_path / "second.vkey").write_text(second.verifier.vkey)
    leaves, served, copy = office.log.leaves, tmp_path / "served", tmp_path / "copy"
    begun, signer = log_files(leaves[: office.start], office.old), office.old
    both = dict(begun, checkpoint=signed_by(second, begun["checkpoint"].decode()).encode())
    steps = []
    if rotated:
        grown, signer = log_files(leaves, NEXT), NEXT
        grown["trust-root"] = office.root()
        grown["checkpoint"] = signed_by(second, grown["checkpoint"].decode()).encode()
        steps.append(grown)
    steps.append(log_files((*leaves, b"more") if rotated else leaves, signer))
    turns = iter(steps)
    monkeypatch.setattr("lethe.cli.log.time.sleep", lambda _: write(served, next(turns)))
    write(served, both)
    vkey = office.old.verifier.vkey
    keys = ("--vkey", vkey, "--log-mldsa-key", str(tmp_path / "second.vkey"))
    result = invoke("watch", str(served), str(copy), *keys, "--json")
    assert result.exit_code == 1, result.output
    first, *rest, alarm = map(json.loads, result.output.splitlines())
    assert first["size"] == office.start
    if rotated:
        assert [one.get("rotated", one.get("size")) for one in rest] == [
            NEXT.verifier.vkey,
            len(leaves),
        ]
    assert alarm["alarm"] == "changed"
    assert "the log's ML-DSA-44 key did not sign this checkpoint" in alarm["detail"]
    assert Path(alarm["evidence"]).read_bytes() == steps[-1]["checkpoint"]
