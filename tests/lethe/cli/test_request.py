"""`lethe request` against a service on a socket that verifies every signature."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lethe.cli.request import request
from lethe.client import ProblemError, ReceiptError, ScopeError, WaitTimeoutError
from lethe.log.note import NoteError
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import fingerprint, private_pem, public_of
from tests.lethe.client.service import DUE, SIGNER, TOKEN, FakeService, Lost, problem, serve
from tests.lethe.client.test_receipts import STRANGER
from tests.lethe.signing.signer import ED25519


@dataclass
class Desk:
    """A requester's files, and the service they talk to."""

    service: FakeService
    key: str
    log_key: Path

    def run(self, command: str, *arguments: str) -> Result:
        environment = {"LETHE_URL": self.service.base}
        return CliRunner().invoke(request, [command, *arguments], env=environment)

    def submit(self, *arguments: str) -> Result:
        return self.run("submit", "--key", self.key, "--model", "digits", *arguments)

    def submitted(self, *arguments: str) -> str:
        result = self.submit("--record", "r1", "--json", *arguments)
        assert result.exit_code == 0, result.output
        request_id: str = json.loads(result.stdout.splitlines()[0])["id"]
        return request_id


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    service = FakeService()
    service.keys = {fingerprint(ED25519): public_of(ED25519), "k1": public_of(ED25519)}
    (tmp_path / "me.pem").write_text(private_pem(ED25519))
    (tmp_path / "log.vkey").write_text(SIGNER.verifier.vkey + "\n")
    with serve(service):
        yield Desk(service, str(tmp_path / "me.pem"), tmp_path / "log.vkey")


def test_a_submission_shows_its_receipt(desk: Desk) -> None:
    result = desk.submit("--record", "r1", "--record", "r2", "--log-key", str(desk.log_key))
    assert result.exit_code == 0, result.output
    (stored,) = desk.service.requests.values()
    assert stored.document["scope"] == {"level": "sample", "records": ["r1", "r2"]}
    assert result.stdout.splitlines() == [
        f"request      {stored.id}",
        f"reference    {stored.ref}",
        "state        received",
        f"due          {DUE}",
        "log entry    2 of 3, inclusion verified",
    ]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_warnings_go_to_stderr_and_nowhere_else(desk: Desk, options: tuple[str, ...]) -> None:
    desk.service.warnings = ["two", "lines\x1b[2J"]
    result = desk.submit("--record", "r1", *options)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ["warning: two", "warning: lines\ufffd[2J"]
    assert "warning: " not in result.stdout


def test_a_method_that_cannot_be_certified_is_named_before_anything_is_sent(
    desk: Desk,
) -> None:
    few = "cannot be certified on 1 record\x1b[2J."
    desk.service.preview = {"records": 1, "pairs": 1, "needed": 9, "warnings": [few]}
    result = desk.submit("--record", "r1", "--method", "puf-special")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: not sent: cannot be certified on 1 record\ufffd[2J. "
        "--allow-escalation sends it all the same."
    ]
    assert not desk.service.requests
    desk.submitted("--method", "puf-special", "--allow-escalation")
    assert len(desk.service.requests) == 1


def test_a_default_method_that_cannot_be_certified_is_named_once_and_sent(desk: Desk) -> None:
    few = "cannot be certified on 1 record."
    desk.service.preview = {"records": 1, "pairs": 1, "needed": 9, "warnings": [few]}
    desk.service.warnings = [few, "mind"]
    result = desk.submit("--record", "r1")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [f"warning: {few}", "warning: mind"]
    assert len(desk.service.requests) == 1


def test_a_preview_sends_nothing(desk: Desk) -> None:
    desk.service.preview["warnings"] = ["mind"]
    result = desk.submit("--record", "r1", "--preview")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["records      1", "method       retrain"]
    assert result.stderr == "warning: mind\n"
    assert (
        json.loads(desk.submit("--client", "c", "--preview", "--json").stdout)["records"] == 1
    )
    assert not desk.service.requests


def test_without_the_logs_key_nothing_is_called_verified(desk: Desk) -> None:
    result = desk.submit("--client", "c1", "--keyid", "k1")
    assert "not verified: give --log-key" in result.stdout
    assert desk.service.signed[0].keyid == "k1"


def test_json_is_the_services_own(desk: Desk) -> None:
    result = desk.submit("--subject", "s1", "--regulation", "ccpa", "--json")
    document = json.loads(result.stdout)
    assert document["receipt"]["log_index"] == 2
    (stored,) = desk.service.requests.values()
    assert stored.document["regulation"] == "ccpa"
    assert stored.document["scope"] == {"level": "subject", "subject": "s1"}


def test_a_repeated_idempotency_key_is_the_same_request(desk: Desk) -> None:
    first = desk.submitted("--idempotency-key", "order 1")
    assert desk.submitted("--idempotency-key", "order 1") == first


def test_the_address_of_a_callback_is_in_the_signed_body(desk: Desk) -> None:
    desk.submitted("--callback", "https://a.example/x")
    desk.submitted()
    sent = [one.document.get("callback") for one in desk.service.requests.values()]
    assert sent == ["https://a.example/x", None]


def test_a_lost_answer_is_asked_for_again(desk: Desk) -> None:
    desk.service.faults = deque([None, Lost(handled=True)])
    request_id = desk.submitted()
    assert list(desk.service.requests) == [request_id]
    assert len(desk.service.signed) == 3


@pytest.mark.parametrize(
    ("end", "code"), [("certified", 0), ("failed", 1), ("refused", 1), ("withdrawn", 1)]
)
def test_watching_ends_with_the_outcome_as_exit_code(desk: Desk, end: str, code: int) -> None:
    desk.service.states = ("received", "executing", end)
    request_id = desk.submitted()
    result = desk.run("watch", request_id)
    assert [line.split()[-1] for line in result.stdout.splitlines()] == [
        "received",
        "executing",
        end,
    ]
    assert result.exit_code == code


def test_watching_follows_the_stream_where_there_is_one(desk: Desk) -> None:
    desk.service.states = ("received", "executing", "certified")
    desk.service.stream = "".join(f"event: history\nid: {n}\ndata: {{}}\n\n" for n in range(9))
    result = desk.run("watch", desk.submitted())
    assert [line.split()[-1] for line in result.stdout.splitlines()] == [
        "received",
        "executing",
        "certified",
    ]
    assert result.exit_code == 0


def test_submitting_may_go_on_to_watch(desk: Desk) -> None:
    result = desk.submit("--record", "r1", "--watch", "--json")
    assert result.exit_code == 0
    states = [json.loads(line)["state"] for line in result.stdout.splitlines()]
    assert states == ["received", "received", "executing", "verifying", "certified"]


def test_watching_has_an_end(desk: Desk) -> None:
    desk.service.states = ("executing",)
    result = desk.run("watch", desk.submitted(), "--timeout", "0.2")
    assert isinstance(result.exception, WaitTimeoutError)


def test_the_status_is_shown_with_its_history(desk: Desk) -> None:
    desk.service.states = ("refused",)
    request_id = desk.submitted()
    result = desk.run("status", request_id)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"request      {request_id}",
        "model        digits",
        "state        refused",
        f"due          {DUE}",
        "reason       the model is gone",
        "certificate  none yet",
        f"             {DUE}  request.refused, log entry 0",
    ]
    document = json.loads(desk.run("status", request_id, "--json").stdout)
    assert document["state"] == "refused"


def test_the_status_says_on_which_attempt_it_is_and_what_comes_next(desk: Desk) -> None:
    desk.service.states = ("escalated",)
    desk.service.attempt = {"number": 2, "method": "hf-kcu", "ahead": ["retrain", "decision"]}
    lines = desk.run("status", desk.submitted()).stdout.splitlines()
    assert "attempt      2: hf-kcu, then retrain, then decision" in lines
    desk.service.attempt = {"number": 1, "method": "hf-kcu", "ahead": ["retrain", "decision"]}
    assert "attempt" not in desk.run("status", desk.submitted()).stdout


RECOVERY = {"phase": "recovery\x1b[2J", "done": 1, "total": 2, "unit": "rounds"}
SHOWN = "progress     recovery\ufffd[2J, 1 of 2 rounds done"


def test_the_status_says_how_much_of_a_long_computation_is_done(desk: Desk) -> None:
    desk.service.states = ("executing",)
    assert "progress" not in desk.run("status", desk.submitted()).stdout
    desk.service.progress = RECOVERY
    request_id = desk.submitted()
    assert SHOWN in desk.run("status", request_id).stdout.splitlines()
    document = json.loads(desk.run("status", request_id, "--json").stdout)
    assert document["progress"] == RECOVERY


def test_who_watches_on_a_terminal_sees_the_rounds_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.service.states = ("executing", "certified")
    desk.service.progress = RECOVERY
    in_a_file = desk.run("watch", desk.submitted())
    assert in_a_file.stderr == ""
    monkeypatch.setattr("lethe.cli.text.waiting.on_terminal", lambda: True)
    watched = desk.run("watch", desk.submitted())
    bar = "request: executing, recovery\ufffd[2J [#####-----] 1/2 rounds, 0 s"
    assert bar in watched.stderr
    assert watched.stderr.endswith(" \r")
    assert watched.stdout == in_a_file.stdout


def test_a_request_is_withdrawn_by_its_key(desk: Desk) -> None:
    request_id = desk.submitted()
    result = desk.run("withdraw", request_id, "--key", desk.key)
    assert result.exit_code == 0
    assert "state        withdrawn" in result.stdout
    assert len(desk.service.signed) == 3
    again = desk.run("withdraw", request_id, "--key", desk.key, "--json")
    assert json.loads(again.stdout)["state"] == "withdrawn"


def test_an_operator_withdraws_with_the_token_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = desk.submitted()
    assert desk.run("withdraw", request_id).exit_code == 2  # neither a key nor a token
    monkeypatch.setenv("LETHE_TOKEN", TOKEN)
    assert desk.run("withdraw", request_id, "--keyid", "k1").exit_code == 2
    result = desk.run("withdraw", request_id)
    assert result.exit_code == 0, result.output
    assert "state        withdrawn" in result.stdout
    assert "signature" not in desk.service.seen[-1].headers
    assert len(desk.service.signed) == 2  # the preview and the submission


def test_a_receipt_of_another_log_is_refused(desk: Desk) -> None:
    desk.log_key.write_text(STRANGER.verifier.vkey)
    result = desk.submit("--record", "r1", "--log-key", str(desk.log_key))
    assert isinstance(result.exception, ReceiptError)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), ScopeError),
        (("--record", "r1", "--client", "c"), ScopeError),
        (("--record", "r1", "--model", "absent"), ProblemError),
        (("--record", "r1", "--keyid", "nobody"), ProblemError),
    ],
    ids=["no scope", "two scopes", "unknown model", "unknown key"],
)
def test_refusals_are_errors_with_a_name(
    desk: Desk, arguments: tuple[str, ...], error: type[Exception]
) -> None:
    assert isinstance(desk.submit(*arguments).exception, error)
    assert desk.service.requests == {}


def test_a_keyid_that_nobody_typed_is_named_if_it_is_unknown(desk: Desk) -> None:
    derived = fingerprint(ED25519)
    del desk.service.keys[derived]
    told = [
        str(desk.submit("--record", "r1", *more).exception) for more in ((), ("--keyid", "me"))
    ]
    assert told[0].startswith("no key is registered under this keyid: ")
    assert f"it was {derived}, the key's fingerprint" in told[0]
    assert "give --keyid" in told[0]
    assert told[1].startswith("no key is registered under this keyid: ")
    assert derived not in told[1]


def test_another_refusal_says_nothing_of_the_keyid(desk: Desk) -> None:
    error = desk.submit("--record", "r1", "--model", "absent").exception
    assert str(error) == "no model has this reference"


def test_the_earlier_request_is_named_by_its_reference(desk: Desk) -> None:
    said = "an earlier request covers this data: follow that one"
    members = {"ref": "0190-ref\x1b[2J", "request": "0190-capability"}
    desk.service.faults = deque([None, problem(409, "already-erased", said, **members)])
    error = desk.submit("--record", "r1").exception
    assert isinstance(error, ProblemError)
    assert error.detail == f"{said} (reference 0190-ref\ufffd[2J)"
    assert (error.slug, error.members["request"]) == ("already-erased", "0190-capability")


def test_records_of_a_list_are_named_by_their_places(desk: Desk) -> None:
    problems = [
        problem(403, "key-not-entitled", "not theirs", places=places)
        for places in ("2", "2, 9, x", "0", "9", "\u00b2", "9" * 5000)
    ]
    desk.service.faults = deque(one for refusal in problems for one in (None, refusal))
    details = []
    for _ in problems:
        error = desk.submit("--record", "r1", "--record", "r2\x1b").exception
        assert isinstance(error, ProblemError)
        details.append(error.detail)
    assert details == ["not theirs (records r2\ufffd)"] * 2 + ["not theirs"] * 4


@pytest.mark.parametrize("content", [b"", b"not a vkey", b"\xff\xfe"])
def test_a_file_that_is_no_key_is_named(desk: Desk, content: bytes) -> None:
    desk.log_key.write_bytes(content)
    result = desk.submit("--record", "r1", "--log-key", str(desk.log_key))
    assert isinstance(result.exception, NoteError)
    assert f"--log-key: {desk.log_key.name} is not the log's key" in result.exception.detail
    Path(desk.key).write_bytes(content)
    assert isinstance(desk.submit("--record", "r1").exception, KeyFormatError)
    assert desk.service.seen == []


def test_an_unknown_request_is_a_problem(desk: Desk) -> None:
    for command in ("status", "watch"):
        result = desk.run(command, "0190")
        assert isinstance(result.exception, ProblemError)


def test_the_service_cannot_paint_the_terminal(desk: Desk) -> None:
    desk.service.states = ("\rcertified\x07", "certified")  # click itself strips only colours
    watched = desk.run("watch", desk.submitted()).stdout
    assert "\r" not in watched
    assert "\x07" not in watched
