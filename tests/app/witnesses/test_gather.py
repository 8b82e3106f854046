"""Rounds of asking: what is stored, what is not, and what is said of each witness."""

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.problems import NotWitnessedError
from app.settings import Settings
from app.witnesses import gather, standing
from app.witnesses.gather import begin, end
from app.witnesses.rows import Rows
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.note import read_note
from lethe.witness.ask import Asker
from models import WitnessedCheckpoint, WitnessStanding
from tests.app.ledger.samples import append, entry
from tests.app.witnesses.three import Three, gathering, three_witnesses


@pytest.fixture
def three(tmp_path: Path, ledger: Ledger) -> Iterator[Three]:
    append(ledger, entry(1), entry(2))
    with three_witnesses(tmp_path / "witnesses", ledger) as made:
        yield made


def kinds(ledger: Ledger) -> list[tuple[int, str]]:
    with Session(ledger.engine) as session:
        rows = session.connection().execute(
            text("SELECT size, kind FROM witnessed_checkpoints ORDER BY size")
        )
        return [(size, kind) for size, kind in rows]


def problems(ledger: Ledger) -> dict[str, str | None]:
    with Session(ledger.engine) as session:
        return {
            row.witness.partition(".")[0]: row.problem for row in standing.standings(session)
        }


def note_for(ledger: Ledger, index: int) -> str | None:
    with Session(ledger.engine) as session:
        return Rows(ledger).note_for(session, index)


def test_a_quorum_is_stored_with_its_lines_while_one_is_down_and_one_lies(
    three: Three, ledger: Ledger, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with gathering(ledger, three.write(settings, "both")) as gatherer:
        assert gatherer.round()  # began at this size: nothing waits, and it is witnessed
        append(ledger, entry(3))
        assert gatherer.round()
        append(ledger, entry(4))
        assert gatherer.round()
        assert not gatherer.round()  # nothing is new
    rows = [(-2, "later"), (2, "began"), (3, "quorum"), (4, "quorum")]
    assert kinds(ledger) == rows
    note = note_for(ledger, 2)
    assert note is not None
    keys = three.parsed("both").keys
    opened = read_note(note, [ledger.verifier, *keys])
    assert {key.vkey for key in opened.verified} == {ledger.verifier.vkey, *three.keys[0]}
    assert opened.unverified == ()
    assert problems(ledger) == {"down": "down", "honest": None, "liar": "lying"}
    said = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert sorted(one.getMessage().split(".")[0] for one in said) == [
        "witness down",
        "witness liar",
    ]  # once each, whatever the rounds


def test_less_than_a_quorum_stores_nothing_and_certificates_wait(
    three: Three, ledger: Ledger, settings: Settings
) -> None:
    with gathering(ledger, three.write(settings, "three", witness_fail="closed")) as gatherer:
        gatherer.round()
        append(ledger, entry(3))
        assert not gatherer.round()
    assert kinds(ledger) == [(2, "began")]
    assert note_for(ledger, 1) is None  # of before: the smallest published
    with pytest.raises(NotWitnessedError):
        note_for(ledger, 2)


def test_a_witness_that_failed_is_left_alone_for_a_while(
    three: Three, ledger: Ledger, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = Asker.cosign

    def counted(self: Asker, *given: Any) -> Any:
        asked.append(self._keys[0].name)
        return original(self, *given)

    monkeypatch.setattr(Asker, "cosign", counted)
    with gathering(ledger, three.write(settings, "both")) as gatherer:
        for number in (3, 4, 5):
            gatherer.round()
            append(ledger, entry(number))
        assert sorted(asked) == ["down.example", *["honest.example"] * 3, "liar.example"]
        monkeypatch.setattr(time, "monotonic", lambda: 1e12)
        gatherer.round()
        assert asked.count("down.example") == 2
        assert asked.count("liar.example") == 2


def test_one_that_never_answers_holds_a_round_no_longer_than_its_bound(
    three: Three, ledger: Ledger, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    original = Asker.cosign

    def cosign(self: Asker, *given: Any) -> Any:
        if self._keys[0].name == "down.example":
            over.wait(60)
        return original(self, *given)

    monkeypatch.setattr(Asker, "cosign", cosign)
    monkeypatch.setattr(gather, "GRACE_S", 0.01)
    with gathering(ledger, three.write(settings, "both")) as gatherer:
        gatherer.round()
        append(ledger, entry(3))
        assert gatherer.round()  # and the late one is not asked a second time meanwhile
        assert sum(one.name == "witness" for one in threading.enumerate()) == 1
        late = next(one for one in threading.enumerate() if one.name == "witness")
        assert "down" not in problems(ledger)
        monkeypatch.setattr(gather, "ROUND_S", 0.0)
        gatherer.round()
        assert problems(ledger)["down"] == "down"  # not as it stood when it last answered
        over.set()
        late.join()


def test_another_branch_of_the_log_is_refused_and_said_everywhere(
    three: Three,
    ledger: Ledger,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two copies of the data directory go on differently: the witness sees the first one's."""
    if ledger.engine.dialect.name != "sqlite":
        pytest.skip("a copied file is SQLite's")
    from click.testing import CliRunner

    from app.cli.witnesses import witnesses
    from app.ledger.startup import load_ledger
    from app.reconcile.fsck.run import fsck
    from models.database.session import make_engine

    copied = settings.model_copy(
        update={"data_dir": tmp_path / "copy", "database_url": f"sqlite:///{tmp_path}/copy.db"}
    )
    ledger.engine.dispose()
    shutil.copytree(settings.data_dir, copied.data_dir)
    shutil.copyfile(str(ledger.engine.url.database), tmp_path / "copy.db")
    with gathering(ledger, three.write(settings, "both")) as gatherer:
        gatherer.round()
        append(ledger, entry(3))
        assert gatherer.round()
    other_engine = make_engine(copied.resolved_database_url)
    other = load_ledger(copied, other_engine)
    policy = three.write(copied, "both", witness_fail="closed")
    append(other, entry(33))
    monkeypatch.setattr(gather, "FIRST_PAUSE_S", -1.0)
    with gathering(other, policy) as gatherer:
        assert not gatherer.round()
        append(other, entry(34))
        assert not gatherer.round()
    assert problems(other)["honest"] == "forked"
    assert problems(ledger)["honest"] is None
    report = fsck(other)
    assert [one.check for one in report.findings] == ["witness"]
    assert "does not extend" in report.findings[0].detail
    assert fsck(ledger).ok
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_DATA_DIR", str(copied.data_dir))
        patch.setenv("LETHE_DATABASE_URL", copied.database_url)
        patch.setenv("LETHE_ORIGIN", copied.origin)
        told = CliRunner().invoke(witnesses, [])
    assert told.exit_code == 1
    assert "forked" in told.output
    other_engine.dispose()


def test_what_contradicts_without_proof_is_said_to_and_nothing_more(
    tmp_path: Path, ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(1))
    foreign = ledger.latest().note.replace(ledger.origin, "other.test/lethe").encode()
    with (
        three_witnesses(tmp_path / "w", ledger, lambda body: (422, b""), foreign) as three,
        gathering(ledger, three.write(settings, "both")) as gatherer,
    ):
        gatherer.round()
    assert problems(ledger)["liar"] == "contradicting"
    with Session(ledger.engine) as session:
        assert list(standing.contradictions(session, ledger)) == []


def test_a_fork_at_one_size_is_proven_by_a_witness_of_the_first_version(
    tmp_path: Path, ledger: Ledger, settings: Settings
) -> None:
    """It answers 409, as tlog-witness 1.0 has it, and the log need not grow."""
    append(ledger, entry(1))
    other = sign_checkpoint(Checkpoint(ledger.origin, 1, bytes(32)), ledger.signers.signers[0])
    with (
        three_witnesses(
            tmp_path / "w", ledger, lambda body: (409, b"1\n"), other.encode()
        ) as three,
        gathering(ledger, three.write(settings, "both")) as gatherer,
    ):
        gatherer.round()
    assert problems(ledger)["liar"] == "forked"
    with Session(ledger.engine) as session:
        (label,) = standing.contradictions(session, ledger)
    assert label.startswith("liar.example")


def test_planted_evidence_is_believed_only_if_the_log_signed_it(ledger: Ledger) -> None:
    append(ledger, entry(1))
    honest = ledger.latest().note
    with Session(ledger.engine) as session:
        for name, note in (
            ("a", honest),
            ("b", "note"),
            ("c", honest.replace("\n1\n", "\n2\n")),
        ):
            session.add(WitnessStanding(witness=name, problem="forked", evidence=note))
        session.commit()
        assert list(standing.contradictions(session, ledger)) == []


def test_a_planted_row_counts_for_nothing(
    three: Three, ledger: Ledger, settings: Settings
) -> None:
    from app.reconcile.fsck.run import fsck

    with gathering(ledger, three.write(settings, "three", witness_fail="closed")) as gatherer:
        gatherer.round()
    append(ledger, entry(3), entry(4))
    with Session(ledger.engine) as session:
        session.add(
            WitnessedCheckpoint(size=3, kind="quorum", note=ledger.latest().note, mac="0" * 64)
        )
        session.add(WitnessedCheckpoint(size=9, kind="ended", note="", mac=""))
        session.commit()
    with pytest.raises(NotWitnessedError):
        note_for(ledger, 2)
    found = [(one.check, one.detail) for one in fsck(ledger).findings]
    assert found == [
        ("witnessed", "the row of size 3 was not written here"),
        ("witnessed", "the row of size 9 was not written here"),
    ]


def test_rows_are_never_changed_or_removed(
    three: Three, ledger: Ledger, settings: Settings
) -> None:
    with gathering(ledger, three.write(settings, "both")) as gatherer:
        gatherer.round()
    for statement in (
        "UPDATE witnessed_checkpoints SET kind = 'ended'",
        "DELETE FROM witnessed_checkpoints",
    ):
        with Session(ledger.engine) as session, pytest.raises(Exception, match="append-only"):
            session.connection().execute(text(statement))


def test_an_end_issues_what_waits_and_a_new_beginning_waits_again(
    three: Three, ledger: Ledger, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    policy = three.parsed("three")
    begin(ledger, policy)
    append(ledger, entry(3))
    begin(ledger, policy)
    with pytest.raises(NotWitnessedError):
        note_for(ledger, 2)
    begin(ledger, None)
    assert "lethe log witnesses --end" in caplog.text
    assert end(ledger)
    assert note_for(ledger, 2) == ledger.latest().note
    assert not end(ledger)
    append(ledger, entry(4))
    assert note_for(ledger, 3) is None
    begin(ledger, policy)
    assert note_for(ledger, 3) is None  # the answer of before
    append(ledger, entry(5))
    with pytest.raises(NotWitnessedError):
        note_for(ledger, 4)
    assert [kind for _, kind in kinds(ledger)] == ["began", "ended", "began"]


def test_rounds_go_on_after_one_that_failed(
    three: Three,
    ledger: Ledger,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class StopError(BaseException):
        """Ends the thread's loop."""

    done: list[bool] = []
    pauses = iter([None, None])

    def pause(seconds: float) -> None:
        assert seconds == settings.witness_seconds
        if next(pauses, StopError) is StopError:
            raise StopError

    with gathering(ledger, three.write(settings, "both")) as gatherer:
        begin(ledger, three.parsed("both"))
        append(ledger, entry(3))
        rounds = iter([OSError("a row of somebody"), None, None])
        original = gatherer.round

        def one_round() -> bool:
            if (error := next(rounds)) is not None:
                raise error
            done.append(original())
            return done[-1]

        monkeypatch.setattr(gatherer, "round", one_round)
        monkeypatch.setattr(gather.time, "sleep", pause)  # type: ignore[attr-defined]
        with pytest.raises(StopError):
            gatherer.ask_for_ever(lambda: True)
    assert done == [True, False]
    assert "witnesses were not asked (OSError)" in caplog.text
    assert "somebody" not in caplog.text


def test_a_problem_is_said_once_and_a_fork_stays_while_it_is_proven(
    ledger: Ledger, settings: Settings
) -> None:
    append(ledger, entry(1))
    honest = ledger.latest().note
    assert standing.note_problem(ledger, "w", "down")
    assert not standing.note_problem(ledger, "w", "down")
    assert standing.note_problem(ledger, "w", "lying")
    append(ledger, entry(2))
    assert standing.note_problem(ledger, "w", standing.FORKED, honest)
    assert not standing.note_problem(ledger, "w", "down")
    assert problems(ledger) == {"w": "forked"}
    standing.note_cosigned(ledger, "w", 2)  # the log extends what was shown: no proof
    assert problems(ledger) == {"w": None}

    forged = sign_checkpoint(Checkpoint(ledger.origin, 2, bytes(32)), ledger.signers.signers[0])
    assert standing.note_problem(ledger, "w", standing.FORKED, forged)
    standing.note_cosigned(ledger, "w", 2)
    assert problems(ledger) == {"w": "forked"}
    with Session(ledger.engine) as session:
        assert list(standing.contradictions(session, ledger)) == ["w"]
        rows = standing.standings(session)
    assert standing.are_up(rows, None) == {}


def test_a_witness_that_left_the_policy_raises_no_alarm(
    three: Three, ledger: Ledger, settings: Settings
) -> None:
    policy = three.parsed("both")
    label = standing.label_of(policy.keys[0])
    standing.note_problem(ledger, label, "down")
    standing.note_problem(ledger, "gone.example+00000000", "down")
    with Session(ledger.engine) as session:
        rows = standing.standings(session)
    assert standing.are_up(rows, policy) == {(label,): 0.0}
