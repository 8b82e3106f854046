"""The last lines name commands that can be typed as they stand."""

import sys
from pathlib import Path

import pytest

from workers.demo.kept import say_where


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demonstration's directory, from a virtual environment beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    (tmp_path / "demo-out" / "certificates").mkdir(parents=True)
    (tmp_path / "demo-out" / "certificates" / "a.sigstore.json").touch()
    return Path("demo-out")


def test_the_command_is_named_by_its_path(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = "certificate show demo-out/certificates/a.sigstore.json"
    say_where(out, "http://127.0.0.1:1", None)
    said = capsys.readouterr().out
    assert f"Look at one:  lethe {certificate}\n" in said
    assert "Still serving" not in said
    command = Path(".venv/bin/lethe")
    command.parent.mkdir(parents=True)
    command.touch()
    say_where(out, "http://127.0.0.1:1", 4711)
    said = capsys.readouterr().out
    assert f"Look at one:  .venv/bin/lethe {certificate}\n" in said
    assert "Still serving http://127.0.0.1:1 (process 4711);\nstop it with: kill 4711\n" in said
    for folder in ("certificates", "evidence", "models", "keys", "log"):
        assert f"demo-out/{folder} " in said
