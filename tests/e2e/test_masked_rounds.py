"""Masked rounds through real processes: service, worker, and a command line for each client."""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.client import Client
from lethe.client.answers import Receipt
from lethe.signing.keys import PrivateKey, generate_key, private_pem, public_pem
from tests.e2e.harness import Process, Processes, until
from tests.small import CLIENTS, MODEL, manifest, rows
from workers.artifacts import encode_head
from workers.demo.masked import DataHolders
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_exact import METHOD
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.local import LocalRows, load_rows, quantise

ALONE = {"contributors": 1, "rows": 1}  # or no erasure of one client could be completed
MEMBERS = [f"c{number}" for number in range(4)]


@dataclass(frozen=True)
class Joining:
    """A client's process, and the files with what it wrote to its standard streams."""

    process: Process
    folder: Path

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it printed."""
        status = self.process.wait(timeout=60)
        return status, (self.folder / "printed").read_text()


class Clients:
    """Four clients with a key and a file of rows each, and the roster that all have pinned."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self.processes, self.directory = processes, directory
        self.keys: dict[str, PrivateKey] = {name: generate_key("ed25519") for name in MEMBERS}
        arrays = rows()
        for name, key in self.keys.items():
            own = arrays["clients"] == name
            np.savez(directory / f"{name}.npz", **{n: a[own] for n, a in arrays.items()})
            (directory / f"{name}.pem").write_text(private_pem(key))
            (directory / f"{name}.pub").write_text(public_pem(key))
        pairs = [f"{name}={directory / name}.pub" for name in MEMBERS]
        self.roster = directory / "roster.json"
        self.roster.write_text(processes.cli("round", "roster", *pairs).stdout)

    def register(self) -> None:
        with self.processes.operator() as operator:
            operator.register_key(self.processes.key, keyid="alice")
            for name, key in self.keys.items():
                operator.register_key(key, "client", keyid=name, client=name)
            operator.register_model(manifest(data="masked", masked=ALONE))

    def open(self, *options: str) -> str:
        named = [part for name in MEMBERS for part in ("--member", name)]
        service = ["--url", self.processes.base_url, "--token", self.processes.token]
        opened = self.processes.cli(
            "round", "open", *service, "--model", MODEL, *named, *options
        )
        round_id: str = json.loads(opened.stdout)["id"]
        return round_id

    def join(self, name: str) -> "Joining":
        files = {"key": f"{name}.pem", "roster": "roster.json", "data": f"{name}.npz"}
        given = [p for o, f in files.items() for p in (f"--{o}", str(self.directory / f))]
        url = ("--url", self.processes.base_url, "--keyid", name)
        least = ("--least-contributors", "1", "--least-rows", "1")
        number = len(list(self.directory.glob("joining-*")))
        folder = self.directory / f"joining-{number}"
        folder.mkdir()
        with (folder / "printed").open("wb") as printed, (folder / "said").open("wb") as said:
            process = self.processes.start(
                ["round", "join", *url, *least, *given], printed, said
            )
        return Joining(process, folder)

    def view(self, round_id: str) -> dict[str, object]:
        url, token = self.processes.base_url, self.processes.token
        with RoundClient(url, token=token) as operator:
            return dict(operator.round(round_id))


def test_four_clients_one_drops_out_and_an_erasure_is_certified(
    processes: Processes, tmp_path: Path
) -> None:
    processes.start_api()
    processes.start_worker()
    clients = Clients(processes, tmp_path)
    clients.register()

    first = clients.open()
    joined = [clients.join(name) for name in MEMBERS]
    for client in joined:
        assert client.ended() == (0, f"{first}  done\n"), client.said()
        assert "adding 8 records, releasing 0" in client.said()
        assert "r1" not in client.said(), "progress names no record"

    with processes.requester() as requester:
        receipt = requester.submit_erasure(MODEL, records=["r1", "r6"])  # both are c1's
        until(lambda: requester.status(receipt.id).state == "awaiting-round", "the wait")

    second = clients.open("--step-seconds", "15", "--threshold", "3")
    running = {name: clients.join(name) for name in MEMBERS}
    gone = running.pop("c3")
    # After step 2: its masks are in everybody's input.
    until(lambda: "\nshare: sent" in gone.said(), "the second step", gone.process)
    os.kill(gone.process.pid, signal.SIGKILL)
    assert gone.ended() == (-signal.SIGKILL, "")
    for client in running.values():
        assert client.ended() == (0, f"{second}  done\n"), client.said()
    assert clients.view(second)["sent"] == {
        "advertise": 4,
        "share": 4,
        "masked": 3,
        "confirm": 3,
        "reveal": 3,
    }

    with processes.requester() as requester:
        assert requester.wait(receipt.id, timeout=60).state == "certified"
        bundle, evidence = tmp_path / "a.sigstore.json", tmp_path / "a.json"
        bundle.write_bytes(requester.certificate(receipt.id))
        evidence.write_bytes(requester.evidence(receipt.id))
    head = tmp_path / "after.safetensors"
    with processes.operator() as operator:
        head.write_bytes(operator.artifact(MODEL, 2))
    keys = processes.directory / "data" / "keys"
    verified = processes.cli(
        *("certificate", "verify", str(bundle), "--keys", str(keys), "--json"),
        *("--evidence", str(evidence), "--model", str(head)),
    )
    assert json.loads(verified.stdout)["result"] == "PASS", verified.stdout
    checks = json.loads(evidence.read_bytes())["report"]["checks"]
    assert checks[0]["name"] == "masked-rounds-summed"
    assert head.read_bytes() == head_of_retained(tmp_path, {"r1", "r6"})
    assert processes.cli("log", "fsck").returncode == 0


def all_wait(requester: Client, receipts: list[Receipt]) -> bool:
    return all(requester.status(one.id).state == "awaiting-round" for one in receipts)


def head_of_retained(directory: Path, erased: set[str]) -> bytes:
    """Return the head file of training on the rows of all members but the erased."""
    described = manifest()
    exponents = tuple(described["exponents"])
    config = RidgeConfig(
        len(exponents),
        len(described["classes"]),
        exponents,
        described["bits"],
        described["penalty"],
    )
    kept = []
    for name in MEMBERS:
        local = load_rows(directory / f"{name}.npz")
        places = [i for i, record in enumerate(local.records) if record not in erased]
        kept.append(quantise(local, places, described))
    assert len(MEMBERS) < CLIENTS
    return encode_head(METHOD.refit(config, kept).state.head, config)


def test_the_demonstrations_data_holders(on_files: Processes) -> None:
    """All clients in one process, as `lethe demo` has them."""
    on_files.start_api()
    on_files.start_worker()
    arrays = rows()
    owners = arrays["clients"].tolist()
    local = LocalRows(
        arrays["features"], arrays["labels"], owners, arrays["records"].tolist(), owners
    )
    said: list[str] = []
    with RoundClient(on_files.base_url, token=on_files.token) as operator:
        operator.register_key(on_files.key, keyid="alice")
        operator.register_model(manifest(data="masked", masked=ALONE))
        holders = DataHolders(on_files.base_url, operator, MODEL, local)
        holders.register()
        assert holders.round(add=True, say=said.append)["state"] == "done"
        with on_files.requester() as requester:
            receipts = [
                requester.submit_erasure(MODEL, records=["r7"]),
                requester.submit_erasure(MODEL, client="c3"),
            ]
            until(lambda: all_wait(requester, receipts), "both to wait for a round")
            ended = holders.round(add=False, say=said.append)
            assert (ended["state"], ended["requests"]) == ("done", 2)
            states = {requester.wait(r.id, timeout=60).state for r in receipts}
    assert states == {"certified"}
    assert len(said) == 2
