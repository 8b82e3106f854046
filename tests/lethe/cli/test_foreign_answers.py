"""No command ends with a traceback because an answer is not one of this API."""

from pathlib import Path

import httpx2
import pytest

from lethe.cli.main import lethe
from lethe.client import AnswerError, Client
from tests.lethe.cli.foreign import NAME, Foreign, check_refused, serve

COMMANDS = (
    "audit list",
    "audit start --model m",
    "audit stop ID",
    "callback key",
    "callback list",
    "callback replay ID",
    "callback show ID",
    "case close REF",
    "case contact REF",
    "case list",
    "case list --csv",
    "case refuse REF --reason unfounded",
    "case show REF",
    "hold list",
    "hold place REF --reason r",
    "hold release ID",
    "key list --token t",
    "person find email=jane@example.org",
    "person remove-held-out --model m --record r",
    "request decide ID retry --why w --token t",
    "request list --token t",
    "request status ID",
    "request submit --person email=j@example.org --on-behalf --ticket t",
    "webhook add https://a.test/",
    "webhook list",
    "webhook remove ID",
    "webhook replay ID",
    "webhook rotate ID",
    "webhook show ID",
    "webhook test ID",
)


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Foreign:
    monkeypatch.setenv("LETHE_CONFIG", str(tmp_path / "none.toml"))
    return serve(monkeypatch)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_refuses_an_answer_that_is_not_one_of_this_api(
    line: str, foreign: Foreign
) -> None:
    check_refused(lethe, foreign, line.split())


def test_the_error_names_the_call_and_not_the_request() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"status": "ok"})  # a proxy's, perhaps

    with Client("http://ledger.test/below", transport=httpx2.MockTransport(answer)) as service:
        with pytest.raises(AnswerError) as refused:
            service.status(NAME)
        assert "GET /v1/requests/{request_id} is not one of this API" in refused.value.detail
        assert "it lacks the field id" in refused.value.detail
        assert NAME not in refused.value.detail
        with pytest.raises(AnswerError, match=r"GET /v1/callbacks/key .* lacks the field key"):
            service.callback_key()


def test_a_type_is_checked_at_once_and_a_field_when_it_is_read() -> None:
    documents = iter(({"ref": "m", "later": [1]}, {"ref": 7}, {"extractor": {"id": None}}))

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=next(documents))

    with Client(
        "http://ledger.test", token="t", transport=httpx2.MockTransport(answer)
    ) as service:
        found = service.model("m")
        assert found == {"ref": "m", "later": [1]}
        assert found.get("state") is None
        with pytest.raises(AnswerError, match="lacks the field state"):
            found["state"]
        with pytest.raises(AnswerError, match="its field ref is not a string"):
            service.model("m")
        with pytest.raises(AnswerError, match=r"its field extractor\.id is not a string"):
            service.model("m")
