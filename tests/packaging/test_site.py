"""The documentation builds as a site that loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    sources = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md")]
    built = {page.stem for page in pages}
    assert {source.stem for source in sources} <= built
    loaded = re.compile(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="?(?:https?:)?//')
    for page in pages:
        assert not loaded.search(page.read_text("utf-8")), page.name


def test_the_references_of_both_interfaces_are_in_it(site: Path) -> None:
    python = (site / "api.html").read_text("utf-8")
    assert "Request the erasure of exactly one of records" in python
    assert '"openapi.json"' in (site / "http-api.html").read_text("utf-8")
    assert '"submitRequest"' in (site / "openapi.json").read_text("utf-8")
    assert (site / "redoc.standalone.js").stat().st_size > 100_000


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    broken = tmp_path / "mkdocs.yml"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md)")
    configuration = (ROOT / "mkdocs.yml").read_text("utf-8")
    kept = re.match(r"(?s).*?\nvalidation: [^\n]*\n", configuration)
    assert kept is not None
    broken.write_text(kept[0] + "theme: {name: material, font: false}\n")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(broken)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "gone.md" in done.stdout + done.stderr
