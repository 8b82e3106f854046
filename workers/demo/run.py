"""The demonstration from start to end, as a newcomer sees it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import click

from lethe.client import Client
from lethe.log.fetch import fetch_from
from lethe.log.follow import mirror_log
from lethe.log.note import NoteVerifier, parse_log_vkey
from lethe.signing.keys import generate_key, private_pem
from workers.data.digits import load_digits
from workers.data.extractors.base import Extractor
from workers.data.extractors.identity import Identity
from workers.data.extractors.random_relu import RandomRelu
from workers.data.npz import load_npz
from workers.demo.directory import (
    SERVICE,
    SERVICE_LOG,
    check_directory,
    make_directory,
    write_private,
)
from workers.demo.kept import certificate_file, keep_answer, keep_certificate, say_where
from workers.demo.masked import HOLDERS, DataHolders, gathered
from workers.demo.measure import accuracy, compare
from workers.demo.plan import Wish, plan_requests
from workers.demo.service import DemoError, LocalService, stopped_on_failure
from workers.demo.table import TableRow, print_table, verify_all
from workers.registration.ridge import RidgeRegistration, prepare
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.local import parse_rows

MODEL = "demo"
FIT_SECONDS, REQUEST_SECONDS = 300, 120
WISHES_A_ROUND = 5  # released together by one masked round


@dataclass(frozen=True, slots=True)
class Running:
    """The service under demonstration."""

    local: LocalService
    base_url: str
    token: str


def run(
    data: Path | None, method: str, out: Path, keep_serving: bool, *, masked: bool = False
) -> None:
    """Run the demonstration into `out`; masked: on a model whose rows stay with their holders.

    Raises:
        DemoError: Something did not work; the message says what and where to look.
        ModelError: The data file cannot be used; nothing was deleted or made.
    """
    check_directory(out, data)
    prepared = _prepare_data(data, method, masked)
    wishes, untouched = plan_requests(prepared.records, prepared.clients)
    size = WISHES_A_ROUND if masked else 1

    def compare_heads(outcomes: list[TableRow]) -> None:
        _compare(out, prepared, outcomes)

    demonstrate(
        out,
        data,
        Demonstrated(prepared, wishes, untouched, size, compare_heads, masked),
        keep_serving,
    )


class Prepared(Protocol):
    """A prepared registration: see `workers.registration`."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the model."""

    @property
    def npz(self) -> bytes:
        """Its rows."""

    @property
    def records(self) -> list[str]:
        """The ids of its rows."""


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """What a demonstration registers and requests.

    together: the number of requests submitted at a time. compare: compares the models before
    and after at the end, and raises DemoError if the latter is not as it must be.
    """

    prepared: Prepared
    wishes: list[Wish]
    untouched: list[str]
    together: int
    compare: Callable[[list[TableRow]], None]
    masked: bool = False


def demonstrate(out: Path, data: Path | None, shown: Demonstrated, keep_serving: bool) -> None:
    """Register, erase, verify offline and compare, with a service of its own in `out`.

    Raises as `run`.
    """

    def serve(running: Running) -> list[TableRow]:
        return _serve(out, running, shown)

    def end(running: Running, outcomes: list[TableRow]) -> None:
        shown.compare(outcomes)
        if keep_serving:
            service = {
                "base_url": running.base_url,
                "operator_token": running.token,
                "model": MODEL,
                "erasable_records": shown.untouched,
                "pid": running.local.pid,
            }
            write_private(out / SERVICE, json.dumps(service, indent=2) + "\n")

    with_service(out, data, serve, end, keep_serving)


def with_service(
    out: Path,
    data: Path | None,
    serve: Callable[[Running], list[TableRow]],
    end: Callable[[Running, list[TableRow]], None],
    keep_serving: bool,
) -> None:
    """Start a service in `out`, serve requests, verify what it certified, and print a table.

    end: called with the table's rows. Raises DemoError if a certificate did not verify.
    """
    make_directory(out, data)
    local = LocalService(out / "data", out / SERVICE_LOG)
    click.echo("Making keys and an empty log, starting the service …")
    local.run_cli("migrate")
    local.run_cli("log", "init")
    token = local.run_cli("token", "new", "--scope", "operator", "--name", "demo").split()[-1]
    with stopped_on_failure(local):
        running = Running(local, local.start(), token)
        outcomes = serve(running)
        if not keep_serving:
            local.stop()
        click.echo("Verifying each certificate offline, in a process of its own …")
        verify_all(out, outcomes)
        print_table(outcomes)
        end(running, outcomes)
    say_where(out, running.base_url, local.pid if keep_serving else None)
    if any(outcome.verdict != "PASS" for outcome in outcomes):
        raise DemoError("a certificate did not verify: see the table")


def _prepare_data(data: Path | None, method: str, masked: bool) -> RidgeRegistration:
    extractor: Extractor
    if data is None:
        federation = load_digits(clients=100)
        extractor = RandomRelu(inputs=64, outputs=256, seed=0, scale=1 / 16)
        click.echo("Data: scikit-learn's digits, 100 clients (Dirichlet), random ReLU features")
    else:
        federation = load_npz(data)
        extractor = Identity(federation.features.shape[1])
        click.echo(f"Data: {data.name}, {len(set(federation.clients.tolist()))} clients")
    if not masked:
        return prepare(federation, extractor, ref=MODEL, method=method)
    click.echo(f"Their rows stay with {HOLDERS} data holders, who send masked sums")
    federation = gathered(federation, HOLDERS)
    # With the rows, which the data holders get; only the manifest is sent.
    prepared = prepare(federation, extractor, ref=MODEL, method=method)
    # A round may complete a single erasure, which nothing hides: a real federation would wait.
    alone = {"contributors": 1, "rows": 1}
    manifest = {**prepared.manifest, "data": "masked", "masked": alone}
    return replace(prepared, manifest=manifest)


def read_log_key(out: Path) -> NoteVerifier:
    """Copy the service's public keys to `out`; return the log's."""
    for name in ("log.vkey", "log-mldsa.vkey", "issuer.pem"):
        shutil.copyfile(out / "data" / "keys" / name, out / "keys" / name)
    return parse_log_vkey((out / "keys" / "log.vkey").read_text().strip())


def keep_last(out: Path, running: Running, operator: Client, log: NoteVerifier) -> None:
    """Write the model's last version and a mirror of the log to `out`."""
    version = max(int(str(row["number"])) for row in operator.versions(MODEL))
    (out / "models" / "after.safetensors").write_bytes(operator.artifact(MODEL, version))
    report = mirror_log(fetch_from(f"{running.base_url}/v1/log"), log, out / "log")
    click.echo(f"Mirrored the log: {report.size} entries, every hash recomputed")


def _serve(out: Path, running: Running, shown: Demonstrated) -> list[TableRow]:
    wishes, size = shown.wishes, shown.together
    keys = {name: generate_key(name) for name in ("ed25519", "ecdsa-p256-sha256")}
    with Client(running.base_url, token=running.token) as operator:
        for name, key in keys.items():
            operator.register_key(key, keyid=f"requester-{name}")
            write_private(out / "keys" / f"requester-{name}.pem", private_pem(key))
        log = read_log_key(out)
        holders = _register(running, shown, operator)
        _wait_until_ready(operator)
        (out / "models" / "before.safetensors").write_bytes(operator.artifact(MODEL, 1))
        outcomes = []
        requesters = [
            Client(running.base_url, f"requester-{name}", key, log=log)
            for name, key in keys.items()
        ]
        for start in range(0, len(wishes), size):
            asked = [
                (requesters[(start + place) % len(requesters)], wish)
                for place, wish in enumerate(wishes[start : start + size])
            ]
            for outcome in _erase(out, operator, asked, holders):
                outcomes.append(outcome)
                place = f"{len(outcomes):2}/{len(wishes)}"
                click.echo(
                    f"  {place}  {outcome.scope:24} certified after {outcome.seconds:.2f} s"
                )
        for requester in requesters:
            requester.close()
        keep_last(out, running, operator, log)
    return outcomes


def _wait_until_ready(operator: Client) -> None:
    deadline = time.monotonic() + FIT_SECONDS
    while time.monotonic() < deadline:
        model = operator.model(MODEL)
        if model["state"] == "ready":
            return
        if model["state"] == "failed":
            raise DemoError(f"the model was not fitted: {model['failure']}")
        time.sleep(0.05)
    raise DemoError("the model was not fitted in time: see service.log")


def _register(running: Running, shown: Demonstrated, operator: Client) -> DataHolders | None:
    """Register the model with its rows, or with the data holders who keep them."""
    prepared = shown.prepared
    click.echo(f"Registering {len(prepared.records)} records, waiting for the fit …")
    if not shown.masked:
        operator.register_model(prepared.manifest, prepared.npz)
        return None
    operator.register_model(prepared.manifest)
    rounds = RoundClient(running.base_url, token=running.token)
    holders = DataHolders(running.base_url, rounds, MODEL, parse_rows(prepared.npz))
    holders.register()
    holders.round(add=True, say=click.echo)
    return holders


def _erase(
    out: Path,
    operator: Client,
    asked: list[tuple[Client, Wish]],
    holders: DataHolders | None,
) -> Iterator[TableRow]:
    """Submit some wishes and yield them certified; masked ones wait for a common round.

    The operator submits a person's requests, on their behalf.
    """
    asked = [(operator if wish.person else sender, wish) for sender, wish in asked]
    start = time.monotonic()
    submitted = [_submit(sender, wish) for sender, wish in asked]
    if holders is not None:
        for (sender, _), (request_id, _) in zip(asked, submitted, strict=True):
            _wait_for_round(sender, request_id)
        holders.round(add=False, say=click.echo)
    for (sender, wish), (request_id, case) in zip(asked, submitted, strict=True):
        status = sender.wait(request_id, timeout=REQUEST_SECONDS)
        seconds = time.monotonic() - start
        if status.state != "certified":
            raise DemoError(f"a request ended {status.state}: see service.log")
        kept = keep_certificate(out, sender, request_id)
        if case is not None:
            keep_answer(out, sender.case_summary(case), kept)
            sender.close_case(case)
        yield TableRow(wish.label, wish.records, wish.client, kept, seconds)


def _submit(sender: Client, wish: Wish) -> tuple[str, str | None]:
    """Send a wish; return its request's id and, for a person, the id of the case."""
    if wish.person is not None:
        case = sender.open_case(wish.person, "DEMO-1", checked="the demonstration made it up")
        (part,) = case["parts"]
        if part["request"] is None:
            raise DemoError(f"nothing of the person can be erased: {part['outcome']}")
        return str(part["request"]), str(case["ref"])
    if wish.records:
        return sender.submit_erasure(MODEL, records=wish.records).id, None
    # A subject's name includes its client's, so that exactly one of the three is sent.
    return sender.submit_erasure(MODEL, client=wish.client, subject=wish.subject).id, None


def _wait_for_round(requester: Client, request_id: str) -> None:
    deadline = time.monotonic() + REQUEST_SECONDS
    while requester.status(request_id).state != "awaiting-round":
        if time.monotonic() > deadline:
            raise DemoError("a request does not wait for its round: see service.log")
        time.sleep(0.05)


def _compare(out: Path, prepared: RidgeRegistration, outcomes: list[TableRow]) -> None:
    before = (out / "models" / "before.safetensors").read_bytes()
    after = (out / "models" / "after.safetensors").read_bytes()
    erased = {record for outcome in outcomes for record in outcome.records}
    clients = {outcome.client for outcome in outcomes if outcome.client is not None}
    scores = [accuracy(head, prepared.features, prepared.labels) for head in (before, after)]
    click.echo(f"Held-out accuracy: {scores[0]:.3f} before, {scores[1]:.3f} after")
    certificate = certificate_file(out, outcomes[-1].id).read_bytes()
    found = compare(after, certificate, prepared, erased, clients)
    for line in found.lines:
        click.echo(line)
    if not found.agrees:
        raise DemoError("the unlearned head is not what retraining gives")
