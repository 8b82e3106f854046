"""The log's ML-DSA-44 key is rotated like its Ed25519 key, and independently."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli.service_key import service_key as key_commands
from app.keys import rotate_log as rotation
from app.keys.alone import Rotated
from app.keys.fsck import fsck_keys
from app.keys.log import NoSecondKeyError, logged_keys
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger.log_files import (
    ML_DSA_KEY,
    RoleFiles,
    load_cosigner,
    make_ml_dsa,
)
from app.ledger.sequencer import Ledger
from app.ledger.startup import create_ml_dsa, load_ledger
from app.problems import ConflictError
from app.reconcile.findings import FsckReport
from app.settings import Settings
from lethe import canonical
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.trust_root import TrustRootError, parse_trust_root, root_digest
from lethe.certificates.verify import verify_certificate
from lethe.cli.certificate import verify
from lethe.cli.log import log
from lethe.errors import LetheError
from lethe.log.checkpoint import sign_checkpoint
from lethe.log.follow import verify_log
from lethe.log.key_changes import ML_DSA
from lethe.log.log_keys import LogKey
from lethe.log.note import NoteError, NoteVerifier, parse_vkey
from lethe.log.watch import EVIDENCE
from tests.app.cli.test_backup import point_at
from tests.app.keys.test_issuer import certified
from tests.app.keys.test_log_key import (
    DiedError,
    die,
    dies_after,
    dying_at,
    ids,
    served,
    signers,
    trust,
)
from tests.app.ledger.samples import append, entry
from tests.installation import Installation
from tests.lethe.web.second import HARNESS, NODE

FILES = RoleFiles(ML_DSA)


@pytest.fixture
def second(ready: Installation) -> Ledger:
    """A process started after `lethe log ml-dsa` that signed a checkpoint with both keys."""
    create_ml_dsa(ready.settings)
    begun = load_ledger(ready.settings, ready.services.engine)
    ready.services.ledger.source = begun.source  # as its restart
    append(begun, entry(0))
    return begun


def accepted(folder: Path, bundle: bytes, root: bytes, key: NoteVerifier) -> bool:
    """Return whether the command accepts a certificate, as the second verifier does."""
    (folder / "bundle.json").write_bytes(bundle)
    (folder / "root.json").write_bytes(root)
    (folder / "key.vkey").write_text(f"{key.vkey}\n")
    given = ["--trust-root", str(folder / "root.json"), "--log-mldsa-key"]
    files = [str(folder / "key.vkey"), str(folder / "bundle.json")]
    done = CliRunner().invoke(verify, [*given, *files])
    assert isinstance(done.exception, SystemExit | LetheError | None), done.exception
    if NODE is not None:
        words = [NODE, "--no-warnings", str(HARNESS.parents[3] / "lethe/web/main.mjs")]
        other = subprocess.run(
            [*words, *given, *files], capture_output=True, text=True, check=False
        )
        assert other.returncode in (0, 1, 2), other.stderr
        assert (other.returncode == 0) == (done.exit_code == 0), (other.stdout, done.output)
    return done.exit_code == 0


def rotate(settings: Settings, ledger: Ledger) -> Rotated[LogKey]:
    return rotate_log(settings, ledger, role=ML_DSA)


def revoke(settings: Settings, ledger: Ledger) -> Rotated[LogKey]:
    return revoke_log(settings, ledger, "superseded", role=ML_DSA)


def own_key(settings: Settings) -> NoteVerifier:
    return load_cosigner(settings, ML_DSA_KEY).verifier


def test_from_the_old_key_through_the_overlap_to_the_new(
    ready: Installation, second: Ledger, tmp_path: Path
) -> None:
    settings, first = ready.settings, second.verifier
    old = own_key(settings)
    before = certified(ready, "r1")
    without = trust(ready)
    assert b"mlDsaKeys" not in without
    new = rotate(settings, second).key.verifier
    within = certified(ready, "r2")
    assert signers(ready.services.ledger) == ids(first, old, new)
    done = revoke(settings, second)
    after = certified(ready, "r3")
    assert signers(ready.services.ledger) == ids(first, new)
    root = trust(ready)
    for known in (old, new):
        said = parse_trust_root(root, first, known)
        assert said.ml_dsa is not None
        assert said.ml_dsa.verifiers == [old, new]
        assert said.ml_dsa.keys[0].revoked == done.key.revoked
        for data in (before, within, after):
            found = verify_certificate(
                data, log=said.log, issuer=said.issuers, log_ml_dsa=said.ml_dsa
            )
            assert found.result == "PASS", found.failed
    for data in (before, within, after):
        for known in (old, new):
            assert accepted(tmp_path, data, root, known)
    assert not accepted(tmp_path, after, without, old)
    assert not accepted(tmp_path, after, root, stranger(settings))
    # The old trust root lacks the new key, and its verdicts stay the same.
    said = parse_trust_root(without, first, old)
    assert said.ml_dsa is None
    for data, result in ((before, "PASS"), (after, "FAIL")):
        found = verify_certificate(data, log=first, issuer=said.issuers, log_ml_dsa=old)
        assert found.result == result
    with pytest.raises(TrustRootError, match="another log than the given ML-DSA-44 key"):
        parse_trust_root(root, first, stranger(settings))
    assert verify_log(served(ready), said.log).size == second.latest().size
    assert (settings.keys_dir / FILES.vkey).read_text() == f"{new.vkey}\n"
    assert ready.caller.http.get("/readyz").status_code == 200
    ready.check()


def stranger(settings: Settings) -> NoteVerifier:
    made = make_ml_dsa(settings, "stranger.key").verifier
    (settings.keys_dir / "stranger.key").unlink()
    return made


@pytest.mark.parametrize("both", [False, True])
def test_a_watch_goes_on_with_the_keys_that_the_known_ones_lead_to(
    both: bool,
    ready: Installation,
    second: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings, ledger, old = ready.settings, second, own_key(ready.settings)
    first, copy = ledger.verifier, tmp_path / "copy"
    (tmp_path / "old.vkey").write_text(f"{old.vkey}\n")
    newer: list[str] = []

    def change(_: float) -> None:
        if newer:
            raise DiedError
        if both:
            newer.append(rotate_log(settings, ledger).key.verifier.vkey)
            revoke_log(settings, ledger, "superseded")
        newer.append(rotate(settings, ledger).key.verifier.vkey)
        revoke(settings, ledger)
        certified(ready, "r1")

    monkeypatch.setattr("lethe.cli.log.fetch_from", lambda _: served(ready))
    monkeypatch.setattr("lethe.cli.log.time.sleep", change)
    keys = ("--vkey", first.vkey, "--log-mldsa-key", str(tmp_path / "old.vkey"))
    done = CliRunner().invoke(log, ["watch", "https://log", str(copy), *keys, "--json"])
    assert isinstance(done.exception, DiedError), done.output
    _, *rotated, grown = map(json.loads, done.output.splitlines())
    assert [one["rotated"] for one in rotated] == newer
    assert grown["size"] == ready.services.ledger.latest().size
    assert not (copy / EVIDENCE).exists()


def test_a_watch_forgets_no_revocation_that_a_forged_trust_root_leaves_out(
    ready: Installation, second: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can forge Ed25519 signs it, and has stolen the key that was revoked."""
    settings, copy = ready.settings, tmp_path / "copy"
    shutil.copy(settings.keys_dir / ML_DSA_KEY, settings.keys_dir / "stolen.key")
    stolen = load_cosigner(settings, "stolen.key")
    rotate(settings, second)
    revoked = revoke(settings, second).key.revoked
    certified(ready, "r1")
    (tmp_path / "root.json").write_bytes(trust(ready))
    (tmp_path / "known.vkey").write_text(f"{own_key(settings).vkey}\n")
    lies: dict[str, bytes] = {}

    def attack(_: float) -> None:
        if lies:
            raise DiedError
        rotate(settings, second)
        certified(ready, "r2")
        members = canonical.decode(trust(ready))
        members["mlDsaKeys"][0]["revoked"] = None
        members["entries"] = [
            one for one in members["entries"] if int(one["logIndex"]) != revoked
        ]
        members["signature"] = second.sign_trust_root(root_digest(members | {"signature": ""}))
        latest = second.open(second.latest().note)
        note = sign_checkpoint(latest, second.signers.signers[0], cosigners=[stolen])
        lies.update({"trust-root": canonical.encode(members), "checkpoint": note.encode()})

    real = served(ready)
    monkeypatch.setattr(
        "lethe.cli.log.fetch_from", lambda _: lambda path: lies.get(path) or real(path)
    )
    monkeypatch.setattr("lethe.cli.log.time.sleep", attack)
    given = ("--trust-root", str(tmp_path / "root.json"), "--log-mldsa-key")
    words = ("watch", "https://log", str(copy), *given, str(tmp_path / "known.vkey"), "--json")
    done = CliRunner().invoke(log, words)
    assert done.exit_code == 1, done.output
    assert not isinstance(done.exception, DiedError), done.output
    alarm = json.loads(done.output.splitlines()[-1])
    assert alarm["alarm"] == "changed"
    assert "the log's ML-DSA-44 key did not sign this checkpoint" in alarm["detail"]
    assert Path(alarm["evidence"]).read_bytes() == lies["checkpoint"]


def test_what_the_old_key_signs_after_its_revocation_counts_no_more(
    ready: Installation, second: Ledger, tmp_path: Path
) -> None:
    settings = ready.settings
    shutil.copy(settings.keys_dir / ML_DSA_KEY, settings.keys_dir / "stolen.key")
    rotate(settings, second)
    early = second.open(second.latest().note)
    revoke(settings, second)
    bundle = certified(ready, "r1")
    said = parse_trust_root(trust(ready))
    assert said.ml_dsa is not None
    signer, stolen = second.signers.signers[0], load_cosigner(settings, "stolen.key")
    late = parse_bundle(bundle).entry.inclusion_proof.checkpoint.envelope
    forged = sign_checkpoint(second.open(late), signer, cosigners=[stolen])
    with pytest.raises(NoteError, match="was revoked by entry"):
        said.ml_dsa.open(forged)
    assert said.ml_dsa.open(sign_checkpoint(early, signer, cosigners=[stolen]))[0] == early
    members = canonical.decode(bundle)
    proof = members["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]
    proof["checkpoint"]["envelope"] = forged
    planted = canonical.encode(members)
    found = verify_certificate(planted, log=said.log, issuer=said.issuers)
    assert found.result == "PASS"  # the log's Ed25519 key did sign it
    found = verify_certificate(
        planted, log=said.log, issuer=said.issuers, log_ml_dsa=said.ml_dsa
    )
    assert found.failed is not None
    assert found.failed.number == 5
    assert "was revoked by entry" in found.failed.detail
    assert accepted(tmp_path, bundle, trust(ready), said.ml_dsa.verifiers[0])
    assert not accepted(tmp_path, planted, trust(ready), said.ml_dsa.verifiers[0])


@pytest.mark.parametrize("change", ["swapped", "left out", "announced by nobody", "later"])
def test_a_trust_root_with_other_keys_than_its_entries_is_refused(
    ready: Installation, second: Ledger, tmp_path: Path, change: str
) -> None:
    rotate(ready.settings, second)
    revoke(ready.settings, second)
    members = canonical.decode(trust(ready))
    old, new = members["mlDsaKeys"]
    if change == "swapped":
        old["vkey"], new["vkey"] = new["vkey"], old["vkey"]
    elif change == "left out":
        del members["mlDsaKeys"]
    elif change == "announced by nobody":
        # A checkpoint without the old key's signature, signed only by the log's other key.
        note = new["announcement"]["checkpoint"]
        gone = f"{parse_vkey(old['vkey']).name} "
        head, _, lines = note.rpartition("\n\n")
        kept = lines.splitlines(keepends=True)
        assert len(kept) == 2
        assert all(gone in line for line in kept)
        new["announcement"]["checkpoint"] = f"{head}\n\n{kept[0]}"
    else:
        old["revoked"]["logIndex"] = str(int(old["revoked"]["logIndex"]) + 1)
    members["signature"] = ""
    members["signature"] = second.sign_trust_root(root_digest(members))
    known, bundle = own_key(ready.settings), certified(ready, "r1")
    assert not accepted(tmp_path, bundle, canonical.encode(members), known)
    with pytest.raises(TrustRootError, match=r"ML-DSA-44 keys|no known key signed"):
        parse_trust_root(canonical.encode(members))


def test_a_process_at_work_follows_and_a_foreign_key_is_not_taken(
    ready: Installation, second: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ready.settings
    other = load_ledger(settings, ready.services.engine)
    first, old = second.verifier, own_key(settings)
    shutil.copy(settings.keys_dir / ML_DSA_KEY, settings.keys_dir / "old.key")
    new = rotate(settings, second).key.verifier
    append(other, entry(1))
    assert signers(other) == ids(first, old, new)
    revoke(settings, other)
    append(second, entry(2))
    assert signers(second) == ids(first, new)
    # A key that did not come from a rotation: the process keeps its key and reports it.
    shutil.copy(settings.keys_dir / ML_DSA_KEY, settings.keys_dir / "new.key")
    (settings.keys_dir / "old.key").replace(settings.keys_dir / ML_DSA_KEY)
    append(second, entry(3))
    assert signers(second) == ids(first, new)
    assert ready.caller.http.get("/readyz").status_code == 503
    # A process that starts with it is refused by the log.
    ready.services.ledger.source = load_ledger(settings, ready.services.engine).source
    assert ready.caller.http.get("/readyz").status_code == 503
    report = FsckReport()
    fsck_keys(settings, ready.services.ledger, report)
    assert [one.check for one in report.findings] == ["log-mldsa"]
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    told = CliRunner().invoke(key_commands, ["rotate", "log-mldsa"])
    assert "is not the key" in str(told.exception)
    assert len(logged_keys(second, role=ML_DSA).keys) == 2
    (settings.keys_dir / "new.key").replace(settings.keys_dir / ML_DSA_KEY)


@pytest.mark.parametrize("crash", ["before the entry", "after the entry"])
def test_an_interrupted_rotation_goes_on(
    ready: Installation, second: Ledger, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    settings, first, old = ready.settings, second.verifier, own_key(ready.settings)
    with monkeypatch.context() as patch:
        if crash == "before the entry":
            patch.setattr(second, "transact", die)
        else:
            dies_after(patch, second)
        with pytest.raises(DiedError):
            rotate(settings, second)
    certified(ready, "r1")
    assert signers(second) == ids(first, old)
    parse_trust_root(trust(ready), first, old)
    if crash == "after the entry":
        with pytest.raises(ConflictError, match="does not sign yet"):
            revoke(settings, second)
    done = rotate(settings, second)
    assert done.finished is (crash == "after the entry")
    certified(ready, "r2")
    assert signers(second) == ids(first, old, done.key.verifier)
    assert len(logged_keys(second, role=ML_DSA).keys) == 2
    with pytest.raises(ConflictError, match="two keys of the log sign already"):
        rotate(settings, second)


@pytest.mark.parametrize("crash", ["entry", "previous", "rename", "vkey"])
def test_an_interrupted_revocation_goes_on(
    ready: Installation, second: Ledger, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    settings, first, old = ready.settings, second.verifier, own_key(ready.settings)
    new = rotate(settings, second).key.verifier
    with monkeypatch.context() as patch:
        if crash == "entry":
            dies_after(patch, second)
        elif crash == "previous":
            patch.setattr(Path, "replace", die)
        elif crash == "rename":
            patch.setattr(rotation, "write_durably", dying_at(FILES.vkey))
        else:
            patch.setattr(Path, "unlink", die)
        with pytest.raises(DiedError):
            revoke(settings, second)
    again = load_ledger(settings, ready.services.engine)
    certified(ready, "r1")
    said = parse_trust_root(trust(ready), first, old)
    assert said.ml_dsa is not None
    revoke(settings, again)
    certified(ready, "r2")
    assert signers(again) == ids(first, new)
    assert not (settings.keys_dir / FILES.next_vkey).exists()
    assert ready.caller.http.get("/readyz").status_code == 200
    with pytest.raises(ConflictError, match="only one key of the log signs"):
        revoke(settings, again)


def test_without_a_second_key_there_is_nothing_to_rotate(ready: Installation) -> None:
    with pytest.raises(NoSecondKeyError, match="lethe log ml-dsa"):
        rotate(ready.settings, ready.services.ledger)
    create_ml_dsa(ready.settings)
    begun = load_ledger(ready.settings, ready.services.engine)
    with pytest.raises(ConflictError, match="lacks the signature"):
        rotate(ready.settings, begun)
