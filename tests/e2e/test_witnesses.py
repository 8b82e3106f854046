"""Witnesses as real processes: one works, one is down, one lies.

`make witness-check` repeats it with aics-witness and aics-tlog, packages of others, unmodified.
"""

import json
import os
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from lethe.client import Client
from lethe.log.checkpoint import open_checkpoint
from lethe.log.note import parse_log_vkey
from tests.app.witnesses.three import two_lines
from tests.e2e.harness import LETHE, Processes
from tests.interop.witness import record
from tests.lethe.witness.liars import lying, nowhere
from tests.small import MODEL

# Why aics-tlog refuses.
FEWER = "quorum not met: 2 valid fresh cosignatures < 3"
ABSENT = "the leaf is not included at this index under the checkpoint"


@contextmanager
def witness(processes: Processes, directory: Path) -> Iterator[tuple[list[str], str]]:
    """Make and run `lethe witness`; yields its vkeys and its URL."""
    log = processes.directory / "data" / "keys" / "log.vkey"
    made = processes.cli(
        "witness",
        "init",
        str(directory),
        "--name",
        f"{directory.name}.example",
        "--log",
        str(log),
    )
    command = [*LETHE, "witness", "serve", str(directory), "--port", "0"]
    with serving(command, rb"witness at (\S+)/") as url:
        yield made.stdout.split(), url


@contextmanager
def serving(command: Sequence[str], says: bytes) -> Iterator[str]:
    """Run a server; yields the URL that it says on its output or error."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            while (found := re.search(says, line := process.stdout.readline())) is None:
                assert line, f"{command[0]} ended"
            yield found[1].decode()
        finally:
            process.kill()


def policy(path: Path, quorum: str, **witnesses: tuple[str, str]) -> Path:
    lines = [f"witness {name} {vkey} {url}" for name, (vkey, url) in witnesses.items()]
    path.write_text("\n".join([*lines, *quorum.splitlines()]) + "\n")
    return path


def erase(processes: Processes, requester: Client, record: str) -> bytes:
    """Erase a record; return its certificate once it is witnessed."""
    receipt = requester.submit_erasure(MODEL, records=[record])
    assert requester.wait(receipt.id, timeout=60).state == "certified"
    return requester.certificate(receipt.id)


def verify(processes: Processes, file: Path, by: Path) -> dict[str, object]:
    """Return step 6 of the verdict, and the result."""
    keys = processes.directory / "data" / "keys"
    done = processes.cli(
        *("certificate", "verify", str(file), "--keys", str(keys)),
        *("--policy", str(by), "--json"),
        check=False,
    )
    verdict = json.loads(done.stdout)
    return {"result": verdict["result"], **verdict["steps"][5]}


def test_a_certificate_is_witnessed_while_one_is_down_and_one_lies(
    registered: Processes, tmp_path: Path
) -> None:
    with (
        witness(registered, tmp_path / "honest") as ((first, second), url),
        witness(registered, tmp_path / "away") as ((down, _), _),
        witness(registered, tmp_path / "false") as ((liar, _), _),
        lying(two_lines) as lies,
    ):
        given = {
            "honest": (first, url),
            "pq": (second, url),
            "down": (down, nowhere()),
            "liar": (liar, lies),
        }
        any_one = policy(tmp_path / "any", "group q all honest pq\nquorum q", **given)
        most = policy(tmp_path / "most", "group q 2 honest down liar\nquorum q", **given)
        registered.more = {"LETHE_WITNESS_POLICY": str(any_one), "LETHE_WITNESS_FAIL": "closed"}
        registered.more["LETHE_WITNESS_SECONDS"] = "1"
        registered.start_api()
        registered.start_worker()
        with registered.requester() as requester:
            file = tmp_path / "certificate.json"
            file.write_bytes(erase(registered, requester, "r1"))
        assert verify(registered, file, any_one)["result"] == "PASS"
        refused = verify(registered, file, most)
        assert (refused["result"], refused["passed"]) == ("FAIL", False)
        assert refused["detail"] == (
            "2 of 4 witnesses of the policy signed: its quorum is not met"
        )
        told = registered.cli("log", "witnesses").stdout
        assert re.search(r"(?m)^away\.example\+\S+ .* down ", told)
        assert re.search(r"(?m)^false\.example\+\S+ .* lying ", told)
        assert re.search(r"(?m)^honest\.example\+\S+ +[1-9]", told)
    registered.kill()
    assert "witness" not in registered.cli("log", "fsck").stdout
    log = (registered.directory / "worker.log").read_text()
    assert log.count("does not cosign") == 2


@pytest.mark.slow
def test_witness_and_verifier_of_others_accept_log_and_certificate(
    registered: Processes, tmp_path: Path
) -> None:
    programs = Path(os.environ["LETHE_TEST_AICS"]).absolute()
    log = (registered.directory / "data" / "keys" / "log.vkey").read_text().strip()
    config = ["--config", str(tmp_path / "aics" / "witness.json")]
    (tmp_path / "aics").mkdir()

    def aics(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(programs / f"aics-{name}"), *arguments], capture_output=True, text=True
        )

    made = aics("witness", "init", *config, "--name", "aics.example", "--listen", "127.0.0.1:0")
    (other,) = re.findall(r"aics\.example\+[0-9a-f]{8}\+\S+", made.stdout)[:1]
    added = aics("witness", "add-log", *config, "--origin", log.split("+")[0], "--vkey", log)
    assert added.returncode == 0, added.stderr
    serve = [str(programs / "aics-witness"), "serve", *config, "--listen", "127.0.0.1:0"]
    with (
        witness(registered, tmp_path / "honest") as ((first, second), url),
        serving(serve, rb"(http://127\.0\.0\.1:[0-9]+|127\.0\.0\.1:[1-9][0-9]*)") as others,
        witness(registered, tmp_path / "away") as ((down, _), _),
        witness(registered, tmp_path / "false") as ((liar, _), _),
        lying(two_lines) as lies,
    ):
        by_others = others if others.startswith("http") else f"http://{others}"
        given = {
            "lethe": (first, url),
            "pq": (second, url),
            "aics": (other, by_others),
            "down": (down, nowhere()),
            "liar": (liar, lies),
        }
        quorum = policy(tmp_path / "q", "group q all lethe pq aics\nquorum q", **given)
        registered.more = {"LETHE_WITNESS_POLICY": str(quorum), "LETHE_WITNESS_FAIL": "closed"}
        registered.more["LETHE_WITNESS_SECONDS"] = "1"
        registered.start_api()
        registered.start_worker()
        file, note = tmp_path / "certificate.json", tmp_path / "checkpoint"
        with registered.requester() as requester:
            erase(registered, requester, "r1")
            file.write_bytes(erase(registered, requester, "r2"))
        passed = verify(registered, file, quorum)
        assert passed["result"] == "PASS", passed
        assert passed["detail"] == "3 of 5 witnesses of the policy signed: its quorum is met"
        counted = "cosigned: `lethe certificate verify --policy` counts its line"
        ran = [("aics-witness serve", "checkpoints of the running log", counted)]

        # Their verifier: the certificate's checkpoint, its leaf in the tiles, their quorum.
        entry = json.loads(file.read_bytes())["verificationMaterial"]["tlogEntries"][0]
        proof = entry["inclusionProof"]
        note.write_text(proof["checkpoint"]["envelope"])
        leaf, another = tmp_path / "leaf", tmp_path / "another"
        leaf.write_bytes(b64decode(entry["canonicalizedBody"]))
        another.write_bytes(leaf.read_bytes() + b" ")
        trusted = ["--log-key", log, "--witness-key", other, "--witness-key", first]
        tiles = ["--tiles", f"{registered.base_url}/v1/log"]

        def tlog(command: str, *more: str, given: str, why: str = "") -> None:
            """Have it accept, or refuse with a reason."""
            done = aics("tlog", command, *more)
            said = json.loads(done.stdout)
            assert (done.returncode, said["ok"]) == (int(bool(why)), not why), said
            assert why in str(said), said
            ran.append(
                (f"aics-tlog {command}", given, f"refused: {why}" if why else "accepted")
            )

        checkpoint = ["--note", str(note), *trusted, "--quorum"]
        signed = (
            "the certificate's checkpoint, the keys of the log and of two witnesses, quorum "
        )
        tlog("verify-checkpoint", *checkpoint, "2", given=f"{signed}2")
        tlog("verify-checkpoint", *checkpoint, "3", given=f"{signed}3", why=FEWER)
        at = ["--index", proof["logIndex"], *tiles, "--checkpoint", str(note), *trusted]
        at += ["--quorum", "2", "--leaf"]
        tiles_of = "leaf, its index, and the log's tiles"
        tlog("verify-inclusion", *at, str(leaf), given=f"the certificate's {tiles_of}")
        tlog("verify-inclusion", *at, str(another), given=f"another {tiles_of}", why=ABSENT)
        grown = ["--old-checkpoint", str(note), *tiles, "--log-key", log]
        both = "the certificate's checkpoint, and the latest one with the log's tiles"
        tlog("verify-consistency", *grown, given=both)
        # And their witness holds what the log serves as witnessed.
        witnessed = httpx2.get(f"{registered.base_url}/v1/log/witnessed").text
        size = open_checkpoint(witnessed, parse_log_vkey(log)).size
        status = json.loads(aics("witness", "status", *config, "--json").stdout)
        assert str(size) in json.dumps(status)
        same = "it holds the size that `/v1/log/witnessed` has"
        ran.append(("aics-witness status", "nothing", same))
    if (page := os.environ.get("LETHE_TEST_WITNESS_RECORD")) is not None:
        record.write(Path(page), programs, ran)
