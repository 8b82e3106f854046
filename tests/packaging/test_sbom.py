"""The bill of materials lists what the worker's image has, and its check refuses a wrong one."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

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
    (recipe,) = re.findall(
        r"(?m)^sbom:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text()
    )
    assert "scripts/validate_sbom.py build/sbom.json" in recipe
