"""Keys of a backup do not show what was signed since: witnesses do, or nothing is signed."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.cli.backup import backup, restore
from app.ledger.guard import ForkedError
from app.ledger.recover import RecoverError
from app.ledger.sequencer import Ledger
from app.ledger.startup import GUARD, RESTORED, load_ledger
from app.settings import Settings
from lethe.cli.log import log
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.note import NoteSigner
from lethe.witness.home import create
from models.database.session import make_engine
from tests.app.cli.test_backup import detail, point_at, run
from tests.app.ledger.samples import append, entry, stored_leaves
from tests.app.witnesses.three import gathering, two_lines
from tests.lethe.log.logs import STRANGER, log_files
from tests.lethe.witness.liars import lying, nowhere
from tests.lethe.witness.logs import serving

OTHER_ROOT = bytes(range(32))


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what witnesses show does not depend on it."""
    return sqlite_url


@dataclass
class Lost:
    """A log of 4 entries in a backup with its keys; it had 9 when all else was lost.

    The witness `seen` cosigned 9. There are mirrors of 6 and of 9.
    """

    directory: Path
    signer: NoteSigner
    settings: Settings
    lines: dict[str, str]  # of the policy, by name
    labels: dict[str, str]
    stack: ExitStack
    patch: pytest.MonkeyPatch

    @property
    def stale(self) -> str:
        return str(self.directory / "6")

    @property
    def whole(self) -> str:
        return str(self.directory / "9")

    def witness(self, name: str, url: str) -> None:
        """Add a witness that answers at a URL to the policy."""
        key = create(self.directory / name, f"{name}.example", [self.signer.verifier])[0]
        self.lines[name] = f"witness {name} {key.verifier.vkey} {url}\n"
        self.labels[name] = f"{name}.example+{key.verifier.key_id.hex()}"
        self.write()

    def showing(self, name: str, note: str) -> None:
        """Add a witness that says that it holds a note."""
        self.witness(name, self.stack.enter_context(lying(two_lines, note.encode())))

    def write(self) -> None:
        path = self.directory / "policy"
        path.write_text("".join(self.lines.values()) + f"quorum {next(iter(self.lines))}\n")
        self.patch.setenv("LETHE_WITNESS_POLICY", str(path))

    def restore(self) -> None:
        told = run(restore, str(self.directory / "b"), "--keys", str(self.directory / "k"))
        assert told.exit_code == 0, (told.output, told.exception)

    def entries(self) -> int:
        engine = make_engine(self.settings.resolved_database_url)
        found = len(stored_leaves(engine))
        engine.dispose()
        return found

    def refused(self, *arguments: str) -> str:
        """Return why nothing is recovered; nothing was written or signed."""
        guard = (self.settings.keys_dir / GUARD).read_bytes()
        told = run(log, "recover", *arguments)
        assert isinstance(told.exception, RecoverError | ForkedError), told.output
        assert (self.settings.keys_dir / GUARD).read_bytes() == guard
        assert (self.settings.keys_dir / RESTORED).exists()
        assert self.entries() == 4
        return detail(told)

    def recovered(self, *arguments: str) -> str:
        told = run(log, "recover", *arguments)
        assert told.exit_code == 0, (told.output, told.exception)
        return told.output


@pytest.fixture
def lost(
    settings: Settings, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lost]:
    new = settings.model_copy(
        update={
            "database_url": f"sqlite:///{tmp_path / 'elsewhere.db'}",
            "data_dir": tmp_path / "new",
        }
    )
    with ExitStack() as stack:
        signer = ledger.signers.signers[0]
        made = Lost(tmp_path, signer, new, {}, {}, stack, monkeypatch)
        create(tmp_path / "s", "s.example", [ledger.verifier])
        key = (tmp_path / "s" / "witness.vkey").read_text().strip()
        url = stack.enter_context(serving(tmp_path / "s"))
        made.lines["seen"] = f"witness seen {key} {url}\n"
        made.labels["seen"] = "+".join(key.split("+")[:2])
        made.write()
        asking = settings.model_copy(update={"witness_policy": str(tmp_path / "policy")})
        monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
        point_at(settings, monkeypatch)
        leaves = [entry(number) for number in range(9)]
        with gathering(ledger, asking) as gatherer:
            append(ledger, *leaves[:4])
            gatherer.round()
            told = run(backup, "new", str(tmp_path / "b"), "--keys", str(tmp_path / "k"))
            assert told.exit_code == 0, (told.output, told.exception)
            append(ledger, *leaves[4:])
            assert gatherer.round()
        for size in (6, 9):
            for path, data in log_files(leaves[:size], signer).items():
                target = tmp_path / str(size) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        point_at(new, monkeypatch)
        yield made


@pytest.mark.parametrize("sources", [lambda lost: [lost.stale], lambda _: ["--no-mirror"]])
def test_entries_that_a_witness_cosigned_must_be_back(
    lost: Lost, sources: Callable[[Lost], list[str]]
) -> None:
    lost.restore()
    said = lost.refused(*sources(lost))
    assert f"the witness {lost.labels['seen']} cosigned 9 entries" in said
    assert "are missing. Give another mirror" in said
    # What a witness shows counts, whatever is said of witnesses that show nothing.
    lost.refused(*sources(lost), "--without-witness", "all")
    told = lost.recovered(lost.whole)
    assert "recovered 5 entries: the log has 9" in told
    assert "compared with what 1 witness cosigned last" in told
    engine = make_engine(lost.settings.resolved_database_url)
    ledger = load_ledger(lost.settings, engine)
    append(ledger, entry(9))
    asking = lost.settings.model_copy(update={"witness_policy": str(lost.directory / "policy")})
    with gathering(ledger, asking) as gatherer:
        assert gatherer.round()  # it is the history that the witness knows
    engine.dispose()


def test_a_witness_that_is_down_is_left_out_by_name(lost: Lost) -> None:
    lost.witness("down", nowhere())
    lost.restore()
    said = lost.refused(lost.whole)
    label = lost.labels["down"]
    assert f"{label}: it cannot be reached" in said
    assert f"--without-witness {label}" in said
    assert lost.labels["seen"] not in said
    for other in ("down", lost.labels["seen"]):
        lost.refused(lost.whole, "--without-witness", other)
    told = lost.recovered(lost.whole, "--without-witness", label)
    assert f"left out: the witness {label}: it cannot be reached" in told


@pytest.mark.parametrize("size", [3, 5, 9, 12])
def test_a_fork_that_a_witness_shows_is_never_signed_over(lost: Lost, size: int) -> None:
    fork = Checkpoint(lost.signer.name, size, OTHER_ROOT)
    lost.showing("fork", sign_checkpoint(fork, lost.signer))
    lost.restore()
    for flags in ([], ["--without-witness", "all"]):
        said = lost.refused(lost.whole, *flags)
        assert lost.labels["fork"] in said
        assert ("are missing" in said) == (size > 9)
        assert ("signed two histories" in said) == (size <= 9)
        assert "lethe log init --succeeds" in said


def _no_note(_: Lost) -> str:
    return "not a note\n"


def _strangers(lost: Lost) -> str:
    stranger = NoteSigner(lost.signer.name, STRANGER.key)
    return sign_checkpoint(Checkpoint(lost.signer.name, 12, OTHER_ROOT), stranger)


def _of_another_log(lost: Lost) -> str:
    other = NoteSigner("other.example", lost.signer.key)
    return sign_checkpoint(Checkpoint("other.example", 12, OTHER_ROOT), other)


def _changed(lost: Lost) -> str:
    note = sign_checkpoint(Checkpoint(lost.signer.name, 9, OTHER_ROOT), lost.signer)
    return note.replace("\n9\n", "\n8\n")


@pytest.mark.parametrize("answer", [_no_note, _strangers, _of_another_log, _changed])
def test_what_this_logs_key_did_not_sign_is_no_answer(
    lost: Lost, answer: Callable[[Lost], str]
) -> None:
    lost.showing("liar", answer(lost))
    lost.restore()
    said = lost.refused(lost.whole)
    assert f"{lost.labels['liar']}: no key of this log" in said
    lost.recovered(lost.whole, "--without-witness", lost.labels["liar"])


def test_a_witness_that_holds_nothing_is_no_answer(lost: Lost) -> None:
    """It lost its memory, or answers this question elsewhere: it may have cosigned more."""
    lost.witness("empty", lost.stack.enter_context(lying(two_lines, None)))
    lost.restore()
    assert "it shows no checkpoint of this log" in lost.refused(lost.whole)
    lost.recovered(lost.whole, "--without-witness", "all")


def test_a_policy_that_was_forgotten_is_asked_for(lost: Lost) -> None:
    lost.patch.delenv("LETHE_WITNESS_POLICY")
    lost.restore()
    assert "LETHE_WITNESS_POLICY is not set" in lost.refused(lost.stale)
    assert "the log has 6" in lost.recovered(lost.stale, "--without-witness", "all")


def test_a_rehearsal_with_keys_of_a_backup_asks_them_too(lost: Lost) -> None:
    shutil.copytree(lost.directory / "k", lost.settings.keys_dir)

    def rehearse(*arguments: str) -> str:
        told = run(
            backup,
            "rehearse",
            str(lost.directory / "b"),
            "--keys",
            str(lost.directory / "k"),
            *arguments,
        )
        return detail(told) if told.exception and told.exit_code != 0 else told.output

    said = rehearse("--mirror", lost.stale)
    assert f"the witness {lost.labels['seen']} cosigned 9 entries" in said
    lost.witness("down", nowhere())
    assert "--without-witness" in rehearse("--mirror", lost.whole)
    told = rehearse("--mirror", lost.whole, "--without-witness", lost.labels["down"])
    assert "checked 9 entries, 5 of them from a mirror" in told
    assert f"left out: the witness {lost.labels['down']}" in told


def test_a_rehearsal_with_the_keys_in_use_needs_no_witness(
    lost: Lost, settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their guard is durable before anything is signed: no witness knows of more."""
    lost.witness("down", nowhere())
    point_at(settings, monkeypatch)
    arguments = "rehearse", str(lost.directory / "b"), "--mirror", lost.whole
    told = run(backup, *arguments)
    assert told.exit_code == 0, (told.output, told.exception)
    assert (
        "--without-witness needs --keys"
        in run(backup, *arguments, "--without-witness", "all").output
    )
