"""The demonstration's service sees nothing of the settings around it."""

from pathlib import Path

import pytest

from workers.demo.service import LocalService

INHERITED = ["LETHE_MASTER_KEY", "LETHE_DATABASE_URL", "LETHE_FAULT", "LETHE_SOMETHING_NEW"]


def test_no_inherited_setting_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in INHERITED:
        monkeypatch.setenv(name, "inherited")
    monkeypatch.setenv("LETHE_ORIGIN", "inherited")
    monkeypatch.setenv("PATH_TO_KEEP", "kept")
    environment = LocalService(tmp_path, tmp_path / "log").environment
    assert {name for name in environment if name.startswith("LETHE_")} == {
        "LETHE_DATA_DIR",
        "LETHE_ORIGIN",
        "LETHE_ENVIRONMENT",
    }
    assert "inherited" not in environment.values()
    assert environment["PATH_TO_KEEP"] == "kept"
