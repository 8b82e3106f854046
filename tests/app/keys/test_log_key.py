"""The log's key is rotated with an overlap; a key that was not announced is rejected."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlmodel import Session

from app.cli.service_key import service_key as key_commands
from app.keys import rotate_log as rotation
from app.keys.log import logged_keys
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger.entry_macs import KeyMissingError
from app.ledger.log_files import (
    LOG_KEY,
    LOG_VKEY,
    NEXT_KEY,
    NEXT_VKEY,
    RoleFiles,
    load_signer,
    read_log_keys,
)
from app.ledger.recover import Recovered, RecoverError, Witnessed, recover
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.problems import ConflictError
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from app.witnesses import standing
from app.witnesses.standing import standings
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.trust_root import TrustRootError, parse_trust_root
from lethe.certificates.verify import verify_certificate
from lethe.cli.log import log as log_commands
from lethe.files import write_durably
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.entries import parse_leaf
from lethe.log.fetch import Fetch, LogError, MissingFileError
from lethe.log.follow import mirror_log, verify_log
from lethe.log.key_changes import LOG
from lethe.log.note import NoteError, NoteVerifier, split_note
from lethe.signing.keys import generate_key, private_pem
from tests.app.cli.test_backup import point_at
from tests.app.keys.test_issuer import certified, verdict
from tests.app.ledger.samples import append, entry, stored_leaves
from tests.app.witnesses.three import gathering, three_witnesses
from tests.installation import Installation
from tests.lethe.log.logs import fetch_files, log_files
from tests.lethe.witness.logs import serving


def signers(ledger: Ledger) -> list[str]:
    """Return the key ids of the latest checkpoint's signatures."""
    return [line.key_id.hex() for line in split_note(ledger.latest().note)[1]]


def ids(*verifiers: NoteVerifier) -> list[str]:
    return [one.key_id.hex() for one in verifiers]


def served(made: Installation) -> Fetch:
    """Read the log as a stranger does."""

    def fetch(path: str) -> bytes:
        answer = made.caller.http.get(f"/v1/log/{path}")
        if answer.status_code == 404:
            raise MissingFileError(path, path=path)
        return answer.content

    return fetch


def trust(made: Installation) -> bytes:
    answer = made.caller.http.get("/v1/log/trust-root")
    assert answer.status_code == 200, answer.text
    return answer.content


def test_from_the_old_key_through_the_overlap_to_the_new(
    ready: Installation, tmp_path: Path
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    old = ledger.verifier
    mirror_log(served(ready), old, tmp_path / "mirror")
    before = certified(ready, "r1")

    new = rotate_log(settings, ledger).key.verifier
    within = certified(ready, "r2")
    assert signers(ledger) == ids(old, new)
    # Verifiers with only the old key are unaffected; the new key is not required yet.
    assert verify_log(served(ready), old).size == ledger.latest().size
    assert verify_log(served(ready), new).size == ledger.latest().size

    done = revoke_log(settings, ledger, "superseded")
    assert signers(ledger) == ids(old, new)  # both sign the end of the overlap
    after = certified(ready, "r3")
    assert signers(ledger) == ids(new)
    root = trust(ready)
    for known in (None, old, new):
        said = parse_trust_root(root, known)
        assert ids(*said.log.verifiers) == ids(old, new)
        assert said.log.keys[0].revoked == done.key.revoked
        for data in (before, within, after):
            assert verdict(data, said).result == "PASS", verdict(data, said).failed
    # Each certificate keeps the bytes, and the key, that it was issued with.
    assert parse_bundle(within).entry.log_id.key_id == old.log_id
    assert parse_bundle(after).entry.log_id.key_id == new.log_id
    for data in (before, within, after):
        answer = ready.caller.http.post("/v1/certificates/verify", files={"bundle": data})
        assert answer.json()["result"] == "PASS"
    assert verify_certificate(after, log=old, issuer=said.issuers).result == "FAIL"
    # A follower with the old key needs the trust root, which leads to the new one.
    with pytest.raises(LogError, match="no known key signed"):
        verify_log(served(ready), old)
    led = parse_trust_root(root, old).log
    assert mirror_log(served(ready), led, tmp_path / "mirror").size == ledger.latest().size
    assert (settings.keys_dir / LOG_VKEY).read_text() == f"{new.vkey}\n"
    assert ready.caller.http.get("/v1/log/vkey").text == f"{new.vkey}\n"
    assert read_log_keys(settings).verifiers == [old, new]
    assert ready.caller.http.get("/readyz").status_code == 200
    assert fsck(load_ledger(settings, ready.services.engine)).ok
    ready.check()


def test_receipts_of_before_are_made_after(ready: Installation) -> None:
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    settings, ledger = ready.settings, ready.services.ledger
    rotate_log(settings, ledger)
    revoke_log(settings, ledger, "superseded")
    answer = ready.caller.http.get(f"/v1/requests/{request}/certificate/receipt")
    assert answer.status_code == 200, answer.text


def test_a_process_at_work_follows_without_a_restart(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    other = load_ledger(settings, ready.services.engine)
    old = ledger.verifier
    new = rotate_log(settings, ledger).key.verifier
    append(other, entry(0))
    assert signers(other) == ids(old, new)
    revoke_log(settings, other, "superseded")
    append(ledger, entry(1))
    assert signers(ledger) == ids(new)
    assert ledger.has_keys_of(load_ledger(settings, ready.services.engine))
    # A follower that missed all of it accepts the new key too: its own key precedes it.
    again = load_ledger(settings, ready.services.engine)
    rotate_log(settings, ledger)
    revoke_log(settings, ledger, "superseded")
    append(again, entry(2))
    assert signers(again) == ids(ledger.verifier)
    assert len(logged_keys(ledger).keys) == 3
    said = parse_trust_root(trust(ready), old)
    assert len(said.log.keys) == 3


def test_a_key_that_nobody_announced_signs_nothing_and_is_believed_by_nobody(
    ready: Installation, tmp_path: Path
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    old = ledger.verifier
    shutil.copy(settings.keys_dir / LOG_KEY, tmp_path / LOG_KEY)
    (settings.keys_dir / LOG_KEY).write_text(private_pem(generate_key("ed25519")))
    append(ledger, entry(0))
    assert signers(ledger) == ids(old)
    assert ready.caller.http.get("/readyz").status_code == 503
    theirs = load_signer(settings)
    forged = sign_checkpoint(ledger.open(ledger.latest().note), theirs)
    shutil.copy(tmp_path / LOG_KEY, settings.keys_dir / LOG_KEY)

    def fetch(path: str) -> bytes:
        return forged.encode() if path == "checkpoint" else served(ready)(path)

    with pytest.raises(LogError, match="no known key signed"):
        verify_log(fetch, logged_keys(ledger))
    with pytest.raises(TrustRootError, match="another log"):
        parse_trust_root(trust(ready), theirs.verifier)


def test_what_the_old_key_signs_after_its_revocation_counts_no_more(
    ready: Installation, tmp_path: Path
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    shutil.copy(settings.keys_dir / LOG_KEY, tmp_path / "stolen")
    rotate_log(settings, ledger)
    early = ledger.open(ledger.latest().note)
    revoke_log(settings, ledger, "key-compromise")
    certified(ready, "r1")
    known = parse_trust_root(trust(ready)).log
    shutil.copy(tmp_path / "stolen", settings.keys_dir / "stolen")
    stolen = load_signer(settings, "stolen")
    late = ledger.open(ledger.latest().note)
    with pytest.raises(NoteError, match="was revoked by entry"):
        known.open(sign_checkpoint(late, stolen))
    assert known.open(sign_checkpoint(early, stolen))[0] == early
    new = load_signer(settings)
    too_early = type(early)(early.origin, 1, early.root)
    with pytest.raises(NoteError, match="was announced by entry"):
        known.open(sign_checkpoint(too_early, new))


def test_a_stolen_key_that_was_revoked_accuses_the_log_of_no_fork(
    ready: Installation, tmp_path: Path
) -> None:
    """A dishonest witness shows a tree signed by the thief: no alarm, and older alarms end."""
    settings, ledger, http = ready.settings, ready.services.ledger, ready.caller.http

    def forks() -> str:
        ready.services.seen.clear()  # drop cached results
        lines = ready.caller.operator("GET", "/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("lethe_witness_forks"))

    shutil.copy(settings.keys_dir / LOG_KEY, settings.keys_dir / "stolen")
    stolen = load_signer(settings, "stolen")
    rotate_log(settings, ledger)
    tree = Checkpoint(ledger.origin, 1000, bytes(32))
    standing.note_problem(ledger, "w", standing.FORKED, sign_checkpoint(tree, stolen))
    assert http.get("/readyz").status_code == 503  # until its revocation, the key is the log's
    assert forks() == "lethe_witness_forks 1.0"
    revoke_log(settings, ledger, "key-compromise")
    (settings.keys_dir / "stolen").unlink()
    assert forks() == "lethe_witness_forks 0.0"
    assert http.get("/readyz").status_code == 200
    assert fsck(ledger).ok
    below = Checkpoint(ledger.origin, 1, bytes(32))  # either of the two may have signed it
    standing.note_problem(ledger, "w", standing.FORKED, sign_checkpoint(below, stolen))
    with Session(ledger.engine) as session:
        assert list(standing.contradictions(session, ledger)) == ["w"]


def test_a_mirror_that_a_revoked_key_signed_is_not_believed_over_the_guard(
    ready: Installation, tmp_path: Path
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    shutil.copy(settings.keys_dir / LOG_KEY, tmp_path / "stolen")
    rotate_log(settings, ledger)
    revoke_log(settings, ledger, "key-compromise")
    leaves, guard = list(stored_leaves(ledger.engine)), ledger.guard.path.read_bytes()
    shutil.copy(tmp_path / "stolen", settings.keys_dir / "stolen")
    stolen = load_signer(settings, "stolen")
    contradiction = next(
        leaf for leaf in leaves if (key := parse_leaf(leaf).key) and key.role == LOG
    )
    for forged in (entry(1), contradiction):
        mirror = fetch_files(log_files([*leaves, forged], stolen))
        with pytest.raises(LogError, match="a mirror is not believed"):
            recover(ledger, [mirror], lambda _session, found: len(found))
        assert stored_leaves(ledger.engine) == tuple(leaves)
        assert ledger.guard.path.read_bytes() == guard
    latest = fetch_files(log_files(leaves, load_signer(settings)))
    assert recover(ledger, [latest], lambda _session, found: len(found)).result == 0


def test_a_witness_with_a_checkpoint_of_a_revoked_key_shows_nothing(
    ready: Installation, tmp_path: Path
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    shutil.copy(settings.keys_dir / LOG_KEY, tmp_path / "stolen")
    rotate_log(settings, ledger)
    revoke_log(settings, ledger, "key-compromise")
    shutil.copy(tmp_path / "stolen", settings.keys_dir / "stolen")
    tree = Checkpoint(ledger.origin, 1000, bytes(32))
    stolen = Witnessed("w", sign_checkpoint(tree, load_signer(settings, "stolen")))
    guard = ledger.guard.path.read_bytes()

    def recovered(shown: Witnessed, *without: str) -> Recovered[int]:
        return recover(ledger, [], lambda _session, found: len(found), [shown], without)

    with pytest.raises(RecoverError, match=r"w: its checkpoint does not count: .* was revoked"):
        recovered(stolen)
    assert ledger.guard.path.read_bytes() == guard
    done = recovered(stolen, "w")
    assert (done.result, done.compared, [one.label for one in done.left_out]) == (0, 0, ["w"])
    honest = Witnessed("w", sign_checkpoint(tree, load_signer(settings)))
    with pytest.raises(RecoverError, match="the witness w cosigned 1000 entries"):
        recovered(honest, "w")


class DiedError(Exception):
    """The process died here."""


def die(*_: object, **__: object) -> None:
    raise DiedError


def dies_after(patch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    """Die once the entry is signed."""
    really = ledger.transact

    def logged(effect: object) -> None:
        really(effect)  # type: ignore[arg-type]
        raise DiedError

    patch.setattr(ledger, "transact", logged)


@pytest.mark.parametrize("crash", ["before the entry", "after the entry"])
def test_an_interrupted_rotation_goes_on(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    old = ledger.verifier
    with monkeypatch.context() as patch:
        if crash == "before the entry":
            patch.setattr(ledger, "transact", die)
        else:
            dies_after(patch, ledger)
        with pytest.raises(DiedError):
            rotate_log(settings, ledger)
    certified(ready, "r1")
    assert signers(ledger) == ids(old)
    parse_trust_root(trust(ready), old)
    if crash == "after the entry":
        with pytest.raises(ConflictError, match="does not sign yet"):
            revoke_log(settings, ledger, "superseded")
    done = rotate_log(settings, ledger)
    assert done.finished is (crash == "after the entry")
    certified(ready, "r2")
    assert signers(ledger) == ids(old, done.key.verifier)
    assert len(logged_keys(ledger).keys) == 2


@pytest.mark.parametrize("crash", ["entry", "previous", "rename", "vkey"])
def test_an_interrupted_revocation_goes_on(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    old = ledger.verifier
    new = rotate_log(settings, ledger).key.verifier
    with monkeypatch.context() as patch:
        if crash == "entry":
            dies_after(patch, ledger)
        elif crash == "previous":
            patch.setattr(Path, "replace", die)
        elif crash == "rename":
            patch.setattr(rotation, "write_durably", dying_at(LOG_VKEY))
        else:
            patch.setattr(Path, "unlink", die)
        with pytest.raises(DiedError):
            revoke_log(settings, ledger, "superseded")
    # Both a running and a new process continue; neither signs with only the old key.
    for one in (ledger, load_ledger(settings, ready.services.engine)):
        append(one, entry(len(signers(one)) + ledger.latest().size))
        assert new.key_id.hex() in signers(one)
    said = parse_trust_root(trust(ready), old)
    assert verify_log(served(ready), said.log).size == ledger.latest().size
    assert revoke_log(settings, ledger, "superseded").finished
    append(ledger, entry(99))
    assert signers(ledger) == ids(new)
    left = {path.name for path in settings.keys_dir.iterdir()}
    assert {LOG_KEY, LOG_VKEY, RoleFiles(LOG).previous} <= left
    assert not left & {NEXT_KEY, NEXT_VKEY}
    with pytest.raises(ConflictError, match="only one key of the log signs"):
        revoke_log(settings, ledger, "superseded")
    assert read_log_keys(settings).verifiers == [old, new]


def dying_at(name: str) -> Callable[..., None]:
    def write(path: Path, data: bytes, mode: int) -> None:
        if path.name == name:
            raise DiedError
        write_durably(path, data, mode=mode)

    return write


def test_damaged_key_files_are_named(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    rotate_log(settings, ledger)
    with pytest.raises(ConflictError, match="sign already"):
        rotate_log(settings, ledger)
    pem = (settings.keys_dir / NEXT_KEY).read_text()
    (settings.keys_dir / NEXT_KEY).write_text(private_pem(generate_key("ed25519")))
    with pytest.raises(KeyMissingError, match="is not the key of"):
        load_ledger(settings, ready.services.engine)
    (settings.keys_dir / NEXT_KEY).write_text(pem)
    (settings.keys_dir / RoleFiles(LOG).previous).write_text("no key\n")
    with pytest.raises(KeyMissingError, match="holds no key"):
        load_ledger(settings, ready.services.engine)


def test_the_commands(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LETHE_ORIGIN", ready.settings.origin)
    point_at(ready.settings, monkeypatch)

    def run(*words: str) -> Result:
        return CliRunner().invoke(key_commands, words)

    old = ready.services.ledger.verifier
    rotated = run("rotate", "log")
    assert rotated.exit_code == 0, rotated.output
    assert ready.services.ledger.origin in rotated.output
    assert run("revoke", "log").exit_code == 0
    listed = [line.split() for line in run("list").output.splitlines()]
    assert ["log", old.key_id.hex(), "0"] in [words[:3] for words in listed]
    certified(ready, "r1")
    root, mirror = tmp_path / "root.json", tmp_path / "mirror"
    assert run("trust-root", "--out", str(root)).exit_code == 0
    led = parse_trust_root(root.read_bytes()).log
    mirror_log(served(ready), led, mirror)
    asked = ["verify", str(mirror), "--vkey", old.vkey]
    assert CliRunner().invoke(log_commands, asked).exit_code == 1
    passed = CliRunner().invoke(log_commands, [*asked, "--trust-root", str(root)])
    assert passed.exit_code == 0, passed.output
    assert CliRunner().invoke(log_commands, ["verify", str(mirror)]).exit_code == 2


def test_witnesses_follow_the_log_to_the_key_that_they_are_told(
    settings: Settings, ledger: Ledger, tmp_path: Path
) -> None:
    directory = tmp_path / "witnesses"
    with three_witnesses(directory, ledger) as three:
        named = three.write(settings, "both")
        with gathering(ledger, named) as ask:
            ask.round()  # witnessing starts with the next entries
            append(ledger, entry(0))
            assert ask.round()
            new = rotate_log(settings, ledger).key.verifier
            assert ask.round()  # it has the old key's signature
            revoke_log(settings, ledger, "superseded")
            assert ask.round()
            append(ledger, entry(1))
            assert not ask.round()
            with Session(ledger.engine) as session:
                problems = {one.witness: one.problem for one in standings(session)}
            assert "refusing" in problems.values()
    with (directory / "honest" / "logs").open("a") as file:
        file.write(f"{new.vkey}\n")
    with serving(directory / "honest") as url:
        three.urls[0] = url
        with gathering(ledger, three.write(settings, "both")) as ask:
            assert ask.round()
