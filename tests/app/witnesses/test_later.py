"""A quorum that comes later at the same size: stored beside what was issued without it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from app.witnesses import gather, standing
from app.witnesses.gather import Gatherer, end
from app.witnesses.rows import Rows
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.note import read_note, split_note
from lethe.log.policy import Policy, parse_policy
from lethe.witness.home import create
from models import WitnessedCheckpoint
from tests.app.ledger.samples import append, entry
from tests.app.witnesses.three import gathering
from tests.installation import install
from tests.lethe.witness.liars import nowhere
from tests.lethe.witness.logs import serving

NAMES = ("a", "b", "c")


@dataclass
class Witnesses:
    """Three honest witnesses, of which two make a quorum; each is down until it is started."""

    directory: Path
    keys: dict[str, list[str]]
    urls: dict[str, str]
    running: dict[str, ExitStack] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        for name in names:
            stack = self.running[name] = ExitStack()
            port = urlsplit(self.urls[name]).port
            assert port is not None
            stack.enter_context(serving(self.directory / name, port))

    def stop(self, *names: str) -> None:
        for name in names:
            self.running.pop(name).close()

    def policy(self) -> str:
        lines = [f"witness {name} {self.keys[name][0]} {self.urls[name]}" for name in NAMES]
        return "".join(f"{one}\n" for one in (*lines, "group two 2 a b c", "quorum two"))

    def parsed(self) -> Policy:
        return parse_policy(self.policy().encode())

    def lines(self, note: str) -> set[str]:
        """Return the names of the witnesses whose lines a note has, each verified."""
        keys = self.parsed().keys
        found = read_note(note, keys) if len(split_note(note)[1]) > 1 else None
        return set() if found is None else {key.name[0] for key in found.verified}


@contextmanager
def three(directory: Path, ledger: Ledger) -> Iterator[Witnesses]:
    directory.mkdir()
    keys = {
        name: [
            one.verifier.vkey
            for one in create(directory / name, f"{name}.example", [ledger.verifier])
        ]
        for name in NAMES
    }
    made = Witnesses(directory, keys, {name: nowhere() for name in NAMES})
    try:
        yield made
    finally:
        made.stop(*made.running)


@pytest.fixture
def witnesses(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Witnesses]:
    append(ledger, entry(1))
    # One that was down is due in the next round.
    monkeypatch.setattr(gather, "FIRST_PAUSE_S", -1.0)
    with three(tmp_path / "witnesses", ledger) as made:
        yield made


@pytest.fixture
def opened(witnesses: Witnesses, settings: Settings) -> Settings:
    """Settings that fail open; any certificate has waited for long enough."""
    path = witnesses.directory / "policy"
    path.write_text(witnesses.policy())
    return settings.model_copy(
        update={"witness_policy": str(path), "witness_fail": "open", "witness_wait_seconds": -1}
    )


@pytest.fixture
def impatient(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some certificate waits: samples of entries have none."""
    monkeypatch.setattr(Gatherer, "waited", lambda _: not _has_row(ledger))


def _has_row(ledger: Ledger) -> bool:
    with Session(ledger.engine) as session:
        last = Rows(ledger).last(session)
        return last is not None and last.size == ledger.size(session)


def stored(ledger: Ledger) -> list[tuple[int, str]]:
    with Session(ledger.engine) as session:
        rows = session.connection().execute(
            text("SELECT size, kind FROM witnessed_checkpoints ORDER BY abs(size), size DESC")
        )
        return [(size, kind) for size, kind in rows]


def issued_without(
    witnesses: Witnesses, ledger: Ledger, settings: Settings, *up: str
) -> tuple[int, str]:
    """Append an entry and fail open; return the size, and the note of its certificates."""
    witnesses.start(*up)
    with gathering(ledger, settings) as gatherer:
        gatherer.round()
        append(ledger, entry(2))
        assert gatherer.round()
    with Session(ledger.engine) as session:
        size = ledger.size(session)
        note = Rows(ledger).note_for(session, size - 1)
    assert note is not None
    assert witnesses.lines(note) == set(up)
    return size, note


def carried(ledger: Ledger, size: int) -> str | None:
    with Session(ledger.engine) as session:
        return Rows(ledger).note_for(session, size - 1)


def shown(ledger: Ledger) -> tuple[int, str] | None:
    with Session(ledger.engine) as session:
        return Rows(ledger).witnessed(session)


@pytest.mark.usefixtures("impatient")
def test_witnesses_that_come_back_make_the_quorum_of_a_log_that_stands_still(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    witnesses.start("a")
    with gathering(ledger, opened) as gatherer:
        gatherer.round()
        append(ledger, entry(2))
        assert gatherer.round()
        size = ledger.latest().size
        before = carried(ledger, size)
        assert not gatherer.round()
        assert shown(ledger) is None
        witnesses.start("b", "c")
        assert gatherer.round()  # the next one: no entry is needed
        assert not gatherer.round()
    assert stored(ledger) == [(1, "began"), (size, "without"), (-size, "later")]
    found = shown(ledger)
    assert found is not None
    assert found[0] == size
    assert witnesses.lines(found[1]) >= {"a", "b"} or witnesses.lines(found[1]) >= {"a", "c"}
    assert carried(ledger, size) == before  # an issued certificate keeps its bytes
    assert fsck(ledger).ok
    with gathering(ledger, opened) as gatherer:
        append(ledger, entry(3))
        assert gatherer.round()
    note = carried(ledger, size + 1)
    assert note is not None
    assert len(witnesses.lines(note)) >= 2
    assert stored(ledger)[-1] == (size + 1, "quorum")


@pytest.mark.usefixtures("impatient")
def test_the_service_shows_it(witnesses: Witnesses, ledger: Ledger, opened: Settings) -> None:
    size, _ = issued_without(witnesses, ledger, opened)
    with install(opened) as made:
        http: TestClient = made.caller.http
        assert http.get("/v1/log/witnessed").status_code == 404
        witnesses.start("a", "b")
        with gathering(made.services.ledger, opened) as gatherer:
            assert gatherer.round()
        note = http.get("/v1/log/checkpoint").text
        assert witnesses.lines(note) == {"a", "b"}
        assert note == http.get("/v1/log/witnessed").text
        assert f"\n{size}\n" in note
        page = http.get("/v1/log/entries").json()
        assert page["checkpoint"] == note
        token = {"authorization": f"Bearer {made.caller.token}"}
        assert "lethe_witnessed_lag_entries 0.0" in http.get("/metrics", headers=token).text


def test_a_beginning_is_witnessed_without_an_entry(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    witnesses.start("a", "b")
    size = ledger.latest().size
    with gathering(ledger, opened) as gatherer:
        assert gatherer.round()
    assert stored(ledger) == [(size, "began"), (-size, "later")]
    assert carried(ledger, size) is None  # certificates of before carry what they did


@pytest.mark.usefixtures("impatient")
def test_lines_of_a_witness_that_is_away_again_count(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    issued_without(witnesses, ledger, opened, "a")
    witnesses.stop("a")
    witnesses.start("c")
    with gathering(ledger, opened) as gatherer:  # another process
        assert gatherer.round()
    found = shown(ledger)
    assert found is not None
    assert witnesses.lines(found[1]) == {"a", "c"}


@pytest.mark.usefixtures("impatient")
def test_less_than_a_quorum_adds_nothing(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    issued_without(witnesses, ledger, opened)
    witnesses.start("c")
    with gathering(ledger, opened) as gatherer:
        assert not gatherer.round()
    assert shown(ledger) is None


class KilledError(BaseException):
    """Stands for the end of the process."""


def before_store(honest: Callable[..., Any]) -> Callable[..., Any]:
    def transact(*_: Any, **__: Any) -> Any:
        raise KilledError

    return transact


def in_transaction(honest: Callable[..., Any]) -> Callable[..., Any]:
    def transact(self: Ledger, effect: Callable[[Any], Any], **more: Any) -> Any:
        def struck(tx: Any) -> Any:
            effect(tx)
            raise KilledError

        return honest(self, struck, **more)

    return transact


def after_commit(honest: Callable[..., Any]) -> Callable[..., Any]:
    def transact(*arguments: Any, **more: Any) -> Any:
        honest(*arguments, **more)
        raise KilledError

    return transact


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("step", [before_store, in_transaction, after_commit])
def test_the_next_process_stores_it_once(
    witnesses: Witnesses,
    ledger: Ledger,
    opened: Settings,
    step: Callable[..., Any],
) -> None:
    size, _ = issued_without(witnesses, ledger, opened)
    witnesses.start(*NAMES)
    with pytest.MonkeyPatch.context() as patch, gathering(ledger, opened) as gatherer:
        patch.setattr(Ledger, "transact", step(Ledger.transact))
        with pytest.raises(KilledError):
            gatherer.round()
    with gathering(ledger, opened) as gatherer:
        assert gatherer.round() == (step is not after_commit)
        assert not gatherer.round()
    assert stored(ledger)[1:] == [(size, "without"), (-size, "later")]
    assert fsck(ledger).ok


@pytest.mark.usefixtures("impatient")
def test_a_process_that_dies_after_the_cosignature_costs_none(
    witnesses: Witnesses,
    ledger: Ledger,
    opened: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issued_without(witnesses, ledger, opened)
    witnesses.start("a", "b")

    def die(*_: Any) -> None:
        for thread in threading.enumerate():  # a process that dies closes all its sockets
            if thread.name == "witness":
                thread.join(10)
        raise KilledError

    with monkeypatch.context() as patch, gathering(ledger, opened) as gatherer:
        patch.setattr(standing, "note_cosigned", die)
        with pytest.raises(KilledError):
            gatherer.round()
    with gathering(ledger, opened) as gatherer:
        assert gatherer.round()


@pytest.mark.usefixtures("impatient")
def test_two_at_once_store_it_once(
    witnesses: Witnesses, ledger: Ledger, opened: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, _ = issued_without(witnesses, ledger, opened)
    witnesses.start(*NAMES)
    together, said = threading.Barrier(2, timeout=30), list[bool]()
    honest = Rows.add

    def add(self: Rows, kind: Any, at: int, note: str) -> bool:
        together.wait()  # both have read that there is none
        return honest(self, kind, at, note)

    monkeypatch.setattr(Rows, "add", add)
    with gathering(ledger, opened) as one, gathering(ledger, opened) as other:
        threads = [
            threading.Thread(target=lambda each=each: said.append(each.round()))
            for each in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(said) == [False, True]
    assert stored(ledger)[1:] == [(size, "without"), (-size, "later")]


@pytest.mark.usefixtures("impatient")
def test_a_planted_row_replaces_no_checkpoint(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    """Whoever writes the table alone has the rows that are there, and no key."""
    size, before = issued_without(witnesses, ledger, opened)
    forged = sign_checkpoint(
        Checkpoint(ledger.origin, size, bytes(32)), ledger.signers.signers[0]
    )
    with Session(ledger.engine) as session:
        row = session.get_one(WitnessedCheckpoint, size)
        for note, at in ((forged, -size), (row.note, -size - 1), (forged, -size - 5)):
            session.add(WitnessedCheckpoint(size=at, kind="later", note=note, mac=row.mac))
        session.commit()
    assert shown(ledger) is None
    assert carried(ledger, size) == before
    with Session(ledger.engine) as session:
        assert Rows(ledger).note_of(session, size) == before
        assert Rows(ledger).issued_below(session) == size
    witnesses.start("a", "b")
    with gathering(ledger, opened) as gatherer:
        assert not gatherer.round()  # its place is taken, which fsck says
    found = [(one.check, one.detail) for one in fsck(ledger).findings]
    assert [check for check, _ in found] == ["witnessed"] * 3
    assert f"the row of size {-size} was not written here" in {detail for _, detail in found}
    with gathering(ledger, opened) as gatherer:
        append(ledger, entry(3))
        assert gatherer.round()
    assert shown(ledger) is not None


@pytest.mark.usefixtures("impatient")
def test_lines_over_another_tree_are_added_to_none(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    size, _ = issued_without(witnesses, ledger, opened)
    other = sign_checkpoint(
        Checkpoint(ledger.origin, size, bytes(32)), ledger.signers.signers[0]
    )
    assert not Rows(ledger).add("quorum", size, other)
    assert not Rows(ledger).add("quorum", size - 1, other)
    assert stored(ledger)[1:] == [(size, "without")]


@pytest.mark.usefixtures("impatient")
def test_an_end_is_not_witnessed(
    witnesses: Witnesses, ledger: Ledger, opened: Settings
) -> None:
    issued_without(witnesses, ledger, opened)
    append(ledger, entry(3))
    assert end(ledger)
    witnesses.start("a", "b")
    with gathering(ledger, opened) as gatherer:
        assert not gatherer.round()
    assert shown(ledger) is None
