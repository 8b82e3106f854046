"""A witness follows the rotation of a log's key by the log's trust root, without a restart."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger.sequencer import Ledger
from lethe import files
from lethe.certificates.trust_root import TrustRootError
from lethe.cli.witness import witness as commands
from lethe.log.log_keys import LogKey, LogKeys
from lethe.log.note import NoteVerifier, parse_vkey, read_note, split_note
from lethe.witness import home, logs
from lethe.witness.logs import HomeError
from lethe.witness.protocol import AddCheckpoint, format_add_checkpoint
from lethe.witness.witness import NotTheLogError, UnknownLogError, Witness
from tests.app.keys.test_log_key import trust
from tests.app.ledger.samples import append, entry
from tests.installation import Installation
from tests.lethe.certificates.build import log_signer

OTHER = log_signer("second.example", b"second").verifier


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database is enough: a witness only sees the log."""
    return sqlite_url


@pytest.fixture
def place(ready: Installation, tmp_path: Path) -> Path:
    """A witness's directory, with the log's first key."""
    home.create(tmp_path / "w", "w.example", [ready.services.ledger.verifier, OTHER])
    return tmp_path / "w"


@pytest.fixture
def witness(place: Path) -> Iterator[Witness]:
    loaded = home.load(place)
    yield loaded
    loaded.heads.close()


def cosigned(witness: Witness, ledger: Ledger, place: Path) -> bool:
    """Append an entry and have its checkpoint cosigned."""
    held = witness.heads.read(ledger.origin)
    old = 0 if held is None else held.size
    append(ledger, entry(0))
    latest = ledger.latest()
    proof = ledger.consistency(old, latest.size) if old else []
    lines = witness.add_checkpoint(
        format_add_checkpoint(AddCheckpoint(old, tuple(proof), latest.note))
    )
    text, _ = split_note(latest.note)
    keys = [parse_vkey((place / f"{stem}.vkey").read_text()[:-1]) for stem in home.KEYS]
    return len(read_note(f"{text}\n{lines}", keys).verified) == 2


def follow(place: Path, root: bytes) -> Result:
    return CliRunner().invoke(commands, ["follow", str(place), "-"], input=root)


def listed(place: Path) -> list[str]:
    return (place / "logs").read_text().splitlines()[1:]


def test_from_the_old_key_through_the_overlap_to_the_new(
    ready: Installation, witness: Witness, place: Path
) -> None:
    ledger, old = ready.services.ledger, ready.services.ledger.verifier
    before = trust(ready)
    assert f"nothing has changed for {ledger.origin}" in follow(place, before).output
    assert cosigned(witness, ledger, place)
    new = rotate_log(ready.settings, ledger).key.verifier
    within = trust(ready)
    assert follow(place, within).output == f"added {new.vkey}\n"
    assert listed(place) == [old.vkey, new.vkey, OTHER.vkey]
    assert "nothing has changed" in follow(place, within).output
    assert "nothing has changed" in follow(place, before).output
    assert listed(place) == [old.vkey, new.vkey, OTHER.vkey]
    assert cosigned(witness, ledger, place)
    revoke_log(ready.settings, ledger, "superseded")
    assert follow(place, trust(ready)).output == f"removed {old.vkey}\n"
    assert listed(place) == [new.vkey, OTHER.vkey]
    assert cosigned(witness, ledger, place)
    # An older trust root does not restore the old key.
    for root in (before, within):
        assert isinstance(follow(place, root).exception, TrustRootError)
    assert listed(place) == [new.vkey, OTHER.vkey]


def test_an_older_key_leads_to_none(ready: Installation, place: Path) -> None:
    """As a thief of the key that is about to be revoked would try."""
    ledger, old = ready.services.ledger, ready.services.ledger.verifier
    own = log_signer(ledger.origin, b"another").verifier
    (place / "logs").write_text(f"{old.vkey}\n{own.vkey}\n")
    rotate_log(ready.settings, ledger)
    assert isinstance(follow(place, trust(ready)).exception, TrustRootError)
    assert (place / "logs").read_text() == f"{old.vkey}\n{own.vkey}\n"


def test_an_older_key_removes_none(ready: Installation, place: Path) -> None:
    old = ready.services.ledger.verifier
    new = log_signer(old.name, b"another").verifier
    (place / "logs").write_text(f"{old.vkey}\n{new.vkey}\n")
    said = LogKeys((LogKey(old), LogKey(new, 3, 4, "compromised")))

    def lead(known: NoteVerifier | None) -> LogKeys:
        if known == new:
            raise TrustRootError("it did not sign this")
        return said

    assert logs.follow(place, lead) == logs.Followed(old.name, (), ())
    assert (place / "logs").read_text() == f"{old.vkey}\n{new.vkey}\n"


def test_an_older_key_below_the_newer_one_adds_none(ready: Installation, place: Path) -> None:
    """A stolen key's history lacks the operator's newer key."""
    stolen = ready.services.ledger.verifier
    new, own = (log_signer(stolen.name, seed).verifier for seed in (b"new", b"own"))
    (place / "logs").write_text(f"{new.vkey}\n{stolen.vkey}\n")

    def lead(known: NoteVerifier | None) -> LogKeys:
        if known == new:
            raise TrustRootError("it did not sign this")
        return LogKeys((LogKey(stolen), LogKey(own, 3)))

    with pytest.raises(HomeError, match="another history"):
        logs.follow(place, lead)
    assert (place / "logs").read_text() == f"{new.vkey}\n{stolen.vkey}\n"


def test_two_commands_at_once_lose_no_key(
    ready: Installation, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ALONE_WAIT_S", 0.0)
    own, write = ready.services.ledger.verifier, files.write_durably
    new, other = (log_signer(key.name, b"new").verifier for key in (own, OTHER))

    def of_the_other(_: NoteVerifier | None) -> LogKeys:
        return LogKeys((LogKey(OTHER), LogKey(other, 3)))

    def written_late(path: Path, data: bytes) -> None:
        monkeypatch.setattr(logs, "write_durably", write)
        with pytest.raises(HomeError, match="another command"):
            logs.follow(place, of_the_other)
        write(path, data)

    monkeypatch.setattr(logs, "write_durably", written_late)
    logs.follow(place, lambda _: LogKeys((LogKey(own), LogKey(new, 3))))
    logs.follow(place, of_the_other)
    assert listed(place) == [own.vkey, new.vkey, OTHER.vkey, other.vkey]


def test_whoever_missed_the_overlap_is_led_on(
    ready: Installation, witness: Witness, place: Path
) -> None:
    ledger, old = ready.services.ledger, ready.services.ledger.verifier
    assert cosigned(witness, ledger, place)
    for _ in range(2):
        rotate_log(ready.settings, ledger)
        revoke_log(ready.settings, ledger, "superseded")
    with pytest.raises(NotTheLogError):
        cosigned(witness, ledger, place)
    done = follow(place, trust(ready))
    assert done.output == f"added {ledger.verifier.vkey}\nremoved {old.vkey}\n"
    assert cosigned(witness, ledger, place)


def test_a_trust_root_that_does_not_lead_on_changes_nothing(
    ready: Installation, place: Path
) -> None:
    rotate_log(ready.settings, ready.services.ledger)
    forged = bytearray(trust(ready))
    forged[forged.index(b"logKeys") + 40] ^= 1
    before = listed(place)
    assert isinstance(follow(place, bytes(forged)).exception, TrustRootError)
    assert listed(place) == before
    (place / "logs").write_text(f"{OTHER.vkey}\n")
    refused = follow(place, trust(ready)).exception
    assert isinstance(refused, HomeError)
    assert "add its vkey there first" in refused.detail
    assert (place / "logs").read_text() == f"{OTHER.vkey}\n"


def test_a_list_that_is_damaged_while_the_witness_serves_changes_nothing(
    ready: Installation, witness: Witness, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = (place / "logs").read_text()
    (place / "logs").write_text("key\n")
    with caplog.at_level(logging.ERROR):
        assert cosigned(witness, ready.services.ledger, place)
    assert "the list of logs stays as it was: line 1 of" in caplog.text
    (place / "logs").write_text(good.replace(ready.services.ledger.verifier.vkey, "#"))
    with pytest.raises(UnknownLogError):
        cosigned(witness, ready.services.ledger, place)
