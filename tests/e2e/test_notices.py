"""A worker process sends notices, is killed at it, and the next one sends the rest."""

import json
from base64 import b64decode

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from standardwebhooks import Webhook

from app.notices import deliver
from lethe.catalogue import NOTICES
from lethe.client import verify_callback
from tests.app.notices.receiver import Receiver, receiving
from tests.app.protocols.conftest import DOMAIN, write_processor
from tests.app.protocols.test_opendsr import EXAMPLE
from tests.e2e import harness
from tests.e2e.harness import Processes, until
from tests.small import MODEL


def told(receiver: Receiver) -> dict[str, tuple[str, int]]:
    """Return type and log index of each notice by its webhook-id."""
    found = {}
    for headers, body in tuple(receiver.seen):
        notice = json.loads(body)
        found[headers["webhook-id"]] = notice["type"], notice["data"]["log_index"]
    return found


def test_a_killed_worker_leaves_its_notices_to_the_next(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "PATIENCE", 60 + deliver.LEASE_S)  # it was leased when it died
    processes.more = {"LETHE_WEBHOOK_ALLOW": "127.0.0.1"}
    processes.start_api()
    processes.start_worker()
    processes.register()
    with receiving() as receiver, processes.operator() as operator:
        made = operator.add_webhook({"url": receiver.url, "events": list(NOTICES)})
        with processes.requester() as requester:
            ids = [requester.submit_erasure(MODEL, records=[f"r{n}"]).id for n in range(3)]
            until(lambda: bool(receiver.seen), "the first notice", processes.worker)
            processes.kill()
            processes.restart()
        with processes.requester() as requester:
            histories = [requester.wait(one, timeout=60).history for one in ids]

        def owed() -> set[tuple[str, int]]:
            return {
                (item.event, item.log_index)
                for history in histories
                for item in history
                if item.event in ("request.received", "request.certified")
            }

        until(lambda: owed() <= set(told(receiver).values()), "all notices", processes.worker)
        notices = told(receiver)
        # Sent twice at most under one id: no notice has two.
        assert len(set(notices.values())) == len(notices)
        for headers, body in receiver.seen:
            Webhook(made["secret"]).verify(body, headers)


def test_a_worker_calls_back_requesters_and_controllers(processes: Processes) -> None:
    """The worker words both kinds itself: it has the keys, and no web application."""
    key = generate_private_key(65537, 2048)
    write_processor(processes.settings.keys_dir, key)
    processes.more = {"LETHE_CALLBACK_ALLOW": "127.0.0.1", "LETHE_OPENDSR_DOMAIN": DOMAIN}
    processes.start_api()
    processes.start_worker()
    processes.register()
    with receiving() as receiver, processes.requester() as requester:
        asked = requester.submit_erasure(MODEL, records=["r1"], callback=receiver.url)
        requester.wait(asked.id, timeout=60)

        def certified() -> bool:
            return any(b'"certified"' in body for _, body in tuple(receiver.seen))

        until(certified, "the callback", processes.worker)
        service_key = requester.callback_key()
        said = [verify_callback(service_key, *one) for one in receiver.seen]
    assert said[-1]["data"]["state"] == "certified"
    assert {one["data"]["ref"] for one in said} == {asked.ref}
    made = processes.cli("token", "new", "--scope", "agent", "--name", "controller")
    sent = EXAMPLE | {"status_callback_urls": []}
    with receiving() as receiver:
        sent["status_callback_urls"] = [receiver.url]
        answer = httpx2.post(
            f"{processes.base_url}/dsr/requests",
            json=sent,
            headers={"authorization": f"Bearer {made.stdout.strip()}"},
        )
        assert answer.status_code == 201, answer.text
        until(lambda: bool(receiver.seen), "the controller's callback", processes.worker)
        [(headers, body)] = receiver.seen
    signature = b64decode(headers["x-opendsr-signature"])
    key.public_key().verify(signature, body, PKCS1v15(), SHA256())
    assert json.loads(body)["request_status"] == "completed"  # nobody here has that address
