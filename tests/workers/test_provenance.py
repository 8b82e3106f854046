"""The code digest covers its files: changing, adding or renaming any of them changes it."""

import shutil
from pathlib import Path

import pytest

from workers import provenance


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that a test may change."""
    copy = tmp_path / "workers"
    shutil.copytree(provenance.PACKAGE, copy)
    monkeypatch.setattr(provenance, "PACKAGE", copy)
    return copy


def digest() -> str:
    provenance.code_digest.cache_clear()
    return provenance.code_digest("methods/ridge", "judge/ridge")


def test_a_change_anywhere_it_covers_shows(tree: Path) -> None:
    seen = {digest()}
    (tree / "methods/ridge" / "base.py").write_text("#")
    seen.add(digest())
    (tree / "judge/ridge" / "new.py").write_text("")
    seen.add(digest())
    (tree / "judge/ridge" / "new.py").rename(tree / "judge/ridge" / "newer.py")
    seen.add(digest())
    (tree / "arrays.py").write_text("#")
    seen.add(digest())
    assert len(seen) == 5
    (tree / "judge/policy" / "document.py").write_text("#")  # not among the requested packages
    assert digest() in seen
