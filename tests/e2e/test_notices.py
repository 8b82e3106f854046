"""A worker process sends notices, is killed at it, and the next one sends the rest."""

import json

import pytest
from standardwebhooks import Webhook

from app.notices import deliver
from lethe.catalogue import NOTICES
from tests.app.notices.receiver import Receiver, receiving
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
