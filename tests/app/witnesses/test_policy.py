"""LETHE_WITNESS_POLICY: what a process refuses to start with."""

from pathlib import Path

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings, SettingsError
from app.witnesses.policy import load_policy
from tests.lethe.certificates.build import log_signer
from tests.lethe.log.test_policy import X1

OTHER = log_signer("other.example", b"other").verifier.vkey
REFUSED: dict[str, tuple[str, str]] = {
    "no policy": ("quorum\n", "line 1 of the policy"),
    "no quorum": ("quorum none\n", "it has no quorum"),
    "another log": (f"log {OTHER}\nwitness A {X1} http://a.example\nquorum A\n", "other logs"),
    "no URL": (f"witness A {X1}\nquorum A\n", "needs an http"),
    "a file's URL": (f"witness A {X1} file:///etc\nquorum A\n", "needs an http"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_refused(
    name: str, tmp_path: Path, settings: Settings, ledger: Ledger
) -> None:
    text, why = REFUSED[name]
    (tmp_path / "witness.policy").write_text(text)
    named = settings.model_copy(update={"witness_policy": str(tmp_path / "witness.policy")})
    with pytest.raises(SettingsError, match=why):
        load_policy(named, ledger.keys)


def test_a_missing_file_is_refused_and_none_is_none(
    tmp_path: Path, settings: Settings, ledger: Ledger
) -> None:
    assert load_policy(settings, ledger.keys) is None
    named = settings.model_copy(update={"witness_policy": str(tmp_path / "missing")})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_policy(named, ledger.keys)
