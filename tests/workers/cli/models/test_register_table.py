"""`lethe model register ridge` reads tables and queries, and reports which columns it used."""

import io
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from lethe.identity import COLUMN, digests, pack
from tests.workers.cli.models.registering import said
from tests.workers.cli.models.test_register import Service
from workers.cli import data_options
from workers.cli.models import command as model
from workers.cli.models.fitting import read_rows
from workers.cli.service import Sending

ROWS = 40
COLUMNS: dict[str, list[Any]] = {
    "id": [f"{row:03}" for row in range(ROWS)],
    "churned": [("no", "yes")[row % 2] for row in range(ROWS)],
    "region": [("north", "south")[row // 20] for row in range(ROWS)],
    "email": [f"p{row}@example.org" for row in range(ROWS)],
    "f_a": [row / 7 for row in range(ROWS)],
    "f_b": list(range(ROWS)),
    "since": pa.array([row * 10**9 for row in range(ROWS)], pa.timestamp("ns")),
}
WORDS = (
    *("--label", "churned", "--record-id", "id", "--client", "region"),
    *("--person", "email=email", "--features", "f_*"),
)


def register(*words: object) -> Result:
    arguments = ["register", "ridge", "--url", "http://x", "--ref", "m", *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "customers.parquet"
    pq.write_table(pa.table({**COLUMNS, **changes}), path)
    return path


def arrays(service: Service) -> dict[str, Any]:
    with np.load(io.BytesIO(service.upload.data)) as found:
        return dict(found)


def test_a_table_is_registered(service: Service, tmp_path: Path) -> None:
    result = register(written(tmp_path), *WORDS, "--holdout", "0.2")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[:5] == [
        "40 rows, 2 features: f_a, f_b",
        "label churned: 2 classes, no, yes",
        "not used: since",
        "held out: 8 rows (0.2 of them, drawn at random)",
        "registered 32 records of 2 subjects and 2 clients; held-out rows only calibrate the "
        "quantiser; only their ids and hashed identities are sent; fitting …",
    ]
    assert not result.stderr  # no progress bar without a terminal
    assert set(service.upload.records) < set(COLUMNS["id"])
    assert set(service.upload.clients) == {"north", "south"}


def test_what_the_steps_change_is_said(service: Service, tmp_path: Path) -> None:
    """Held-out rows alone choose the steps: other rows may be beyond them, or below."""
    held_out = [row < 4 for row in range(ROWS)]
    large = [1.0 if row < 4 else 1e6 * (row == 9) for row in range(ROWS)]
    small = [0.0 if row < 4 else 1e-9 for row in range(ROWS)]
    path = written(tmp_path, f_a=large, f_b=small, test=held_out)
    result = register(path, *WORDS, "--holdout", "test")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "clipped: 1 number beyond twice the largest held-out one" in result.output
    assert "rounded to 0 in every row: 1 feature, too small for the steps" in result.output


def test_names_in_a_file_do_not_act_on_the_terminal(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = [("n\x9bo", "yes")[row % 2] for row in range(ROWS)]
    hidden = {"f_c\r\u202e": COLUMNS["f_b"], "later\x1b[2K": COLUMNS["since"]}
    file = written(tmp_path, churned=labels, **hidden)
    result = register(file, *WORDS)
    assert result.exit_code == 0, result.output
    columns = {"label": "churned", "client": "region", "features": ("f_*",)}
    read_rows(file, columns, numbers=False)
    for said_of_it in (result.stdout, capsys.readouterr().out):
        assert "f_c\ufffd\ufffd" in said_of_it
        assert "n\ufffdo, yes" in said_of_it
        assert "later\ufffd[2K" in said_of_it
        assert not any(one in said_of_it for one in "\r\x9b\u202e\x1b")


def test_identities_are_hashed_before_they_are_sent(service: Service, tmp_path: Path) -> None:
    result = register(written(tmp_path), *WORDS)
    assert result.exit_code == 0, result.output
    sent = arrays(service)[COLUMN + "email"]
    row = COLUMNS["id"].index(service.upload.records[0])
    expected = pack(digests("email", COLUMNS["email"][row]))
    assert sent[0].tobytes() == expected


def test_a_query_is_registered(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id TEXT, churned TEXT, f_a REAL)")
        rows = zip(COLUMNS["id"], COLUMNS["churned"], COLUMNS["f_a"], strict=True)
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    database.close()
    words = ("--query", "SELECT * FROM t ORDER BY id", "--label", "churned")
    result = register("--sql", f"sqlite:///{path}", *words, "--record-id", "id")
    assert result.exit_code == 0, result.output
    assert set(service.upload.clients) == {"all"}
    monkeypatch.setenv("LETHE_SQL", f"sqlite:///{path}")  # keeps a password out of `ps`
    assert register(*words, "--record-id", "id").exit_code == 0
    # A file is read although LETHE_SQL is set.
    assert register(written(tmp_path), *WORDS).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({}, ("--label", "churnd"), "churnd: no such column; did you mean churned"),
        ({}, (), "label: name the column of the classes with --label"),
        ({}, (*WORDS, "--features", "since"), "since: a date or time (timestamp[ns])"),
        ({"f_b": [None, *range(1, ROWS)]}, WORDS, "f_b: 1 of 40 values are missing"),
        ({"f_b": [2**60] * ROWS}, WORDS, "f_b: holds an integer above 2**53"),
        ({"id": ["a"] * ROWS}, WORDS, "id: 39 rows repeat an id"),
        ({}, (*WORDS, "--person", "E-Mail=email"), "--person: the kind of an identity"),
        ({}, (*WORDS, "--person", "email"), "write KIND=COLUMN"),
        ({}, (*WORDS, "--person", "email=id"), "a KIND is named twice"),
        ({}, (*WORDS, "--holdout", "none"), "no row is held out"),
        ({}, (*WORDS, "--holdout", "2"), "holdout: must be a share"),
        ({}, (*WORDS, "--query", "SELECT 1"), "give DATA or --query, not both"),
        ({}, ("--label", "churned", "--features", "f_a,f_b"), "repeat the option"),
    ],
)
def test_one_problem_names_the_column_and_nothing_is_sent(
    changes: dict[str, Any],
    words: tuple[str, ...],
    message: str,
    service: Service,
    tmp_path: Path,
) -> None:
    result = register(written(tmp_path, **changes), *words)
    assert message in said(result)
    assert "example.org" not in said(result)
    assert not hasattr(service, "upload")


def test_neither_a_file_nor_a_query(service: Service) -> None:
    assert "give DATA, or --sql URL with --query SELECT" in said(register())


def test_a_terminal_shows_a_bar(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_options, "on_terminal", lambda: True)
    result = register(written(tmp_path), *WORDS)
    assert result.exit_code == 0, result.output
    assert "reading customers.parquet" in result.stderr
    assert "held out" not in result.stderr


def test_labels_are_numbered_in_the_order_of_their_names(
    service: Service, tmp_path: Path
) -> None:
    result = register(written(tmp_path), *WORDS)
    assert result.exit_code == 0, result.output
    labels = arrays(service)["labels"]
    expected = [int(record) % 2 for record in service.upload.records]
    np.testing.assert_array_equal(labels, expected)


def test_a_bar_is_drawn_while_a_body_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    sending = Sending()
    for done in (5, 10, 5, 10):  # the second try starts over
        sending(done, 10)
    assert capsys.readouterr().err.count("sending") == 2
