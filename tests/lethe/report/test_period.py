"""The report of a period: figures of a log by hand, and every part that may not be changed."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lethe import canonical
from lethe.cli.report import report as command
from lethe.errors import LetheError
from lethe.log.entries import event_leaf, parse_leaf
from lethe.log.ranges import prove_range
from lethe.report.period import ENDS, as_csv, build, check, count, log_part
from lethe.report.period_page import WIDEST, period_html, period_pdf
from lethe.words.texts import LANGUAGES, Language, texts
from tests.fuzz import fuzz
from tests.lethe.certificates.build import LocalLog, Office, log_signer
from tests.lethe.changes import put
from tests.lethe.report.pdfs import needs_pdf

START = date(2026, 1, 1)
FIRST, LAST = date(2026, 1, 10), date(2026, 1, 20)
# Day of January, request, event: request 4 is open, 5 came after the period.
HISTORY = [
    (2, 1, "received"),
    (3, 2, "received"),
    (9, 2, "withdrawn"),
    (10, 3, "received"),
    (11, 4, "received"),
    (12, 4, "extended"),
    (12, 1, "certified"),
    (20, 3, "refused"),
    (21, 5, "received"),
    (22, 5, "certified"),
]


def ref(number: int) -> str:
    return str(UUID(int=number, version=4))


def log_of(history: list[tuple[int, int, str]]) -> LocalLog:
    log = LocalLog()
    for day, request, event in history:
        if event == "certified":
            log.append(_certificate_leaf())
        at = START + timedelta(days=day - 1)
        log.append(event_leaf(f"request.{event}", ref(request), bytes(32), at))
    return log


def _certificate_leaf() -> bytes:
    office = Office()
    office.certify()
    return office.log.leaves[3]


def report_of(log: LocalLog, first: date = FIRST, last: date = LAST) -> bytes:
    counted = count([parse_leaf(leaf) for leaf in log.leaves], first, last)
    return build(
        counted,
        first,
        last,
        methods=[{"method": "x", "guarantee": "exact", "certificates": 1, "records": 2}],
        checks=[{"check": "purge", "passed": 1, "failed": 0}],
        log=log_part(
            log.verifier.name,
            prove_range(counted.start, counted.end, len(log.leaves), log.read),
            log.checkpoint(),
        ),
    )


LOG = log_of(HISTORY)
REPORT = report_of(LOG)


def test_the_figures_are_those_of_the_entries() -> None:
    found = check(REPORT, LOG.verifier, LOG.leaves)
    assert found["figures"] == {
        "received": 2,
        "certified": 1,
        "failed": 0,
        "withdrawn": 0,
        "refused": 1,
        "extended": 1,
        "paused": 0,
        "open": 1,
    }
    assert found["days"] == {"shortest": 10, "median": "10", "longest": 10}
    assert (found["log"]["start"]["size"], found["log"]["end"]["size"]) == (3, 9)


def test_a_certificate_that_begins_the_period_is_in_its_range() -> None:
    log = log_of([(1, 1, "received"), (10, 1, "certified")])
    found = check(report_of(log), log.verifier, log.leaves)
    assert (found["log"]["start"]["size"], found["log"]["end"]["size"]) == (1, 3)


@pytest.mark.parametrize("days", [(1, 1), (15, 16), (25, 31)])
def test_a_period_without_entries_has_an_empty_range(days: tuple[int, int]) -> None:
    first, last = (START + timedelta(days=day - 1) for day in days)
    found = check(report_of(LOG, first, last), LOG.verifier, LOG.leaves)
    assert found["log"]["start"] == found["log"]["end"]
    assert found["days"] is None


Change = Callable[[dict[str, Any]], None]


# What was changed, and whether the entries are needed to notice.
CHANGED: dict[str, tuple[Change, bool]] = {
    "a figure": (put("figures", "received", value=1), True),
    "a figure left out": (lambda r: r["figures"].pop("failed"), True),
    "no figures": (lambda r: r.pop("figures"), False),
    "figures as a list": (put("figures", value=[1]), False),
    "a figure nobody counts": (put("figures", "\r      the figures are those", value=1), False),
    "a figure as text": (put("figures", "certified", value="1"), False),
    "a truth as a figure": (put("figures", "certified", value=True), False),
    "a figure below nothing": (put("figures", "open", value=-1), False),
    "the days": (put("days", value=None), True),
    "a shorter period": (put("first", value="2026-01-11"), True),
    "a longer period": (put("last", value="2026-01-22"), True),
    "the start": (put("log", "start", "size", value=4), False),
    "the end": (put("log", "end", "size", value=8), False),
    "a root": (lambda r: r["log"]["end"].update(root=r["log"]["start"]["root"]), False),
    "a proof": (lambda r: r["log"]["consistency"]["period"].pop(), False),
    "the other proof": (lambda r: r["log"]["consistency"]["head"].pop(), False),
    "from nothing": (
        lambda r: r["log"].update(start={"size": 0, "root": "A" * 43 + "="}),
        False,
    ),
    "another log": (put("log", "origin", value="other"), False),
    "no checkpoint": (put("log", "checkpoint", value=None), False),
    "no log": (put("log", value=None), False),
    "another kind": (put("kind", value="x"), False),
    "no day": (put("first", value="2026-13-01"), False),
    "sizes as text": (put("log", "start", "size", value="3"), False),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_is_noticed(name: str) -> None:
    change, needs_entries = CHANGED[name]
    report = json.loads(REPORT)
    change(report)
    data = canonical.encode(report)
    if needs_entries:
        check(data, LOG.verifier)  # the range is right: only the entries tell
    else:
        with pytest.raises(LetheError):
            check(data, LOG.verifier)
    with pytest.raises(LetheError):
        check(data, LOG.verifier, LOG.leaves)


def test_another_key_or_another_log_is_refused() -> None:
    with pytest.raises(LetheError):
        check(REPORT, log_signer(seed=b"other").verifier)
    other = log_of([*HISTORY[:-1], (22, 5, "failed")])
    with pytest.raises(LetheError, match="not those of the report"):
        check(REPORT, LOG.verifier, other.leaves[:4] + LOG.leaves[5:])


@fuzz(100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(1, 6),
            st.sampled_from(["received", "certified", "refused", "paused"]),
        ),
        max_size=25,
    ),
    st.integers(1, 40),
    st.integers(0, 30),
)
def test_any_history_gives_a_report_that_holds(
    drawn: list[tuple[int, int, str]], first: int, length: int
) -> None:
    day, history = 1, []
    for later, request, event in drawn:
        day += later
        history.append((day, request, event))
    log = log_of(history)
    begin = START + timedelta(days=first - 1)
    end = begin + timedelta(days=length)
    found = check(report_of(log, begin, end), log.verifier, log.leaves)
    inside = [event for at, _, event in history if first <= at <= first + length]
    assert found["figures"]["received"] == inside.count("received")
    assert found["figures"]["refused"] == inside.count("refused")
    assert {"request.certified", "request.refused"} <= ENDS


@fuzz(200)
@given(st.binary(max_size=200))
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    with pytest.raises(LetheError):
        check(data, LOG.verifier)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_has_every_figure_and_no_request(language: Language) -> None:
    report = json.loads(REPORT)
    page = period_html(report, texts(language))
    assert texts(language).of("period", "open") in page
    assert report["log"]["end"]["root"] in page
    for number in range(1, 6):
        assert ref(number) not in page
        assert ref(number) not in REPORT.decode()


def test_no_page_has_a_word_that_a_pdf_takes_minutes_to_break() -> None:
    """The line of an ML-DSA-44 key has 3,300 characters."""
    report = canonical.decode(REPORT)
    report["log"]["checkpoint"] += f"— {LOG.verifier.name} {'A' * 3300}\n"
    for language in LANGUAGES:
        words = period_html(report, texts(language)).split()
        assert max(map(len, words)) < 2 * WIDEST, language


def test_the_table_has_every_figure() -> None:
    lines = as_csv(json.loads(REPORT)).splitlines()
    assert lines[0] == "section,name,detail,value"
    assert "requests,received,,2" in lines
    assert "methods,x,exact: records,2" in lines
    assert "checks,purge,passed,1" in lines


@needs_pdf
def test_the_pdf_has_the_report_attached() -> None:
    from io import BytesIO

    import pikepdf

    with pikepdf.open(BytesIO(period_pdf(REPORT, texts("de")))) as opened:
        (attached,) = opened.attachments.values()
        assert attached.get_file().read_bytes() == REPORT


def test_the_command_verifies(tmp_path: Path) -> None:
    file, key = tmp_path / "report.json", tmp_path / "log.vkey"
    file.write_bytes(REPORT)
    key.write_text(LOG.verifier.vkey + "\n")
    done = CliRunner().invoke(command, ["verify", str(file), "--log-key", str(key)])
    assert done.exit_code == 0
    assert "not counted again" in done.output
    file.write_bytes(REPORT.replace(b'"received":2', b'"received":3'))
    done = CliRunner().invoke(command, ["verify", str(file), "--log-key", str(key)])
    assert done.exit_code == 0  # without the log nobody can tell
    file.write_bytes(REPORT + b"\n")
    done = CliRunner().invoke(command, ["verify", str(file), "--log-key", str(key)])
    assert done.exit_code == 1
    assert done.output.startswith("FAIL")
