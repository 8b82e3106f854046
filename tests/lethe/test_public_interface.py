"""`from lethe import …`: what others build on, in a base install beside a directory `app`."""

import subprocess
import sys
from pathlib import Path

import pytest

import lethe
from lethe.certificates.keys import PublicKeyError
from tests.lethe.certificates.build import Office


def test_the_public_names_are_there() -> None:
    assert set(lethe.__all__) == {"AsyncClient", "Client", "Verdict", "verify"}
    for name in lethe.__all__:
        assert getattr(lethe, name).__doc__
    assert lethe.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no attribute 'forget'"):
        lethe.forget  # noqa: B018


def test_a_certificate_is_verified_from_files_and_from_bytes(tmp_path: Path) -> None:
    certified = Office().certify()
    file = certified.write(tmp_path)
    verdict = lethe.verify(file, keys=tmp_path / "keys")
    assert verdict.result == "PASS"
    assert verdict.steps[7].detail.startswith("not checked")
    assert lethe.verify(file.read_bytes(), keys=tmp_path / "keys") == verdict
    evidence = next((tmp_path / "evidence").iterdir())
    model = certified.model
    with_files = lethe.verify(file, keys=tmp_path / "keys", model=model, evidence=evidence)
    assert with_files.result == "PASS"
    assert not any(step.detail.startswith("not checked") for step in with_files.steps)
    flipped = file.read_bytes().replace(b"PASS", b"FAIL")
    assert lethe.verify(flipped[:-1], keys=tmp_path / "keys").result == "FAIL"
    (tmp_path / "keys/issuer.pem").write_text("a web page")
    with pytest.raises(PublicKeyError, match="not a public key"):
        lethe.verify(file, keys=tmp_path / "keys")


def test_it_is_imported_beside_a_directory_called_app(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__init__.py").write_text("raise RuntimeError('somebody else's')")
    program = "from lethe import AsyncClient, Client, verify; print(Client.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Client\n"
