"""The log's second key: checkpoints signed by Ed25519 and ML-DSA-44."""

import pytest
from click.testing import CliRunner, Result

from app.cli.witnesses import ml_dsa
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger import startup
from app.ledger.entry_macs import KeyMissingError
from app.ledger.key_files import KeyPlaceError
from app.ledger.log_files import ML_DSA_KEY, ML_DSA_VKEY, make_ml_dsa
from app.ledger.sequencer import Ledger
from app.ledger.startup import ML_DSA_MADE, create_ml_dsa, load_ledger, open_ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from lethe.log.checkpoint import open_checkpoint
from lethe.log.key_changes import ML_DSA
from lethe.log.note import parse_vkey, read_note
from lethe.signing.keys import generate_key, private_pem
from tests.app.ledger.samples import append, entry


def test_checkpoints_from_the_next_start_on_have_both_signatures(
    settings: Settings, ledger: Ledger
) -> None:
    append(ledger, entry(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
        patch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
        patch.setenv("LETHE_ORIGIN", settings.origin)
        told = CliRunner().invoke(ml_dsa, [])
        assert CliRunner().invoke(ml_dsa, []).output == told.output  # the same key
    second = parse_vkey(told.output.strip())
    assert (settings.keys_dir / ML_DSA_VKEY).read_text().strip() == second.vkey
    assert (settings.keys_dir / ML_DSA_KEY).stat().st_mode & 0o077 == 0
    started = load_ledger(settings, ledger.engine)
    assert not started.has_keys_of(ledger)
    append(started, entry(2))
    note = started.latest().note
    assert read_note(note, [started.verifier, second]).verified == (started.verifier, second)
    assert open_checkpoint(note, started.verifier).size == 2
    assert fsck(started).ok
    # A process that was not restarted continues with one signature, and nothing breaks.
    append(ledger, entry(3))
    assert read_note(ledger.latest().note, [ledger.verifier]).unverified == ()


def test_a_missing_or_foreign_second_key_is_refused(settings: Settings, ledger: Ledger) -> None:
    create_ml_dsa(settings)
    (settings.keys_dir / ML_DSA_KEY).write_text(private_pem(generate_key()))
    with pytest.raises(KeyMissingError, match="not an ML-DSA-44 key"):
        open_ledger(settings, ledger.engine)
    (settings.keys_dir / ML_DSA_KEY).unlink()
    with pytest.raises(KeyMissingError, match="is missing, and log-mldsa"):
        open_ledger(settings, ledger.engine)


def second_key(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run `lethe log ml-dsa`."""
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    return CliRunner().invoke(ml_dsa, [])


def plant(settings: Settings) -> str:
    """Plant a key and its public half, as anyone who can create files could."""
    own = make_ml_dsa(settings, ML_DSA_KEY).verifier.vkey
    (settings.keys_dir / ML_DSA_VKEY).write_text(f"{own}\n")
    (settings.keys_dir / ML_DSA_MADE).write_text("0" * 64 + "\n")
    return own


def test_a_key_that_somebody_put_there_is_not_the_logs_second(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = plant(settings)
    told = second_key(settings, monkeypatch)
    assert told.exit_code == 0, (told.output, told.exception)
    assert told.output.strip() != own
    assert second_key(settings, monkeypatch).output == told.output
    started = load_ledger(settings, ledger.engine)
    append(started, entry(1))
    assert [one.vkey for one in started.signing(ML_DSA)] == [told.output.strip()]


def test_nor_if_it_signs_checkpoints_already(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = plant(settings)
    append(load_ledger(settings, ledger.engine), entry(1))  # as after a restart
    told = second_key(settings, monkeypatch)
    assert isinstance(told.exception, KeyPlaceError)
    assert own in told.exception.detail
    for name in (ML_DSA_KEY, ML_DSA_VKEY):  # as the error says
        (settings.keys_dir / name).unlink()
    assert second_key(settings, monkeypatch).output.strip() not in ("", own)


@pytest.mark.parametrize("step", ["make_ml_dsa", "write_durably"])
def test_a_killed_command_can_be_repeated(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(startup, step, die)
            with pytest.raises(Killed):
                create_ml_dsa(settings)
    told = second_key(settings, monkeypatch)
    assert told.exit_code == 0, (told.output, told.exception)
    append(load_ledger(settings, ledger.engine), entry(1))
    assert second_key(settings, monkeypatch).output == told.output
    assert fsck(load_ledger(settings, ledger.engine)).ok


def test_a_key_that_a_rotation_made_is_the_logs(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_key(settings, monkeypatch)
    started = load_ledger(settings, ledger.engine)
    append(started, entry(1))
    new = rotate_log(settings, started, role=ML_DSA).key.verifier
    revoke_log(settings, started, "superseded", role=ML_DSA)
    assert second_key(settings, monkeypatch).output.strip() == new.vkey
    (settings.keys_dir / ML_DSA_KEY).unlink()
    make_ml_dsa(settings, ML_DSA_KEY)
    told = second_key(settings, monkeypatch)
    assert isinstance(told.exception, KeyMissingError)
    assert "not a key that the log names" in told.exception.detail
