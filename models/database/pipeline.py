"""Several statements in one message to PostgreSQL, each prepared once per connection.

psycopg's own pipeline releases the GIL about thirty times for the statements of one
transaction, and waits to get it back while other threads compute. Here that happens once per
message. psycopg's loaders read the results.
"""

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

CountError = errors.DivisionByZero  # raised for a wrong count in `models.database.bulk.commit`
Parameters = Sequence[bytes | None]

# Server-side names of prepared statements, by text. They survive failed transactions.
_prepared: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()


def run(
    driver: "psycopg.Connection[Any]",
    statements: Sequence[tuple[str, Parameters]],
    *,
    commit: bool = False,
) -> list[list[tuple[Any, ...]]]:
    """Run statements in order, then COMMIT if `commit` is set; return the rows of each.

    Begins a transaction if none is open. After a failed statement nothing runs, not even
    COMMIT.

    Raises:
        psycopg.Error: The error of the first failed statement, or the connection is lost.
    """
    connection = driver.pgconn
    known = _prepared.setdefault(driver, {})
    sent: list[str | None] = []  # by answer: the text that it prepared, None for other answers
    with _pipeline(driver):
        if not driver.autocommit and connection.transaction_status == TransactionStatus.IDLE:
            connection.send_query_params(_begin(driver), None)
            sent.append(None)
        fresh: dict[str, bytes] = {}
        wanted: list[int] = []
        for text, parameters in statements:
            name = known.get(text) or fresh.get(text)
            if name is None:
                name = fresh[text] = f"lethe_{len(known) + len(fresh)}".encode()
                connection.send_prepare(name, text.encode())
                sent.append(text)
            wanted.append(len(sent))
            connection.send_query_prepared(name, parameters)
            sent.append(None)
        if commit:
            connection.send_query_params(b"COMMIT", None)
            sent.append(None)
        connection.pipeline_sync()
        answers = receive(connection)
    for prepared, answer in zip(sent, answers, strict=False):
        if answer.status in (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED):
            raise errors.error_from_result(answer)
        if prepared is not None:
            known[prepared] = fresh[prepared]
    assert len(answers) == len(sent)
    return [_rows(driver, answers[place]) for place in wanted]


def array(values: Sequence[Any]) -> bytes:
    """Return the literal of a PostgreSQL array (PostgreSQL manual, 8.15.6).

    Raises:
        psycopg.DataError: A text contains NUL, which PostgreSQL cannot store.
        psycopg.ProgrammingError: psycopg has no type for a value.
    """
    text = "{" + ",".join(map(_element, values)) + "}"
    if "\0" in text:
        raise psycopg.DataError("PostgreSQL text cannot hold NUL (0x00)")
    return text.encode()


def _element(value: Any) -> str:
    if isinstance(value, psycopg.Binary):  # SQLAlchemy wraps the values of bytes columns
        value = bytes(value.obj)
    kind = type(value)
    if kind is bytes:
        return f'"\\\\x{value.hex()}"'
    if value is None:
        return "NULL"
    if kind is int:
        return str(value)
    if kind is bool:
        return "t" if value else "f"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, date):  # includes datetime
        return f'"{value.isoformat()}"'
    dumped: Any = Transformer().get_dumper(value, PyFormat.TEXT).dump(value)
    return _element(bytes(dumped).decode())


def _begin(driver: "psycopg.Connection[Any]") -> bytes:
    words = ["BEGIN"]
    if driver.isolation_level is not None:
        words += ["ISOLATION LEVEL", driver.isolation_level.name.replace("_", " ")]
    if driver.read_only is not None:
        words.append("READ ONLY" if driver.read_only else "READ WRITE")
    return " ".join(words).encode()


@contextmanager
def _pipeline(driver: "psycopg.Connection[Any]") -> Iterator[None]:
    """Pipeline mode. On an error, the connection is closed."""
    try:
        driver.pgconn.enter_pipeline_mode()
        yield
        driver.pgconn.exit_pipeline_mode()
    except BaseException:
        driver.close()
        raise


def receive(connection: Any) -> list[Any]:
    """Return the answers up to the end of the pipeline."""
    ready = select.poll()
    ready.register(connection.socket, select.POLLIN | select.POLLOUT)
    while connection.flush():  # the server may stop reading until its output is consumed
        ready.poll()
        connection.consume_input()
    ready.modify(connection.socket, select.POLLIN)
    answers: list[Any] = []
    ended = False  # whether the previous result ended
    while True:
        while connection.is_busy():
            ready.poll()
            connection.consume_input()
        answer = connection.get_result()
        if answer is None:
            if ended or connection.status == ConnStatus.BAD:
                raise psycopg.OperationalError(connection.get_error_message())
            ended = True
            continue
        ended = False
        if answer.status == ExecStatus.PIPELINE_SYNC:
            return answers
        answers.append(answer)


def _rows(driver: "psycopg.Connection[Any]", answer: Any) -> list[tuple[Any, ...]]:
    if not answer.ntuples:
        return []
    transformer = Transformer(driver)
    transformer.set_pgresult(answer)
    found: list[tuple[Any, ...]] = transformer.load_rows(0, answer.ntuples, tuple)
    return found
