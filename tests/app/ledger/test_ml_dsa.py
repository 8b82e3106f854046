"""The log's second key: checkpoints signed by Ed25519 and ML-DSA-44."""

import pytest
from click.testing import CliRunner

from app.cli.witnesses import ml_dsa
from app.ledger.entry_macs import KeyMissingError
from app.ledger.log_files import ML_DSA_KEY, ML_DSA_VKEY, create_ml_dsa
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger, open_ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from lethe.log.checkpoint import open_checkpoint
from lethe.log.note import parse_vkey, read_note
from lethe.signing.keys import generate_key, private_pem
from tests.app.ledger.samples import append, entry


def test_checkpoints_from_the_next_start_on_have_both_signatures(
    settings: Settings, ledger: Ledger
) -> None:
    append(ledger, entry(1))
    with pytest.MonkeyPatch.context() as patch:
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
    # A process that was not started anew goes on with one signature, and nothing breaks.
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
