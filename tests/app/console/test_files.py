"""The wheel has what the pages need: templates, styles, scripts and texts."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
CONSOLE = ROOT / "app" / "console"


def test_each_file_of_the_console_is_packaged() -> None:
    files = [
        one.relative_to(ROOT / "app").as_posix()
        for one in CONSOLE.rglob("*")
        if one.is_file() and one.suffix not in (".py", ".pyc")
    ]
    patterns = PATTERNS["package-data"]["app"]
    assert len(files) > 20
    for name in files:
        assert any(fnmatch(name, pattern) for pattern in patterns), name


def test_htmx_comes_with_its_licence() -> None:
    assert (CONSOLE / "static" / "htmx.LICENSE.txt").read_text().startswith("Zero-Clause BSD")
