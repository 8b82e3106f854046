"""The page as one file: nothing to load, a policy that fits, and the script of the modules."""

import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from lethe.web.page import MODULES, STYLE, alone, asset, served
from tests.lethe.certificates.build import Office
from tests.lethe.cli.certificates import run
from tests.lethe.web.second import NODE, needs_node
from tests.lethe.web.test_main import MAIN

WEB = MAIN.parent


def test_the_one_file_loads_nothing_and_allows_its_own_script_only() -> None:
    page = alone()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy[1]
    assert not re.search(r'(src|href)="', page)
    assert not re.search(r"^(import|export)\b", page, re.MULTILINE)


def test_each_module_is_in_the_page_but_the_command() -> None:
    on_disk = {path.name for path in WEB.glob("*.mjs")}
    assert on_disk == {*MODULES} - {"texts.mjs"} | {"main.mjs"}
    for number, name in enumerate(MODULES):
        wanted = set(re.findall(r'from "\./([\w.]+)"', asset(name)))
        assert wanted <= set(MODULES[:number])


@needs_node
def test_the_one_script_is_one_program(tmp_path: Path) -> None:
    # Two modules with a name in common would be a syntax error here.
    (script,) = re.findall(r"<script\b[^>]*>(.*?)</script>", alone(), re.DOTALL)
    path = tmp_path / "script.mjs"
    path.write_text(script, encoding="utf-8")
    assert NODE is not None
    done = subprocess.run([NODE, "--check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_text_of_the_page_is_one_of_the_texts() -> None:
    page = served("key", "pem", "/verify")
    named = set(re.findall(r'data-text="(\w+)"', page))
    assert all(f'"{name}": "' in asset("texts.mjs") for name in named)
    script = asset("page.mjs")
    for name in re.findall(r'say\("(\w+)"\)', script):
        assert f'"{name}": "' in asset("texts.mjs")


def test_keys_are_text_and_never_markup() -> None:
    page = served("<script>", "</textarea>", "/verify")
    assert "&lt;script&gt;" in page
    assert page.count("</textarea>") == page.count("<textarea") == 4


def test_no_other_file_is_an_asset() -> None:
    for name in ("../pyproject.toml", "main.mjs", "page.html", "page.py", ""):
        with pytest.raises(KeyError):
            asset(name)
    assert asset(STYLE)


def test_the_command_writes_the_page_with_its_keys(tmp_path: Path) -> None:
    files = tmp_path
    Office().certify().write(files)
    out = tmp_path / "verify.html"
    assert run("page", "--keys", files / "keys", "--out", out).exit_code == 0
    assert (files / "keys/log.vkey").read_text().strip() in out.read_text(encoding="utf-8")
    assert run("page", "--keys", tmp_path / "certificates", "--out", out).exit_code == 2
    assert run("page", "--out", tmp_path).exit_code == 2
