"""`lethe demo --method puf-special …`: a network forgets by signed request.

The service does not certify an approximate method that its verifier cannot confirm: it
escalates to retraining, and the demonstration prints the whole escalation. On digits this
always happens, because a network that hardly memorises gives the attacks nothing to find before
unlearning. Images of a file are memorised: few of them, over many passes, with as many held
out.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import numpy as np

from lethe.cli.text.waiting import Waiting
from lethe.client import Client
from lethe.client.answers import RequestStatus, parse_progress
from lethe.signing.keys import generate_key, private_pem
from workers.data.digits import load_digit_images
from workers.data.image_npz import load_image_npz
from workers.data.images import LabelledImages
from workers.demo import certified
from workers.demo.directory import check_directory, write_private
from workers.demo.kept import keep_certificate
from workers.demo.network_measure import accuracies, retrained_digest
from workers.demo.plan import Wish
from workers.demo.run import MODEL, Running, keep_last, read_log_key, with_service
from workers.demo.service import DemoError
from workers.demo.table import TableRow
from workers.registration.network import (
    NetworkOptions,
    NetworkRegistration,
    deal_out,
    prepare_network,
)

SEED = 0
LOCAL = {"epochs": 2.0, "batch_size": 32, "learning_rate": 0.05, "momentum": 0.9}
RECOVERY = {"rounds": 2, "epochs": 1.0}
SETTLED = {"rounds": 1, "epochs": 1.0, "settle": 0.3}
GUARD = {"rise": 8.0, "shrink": 0.7, "trials": 30, "forget_rows": 300}
APPROXIMATE = ("puf-special", "puf-regular", "hf-kcu")
PUF = {"unlearning_rate": 2.0, "cycles": 4, "recovery": SETTLED}
TRAIN_SECONDS, REQUEST_SECONDS, POLL_SECONDS = 7200, 14400, 0.2
RECORDS = 5  # of the second request


@dataclass(frozen=True, slots=True)
class DemoFederation:
    """How images are dealt and trained on, and the settings of the methods.

    rows: the maximum number of training images, drawn by SEED. clients and alpha: of the
    Dirichlet partition over labels. rounds: the default.
    """

    rows: int | None
    clients: int
    alpha: float
    rounds: int
    local: Mapping[str, Any]
    held_out: float
    settings: Mapping[str, Mapping[str, Any]]


DIGITS = DemoFederation(
    rows=None,
    clients=10,
    alpha=0.1,
    rounds=12,
    local=LOCAL,
    held_out=0.2,
    settings={name: {"recovery": RECOVERY} for name in APPROXIMATE},
)
# Half of the rows are held out: the largest client has at least 310 pairs. Forty passes over
# few rows memorise them, and the step ends when the loss of the erased rows is that of unseen
# rows.
IMAGES = DemoFederation(
    rows=3000,
    clients=3,
    alpha=1.0,
    rounds=8,
    local={**LOCAL, "epochs": 5.0},
    held_out=0.5,
    settings={
        "puf-special": {**PUF, "guard": {**GUARD, "forget": 1.75}},
        "puf-regular": {**PUF, "unlearning_rate": 20.0, "guard": {**GUARD, "forget": 1.75}},
        "hf-kcu": {
            "form": "influence",
            "drift": "skip",
            "iterations": 3,
            "curvature_rows": 0.1,
            "cycles": 4,
            "recovery": SETTLED,
            "guard": {**GUARD, "forget": 3.0},
        },
    },
)


def run(
    data: Path | None, method: str, out: Path, keep_serving: bool, rounds: int | None
) -> None:
    """Run the demonstration into `out`.

    rounds: of each training, None: those of DIGITS or IMAGES. An approximate method that
    escalates needs six trainings: the model's, a retraining for each request, the repetition of
    each, and one for the comparison.

    Raises:
        DemoError: Something did not work; the message says what and where to look.
        ModelError: The data file cannot be used; nothing was deleted or made.
    """
    check_directory(out, data)
    if data is not None and method == certified.NOISY:
        training = {"rounds": rounds or DIGITS.rounds, "seed": SEED, "local": dict(LOCAL)}
        _run(None, certified.of_features(data, training), data, out, keep_serving)
        return
    images = load_digit_images() if data is None else load_image_npz(data)
    federation = DIGITS if data is None or method in certified.HEADS else IMAGES
    images = drawn(images, federation.rows)
    prepared = prepare(images, method, federation, rounds or federation.rounds)
    _run(images, prepared, data, out, keep_serving)


def _run(
    images: LabelledImages | None,
    prepared: NetworkRegistration,
    data: Path | None,
    out: Path,
    keep_serving: bool,
) -> None:
    """Serve the requests; images: for measuring the model, None for features of a file."""
    wishes = _wishes(prepared)

    def serve(running: Running) -> list[TableRow]:
        return _serve(out, running, prepared, wishes)

    def end(_: Running, outcomes: list[TableRow]) -> None:
        if images is not None:
            _compare(out, images, prepared, outcomes)

    with_service(out, data, serve, end, keep_serving)


def drawn(images: LabelledImages, rows: int | None) -> LabelledImages:
    """Return the images with at most `rows` training rows, in their order."""
    learned = np.flatnonzero(~images.is_test)
    if rows is None or len(learned) <= rows:
        return images
    chosen = np.random.Generator(np.random.PCG64(SEED)).choice(learned, rows, replace=False)
    kept = images.is_test.copy()
    kept[chosen] = True
    return replace(
        images,
        images=images.images[kept],
        labels=images.labels[kept],
        is_test=images.is_test[kept],
        clients=None if images.clients is None else images.clients[kept],
    )


def prepare(
    images: LabelledImages, method: str, federation: DemoFederation, rounds: int
) -> NetworkRegistration:
    """Return the registration of the images, dealt to clients unless they name their own."""
    training = {"rounds": rounds, "seed": SEED, "local": dict(federation.local)}
    owners = images.clients
    if owners is None:
        owners = deal_out(images, federation.clients, federation.alpha, SEED)
    options = NetworkOptions(
        method=method,
        training=training,
        settings=federation.settings if method in federation.settings else {},
        held_out=federation.held_out,
    )
    if method in certified.HEADS:
        options = certified.options(method, images, training)
    prepared = prepare_network(images, owners, ref=MODEL, options=options)
    click.echo(
        f"Data: {len(prepared.records)} images of {len(set(prepared.clients))} clients; "
        f"{prepared.manifest['network']['id']}, FedAvg, {rounds} rounds of "
        f"{federation.local['epochs']:g} epochs"
    )
    return prepared


def _wishes(prepared: NetworkRegistration) -> list[Wish]:
    """Return two requests: the largest client, and a few records of the next."""
    order = [client for client, _ in Counter(prepared.clients).most_common()]
    if len(order) < 3:
        raise DemoError("the demonstration needs three clients: the data has fewer")
    pairs = list(zip(prepared.records, prepared.clients, strict=True))
    largest = sum(client == order[0] for _, client in pairs)
    few = tuple(record for record, client in pairs if client == order[1])[:RECORDS]
    return [
        Wish(f"client, {largest} records", client=order[0]),
        Wish(f"{len(few)} records", few),
    ]


def _serve(
    out: Path, running: Running, prepared: NetworkRegistration, wishes: list[Wish]
) -> list[TableRow]:
    key, log = generate_key("ed25519"), read_log_key(out)
    outcomes = []
    with Client(running.base_url, token=running.token) as operator:
        operator.register_key(key, keyid="requester")
        write_private(out / "keys" / "requester.pem", private_pem(key))
        click.echo(f"Registering {len(prepared.records)} records, training …")
        operator.register_model(prepared.manifest, prepared.npz)
        wait_until_trained(operator)
        (out / "models" / "before.safetensors").write_bytes(operator.artifact(MODEL, 1))
        with Client(running.base_url, "requester", key, log=log) as requester:
            for wish in wishes:
                outcomes.append(erase(out, requester, wish))
        keep_last(out, running, operator, log)
    return outcomes


def wait_until_trained(operator: Client) -> None:
    """Wait until the model has a version. Exits if it takes more than TRAIN_SECONDS."""
    deadline = time.monotonic() + TRAIN_SECONDS
    with Waiting("model") as waiting:
        while (model := operator.model(MODEL))["state"] == "registered":
            if time.monotonic() > deadline:
                raise DemoError("the model was not trained in time: see service.log")
            waiting.tell("registered", parse_progress(model))
            time.sleep(POLL_SECONDS)
    if model["state"] != "ready":
        raise DemoError(f"the model was not trained: {model['failure']}")
    click.echo(f"  model: trained after {waiting.seconds:.1f} s")


def erase(out: Path, requester: Client, wish: Wish) -> TableRow:
    """Submit one request, wait for its end, and write and verify its certificate."""
    if wish.client is not None:
        receipt = requester.submit_erasure(MODEL, client=wish.client)
    else:
        receipt = requester.submit_erasure(MODEL, records=wish.records)
    deadline = time.monotonic() + REQUEST_SECONDS
    with Waiting(wish.label) as waiting:
        while not (status := requester.status(receipt.id)).final:
            if time.monotonic() > deadline:
                raise DemoError("a request was not certified in time: see service.log")
            waiting.tell(status.state, status.progress)
            time.sleep(POLL_SECONDS)
        seconds = waiting.seconds
    if status.state != "certified":
        raise DemoError(f"a request ended {status.state}: see service.log")
    kept = keep_certificate(out, requester, receipt.id)
    click.echo(f"  {wish.label}: certified after {seconds:.1f} s")
    click.echo(f"    {escalation(status)}")
    return TableRow(wish.label, wish.records, wish.client, kept, seconds)


def escalation(status: RequestStatus) -> str:
    """Return the history of a request: the log's events, which are finer than its states."""
    events = [event.event.removeprefix("request.") for event in status.history]
    said = f"events of the log: {' → '.join(events)}"
    if "escalated" in events:
        said += (
            "\n    escalated: the verifier could not confirm the result; another method follows"
        )
    return said


def _compare(
    out: Path, images: LabelledImages, prepared: NetworkRegistration, outcomes: list[TableRow]
) -> None:
    clients = {outcome.client for outcome in outcomes if outcome.client is not None}
    erased = {record for outcome in outcomes for record in outcome.records}
    for record, client in zip(prepared.records, prepared.clients, strict=True):
        if client in clients:
            erased.add(record)
    for name in ("before", "after"):
        model = (out / "models" / f"{name}.safetensors").read_bytes()
        found = accuracies(model, images, prepared, erased)
        click.echo(
            f"{name:7} accuracy on the test set {100 * found.test:.1f} %, on the erased "
            f"records {100 * found.forget:.1f} %"
        )
    if outcomes[-1].guarantee != "exact-retrained":
        return
    again = retrained_digest(images, prepared, erased)
    click.echo(f"Published model:         sha256 {sha256(model).hexdigest()}")
    click.echo(f"Retrained without them:  sha256 {again}")
    if again != sha256(model).hexdigest():
        raise DemoError("the published model is not what retraining gives")
