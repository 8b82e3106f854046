"""Finds test vectors: our own files, and others' where they are at hand."""

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
OWN = ROOT / "tests" / "vectors" / "log"


def cases(room: str) -> list[Any]:
    """Return each of our cases in `room` with its file's name as `name`; never none."""
    return read_cases(OWN / room)


def read_cases(directory: Path) -> list[Any]:
    """Return each of the cases in a directory, never none."""
    found = [{"name": path.stem, **_read(path)} for path in sorted(directory.glob("*.json"))]
    assert found, directory
    return found


def case_name(case: Any) -> str:
    return str(case["name"])


def foreign() -> Path | None:
    """Return the directory of third-party vectors, if there is one."""
    given = os.environ.get("LETHE_VECTORS")
    directory = Path(given) if given else ROOT.parent / "shared" / "vectors"
    return directory if directory.is_dir() else None


def foreign_cases(pattern: str) -> list[Any]:
    """Return each third-party case that matches, with its path as `name`."""
    directory = foreign()
    if directory is None:
        return []
    return [
        {"name": str(path.relative_to(directory)), **_read(path)}
        for path in sorted(directory.glob(pattern))
    ]


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value
