"""Faults of requests, of their execution and of the notices about them."""

from collections.abc import Iterator

from tests.app.notices.receiver import receiving
from tests.e2e.alerts.fault import Faults, Said
from tests.e2e.alerts.installation import MODELS, MONTH_H, REVIEWED, Watched
from tests.e2e.alerts.of_processes import moved
from tests.e2e.harness import until
from tests.small import MODEL

FAULTS = Faults()


@FAULTS.add(
    "LetheQueueStands",
    "the worker is killed, a request is accepted, and the API's clock is set two hours ahead",
    "`lethe worker --beat` is started",
    "LetheProcessAway",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    made.stop_worker()
    request = made.submit()
    made.restart_api(LETHE_TEST_HOURS_AHEAD="2")
    yield
    made.restart_worker()
    yield
    made.restart_api()
    made.until_state(request, "certified")


def in_review(made: Watched, hours: int) -> str:
    """Have a request wait for an officer's review, and the API's clock go on.

    To that clock the lease of the schedule, which the worker's clock made, has expired.
    """
    request = made.submit(REVIEWED)
    made.restart_api(LETHE_TEST_HOURS_AHEAD=str(hours))
    return request


@FAULTS.add(
    "LetheRequestDueSoon",
    "a request waits for its review, and the API's clock is set 24 days ahead",
    "`lethe case list --due-within 10` names it; `lethe case extend` extends its deadline",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    request = in_review(made, 24 * 24)
    yield
    (found,) = made.listed("case", "list", "--due-within", "10")
    assert found["ref"] == made.refs[request]
    made.command("case", "extend", found["ref"], "--reason", "complexity")
    yield
    made.restart_api()
    with made.requester() as client:
        client.withdraw(request)


@FAULTS.add(
    "LetheRequestOverdue",
    "a request waits for its review, and the API's clock is set 32 days ahead",
    "`lethe case list --overdue` names it; `lethe case refuse` answers it",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    request = in_review(made, MONTH_H + 24)
    yield
    (found,) = made.listed("case", "list", "--overdue")
    assert found["ref"] == made.refs[request]
    made.command("case", "refuse", found["ref"], "--reason", "no-ground")
    yield
    made.restart_api()


def undecided(made: Watched, record: int) -> str:
    """Have a worker die at a request's execution, so that it waits for a decision."""
    made.restart_worker("execute.computed=kill")
    request = made.submit(record=record)
    until(lambda: made.processes.worker.poll() is not None, "its death")  # type: ignore[union-attr]
    made.restart_worker()
    made.until_state(request, "needs-decision")
    return request


def decide(made: Watched, request: str, decision: str, why: str) -> None:
    """Find the one request that needs it as an operator does, and decide on it."""
    (found,) = made.listed("case", "list", "--state", "needs-decision")
    with made.processes.operator() as operator:
        (part,) = operator.case(found["ref"])["parts"]
        assert part["request"] == request
        operator.decide(request, decision, why)


@FAULTS.add(
    "LetheDecisionNeeded",
    "a worker dies at a request's execution, with `LETHE_MAX_TRIES=1`",
    "`lethe case list --state needs-decision` names it; an operator has it tried again",
)
def _(made: Watched) -> Iterator[None]:
    request = undecided(made, next(made.records[MODEL]))
    yield
    decide(made, request, "retry", "the worker has more memory")
    made.until_state(request, "certified")


@FAULTS.add(
    "LetheRequestFailed",
    "a worker dies at a request's execution, and an operator abandons the request",
    "`lethe case list --state failed` names it, the worker's log the cause; a new request for "
    "the record is executed",
    "LetheDecisionNeeded",
)
def _(made: Watched) -> Iterator[None]:
    said, record = Said.by(made, "worker"), next(made.records[MODEL])
    request = undecided(made, record)
    decide(made, request, "abandon", "it kills each worker")
    made.until_state(request, "failed")
    yield
    listed = made.listed("case", "list", "--state", "failed")
    assert made.refs[request] in [one["ref"] for one in listed]
    assert said.times("its worker died") == 1
    made.until_state(made.submit(record=record), "certified")


@FAULTS.add(
    "LetheStageErrors",
    "the folder of artifacts is moved away, and a request for each of four models is sent",
    "the worker's log names the error; the folder is put back, and each is tried again",
    "LetheNotReady of artifacts",
    "LetheDecisionNeeded",
)
def _(made: Watched) -> Iterator[None]:
    said = Said.by(made, "worker")
    with moved(made.data / "artifacts"):
        requests = [made.submit(model) for model in MODELS]
        yield
        assert said.times("SealError at execute") > 0
    for request in requests:
        made.until_state(request, "certified")


@FAULTS.add(
    "LetheNoticesFail",
    "the endpoint of a webhook answers 410 Gone",
    "`lethe webhook show` names what failed; the endpoint is mended, `lethe webhook enable` "
    "and `replay` send it again",
)
def _(made: Watched) -> Iterator[None]:
    with receiving() as receiver, made.processes.operator() as operator:
        for _ in range(10):
            receiver.answer(410)
        operator.add_webhook({"url": receiver.url, "events": ["request.received"]})
        made.until_state(made.submit(), "certified")
        yield
        (webhook,) = (one["id"] for one in made.listed("webhook", "list"))
        shown = made.command("webhook", "show", webhook).stdout
        assert "failed" in shown, shown
        receiver.answers.clear()
        made.command("webhook", "enable", webhook)
        made.command("webhook", "replay", webhook)
        yield
        made.command("webhook", "remove", webhook)
