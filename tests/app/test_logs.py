"""Log lines: their fields, the ids they carry, and what never gets into them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from app import logs
from app.settings import Settings

ID = "0b5d1c1e-6a4e-4b52-9d39-0d5a6c6d2f11"


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    # `configure` closes the handlers it replaces; pytest's are still needed.
    root.handlers[:] = []
    yield
    root.handlers[:] = kept
    root.setLevel(level)
    logging.captureWarnings(False)
    for name in logs.OWN:
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(log_format: str, log_level: str = "warning") -> io.StringIO:
    stream = io.StringIO()
    settings = Settings.model_validate({"log_format": log_format, "log_level": log_level})
    logs.configure(settings, stream)
    return stream


def test_a_json_line_has_the_documented_fields() -> None:
    stream = lines("json")
    with logs.for_call(ID):
        logging.getLogger("app.some").warning("job %s: ended", "1-2")
    found = json.loads(stream.getvalue())
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "app.some",
        "message": "job 1-2: ended",
        "call_id": ID,
    }


def test_outside_of_a_call_there_is_no_id() -> None:
    stream = lines("json")
    logging.getLogger("app.some").warning("x")
    assert "call_id" not in json.loads(stream.getvalue())


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_record_is_one_line(log_format: str) -> None:
    stream = lines(log_format)
    logging.getLogger("app.some").warning("a\nb\r%s", "\\n")
    assert stream.getvalue().count("\n") == 1
    assert "\r" not in stream.getvalue()


def test_a_text_line_reads_as_before_with_time_and_id() -> None:
    stream = lines("text")
    with logs.for_call(ID):
        logging.getLogger("app.some").error("not ready: broker")
    _, rest = stream.getvalue().split(" ", 1)
    assert rest == f"error app.some: not ready: broker call_id={ID}\n"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_is_its_type_and_place_and_not_its_text(log_format: str) -> None:
    stream = lines(log_format)
    try:
        raise RuntimeError("jane.doe@example.org")
    except RuntimeError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    assert "RuntimeError at " in stream.getvalue()
    assert "test_logs.py:" in stream.getvalue()
    assert "jane.doe" not in stream.getvalue()


def test_the_level_is_the_settings_and_libraries_stay_at_warning() -> None:
    stream = lines("text", "info")
    logging.getLogger("app.some").info("own")
    logging.getLogger("uvicorn.error").info("library's")
    assert "own" in stream.getvalue()
    assert "library's" not in stream.getvalue()
    assert logging.getLogger("celery.worker").getEffectiveLevel() == logging.WARNING


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "jane.doe@example.org",
        "jane-doe",
        "r000123",
        ID + "\n",
        "\n" + ID,
        ID.replace("-", "_"),
        ID + ID,
        "٠" * 32,
    ],
)
def test_what_is_no_uuid_is_replaced(sent: str | None) -> None:
    made = logs.accept_call_id(sent)
    assert made != sent
    assert logs.accept_call_id(made) == made


@pytest.mark.parametrize("sent", [ID, ID.upper(), "4bf92f3577b34da6a3ce929d0e0e4736"])
def test_a_uuid_or_trace_id_is_kept(sent: str) -> None:
    assert logs.accept_call_id(sent) == sent
