"""The bill of materials lists what the worker's image has, and its check refuses a wrong one."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.dockerfile import REPOSITORY
from tests.packaging.test_compose import services

EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def listed() -> set[str]:
    """Return the extras of `make sbom`."""
    found = re.findall(r"(?m)^SBOM_EXTRAS := (\S+)$", (REPOSITORY / "Makefile").read_text())
    return {extra for one in found for extra in one.split(",")}


def installed() -> set[str]:
    """Return the extras of the worker's image, as compose.yaml has it built."""
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    written = set(re.findall(r"'\.\[([a-z0-9,]+)\]'", dockerfile))
    assert '".[${EXTRA:-worker}]"' in dockerfile
    return {extra for one in written for extra in one.split(",")} | {
        extra
        for name in ("worker", "worker-gpu")
        for extra in re.findall(r"EXTRA: (\w+)", services()[name])
    }


def test_it_lists_what_the_image_has() -> None:
    assert listed() == installed() == {"families", "image"}
    assert listed() <= EXTRAS.keys()


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "scripts" / "validate_sbom.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_the_official_schema_does_not_allow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sbom.json"
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": []}
    path.write_text(json.dumps(bom))
    assert validated(path).returncode == 0
    path.write_text(json.dumps(bom | {"components": [{"name": "no type"}]}))
    refused = validated(path)
    assert refused.returncode == 1
    assert "is not valid CycloneDX 1.6" in refused.stderr
    assert "scripts/validate_sbom.py build/sbom.json" in recipe()[-2]


def recipe() -> list[str]:
    """Return the lines of `make sbom`."""
    makefile = (REPOSITORY / "Makefile").read_text()
    (lines,) = re.findall(r"(?m)^sbom:.*\n((?:\t.*\n)+)", makefile)
    return str(lines).splitlines()


# Of the files that pages load; all others are somebody else's. A new one is one or the other.
OURS = {
    "app/console/static/console.css",
    "app/console/static/icon.svg",
    "app/console/static/proof.mjs",
    "app/console/static/range.mjs",
    "app/intake/static/intake.css",
    "app/intake/static/intake.mjs",
}
LICENCES = {"app/console/static/htmx.LICENSE.txt"}


def of_others() -> set[str]:
    """Return the paths of the files of others."""
    found = {
        path.relative_to(REPOSITORY).as_posix()
        for room in ("app", "lethe")
        for path in (REPOSITORY / room).glob("**/static/**/*")
        if path.is_file()
    }
    assert found > OURS | LICENCES
    return found - OURS - LICENCES


@pytest.fixture
def bill(tmp_path: Path) -> Path:
    """A bill of the tool, in short."""
    path = tmp_path / "sbom.json"
    product = {"bom-ref": "root-component", "type": "application", "name": "lethe-ledger"}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": product},
        "components": [{"bom-ref": "click==8", "type": "library", "name": "click"}],
        "dependencies": [
            {"ref": "click==8"},
            {"ref": "root-component", "dependsOn": ["click==8"]},
        ],
    }
    path.write_text(json.dumps(bom))
    return path


def added(path: Path, root: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / "vendored.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_of_others_are_listed_with_their_digests(bill: Path) -> None:
    done = added(bill)
    assert done.returncode == 0, done.stderr
    assert validated(bill).returncode == 0
    bom: dict[str, Any] = json.loads(bill.read_text())
    first, *listed = bom["components"]
    assert first["name"] == "click"
    places = [one["evidence"]["occurrences"][0]["location"] for one in listed]
    assert set(places) == of_others()
    for one, place in zip(listed, places, strict=True):
        data = (REPOSITORY / place).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        assert one["hashes"] == [{"alg": "SHA-256", "content": digest}]
        assert f'version="{one["version"]}"' in data.decode()
        assert one["licenses"][0]["license"]["id"]
    refs = [one["bom-ref"] for one in listed]
    assert bom["dependencies"] == [
        {"ref": "click==8"},
        {"ref": "root-component", "dependsOn": ["click==8", *refs]},
        *({"ref": ref} for ref in refs),
    ]
    (adds,) = (place for place, line in enumerate(recipe()) if "scripts/vendored.py" in line)
    assert recipe()[adds].endswith("scripts/vendored.py build/sbom.json")
    assert "--output-file build/sbom.json" in recipe()[adds - 1]


def test_a_file_of_others_that_was_replaced_is_not_listed_as_what_it_was(
    bill: Path, tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "vendored.py", tmp_path / "scripts")
    for name in of_others():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((REPOSITORY / name).read_bytes() + b"\n")
    refused = added(bill, tmp_path)
    assert refused.returncode == 1
    assert "write its version and digest into scripts/vendored.py" in refused.stderr
    assert "htmx" not in bill.read_text()
