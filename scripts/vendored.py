"""Add to a bill of materials the files of others that the wheel contains.

Run by `make sbom`: its tool lists installed packages, and not what is inside one of them.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# By path, as its authors published it. The digest belongs to the version: whoever replaces a
# file renews both.
VENDORED: dict[str, dict[str, str]] = {
    "app/console/static/htmx.min.js": {
        "name": "htmx.org",
        "version": "4.0.1",
        "purl": "pkg:npm/htmx.org@4.0.1",
        "licence": "0BSD",
        "sha256": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    }
}


def component(path: str) -> dict[str, Any]:
    """Return the component of a file. Raises SystemExit if it is not the one of its version."""
    said = VENDORED[path]
    if hashlib.sha256((ROOT / path).read_bytes()).hexdigest() != said["sha256"]:
        sys.exit(
            f"{path} is not that of {said['name']} {said['version']}: write its version and "
            "digest into scripts/vendored.py"
        )
    return {
        "bom-ref": said["purl"],
        "type": "library",
        "name": said["name"],
        "version": said["version"],
        "purl": said["purl"],
        "licenses": [{"license": {"id": said["licence"]}}],
        "hashes": [{"alg": "SHA-256", "content": said["sha256"]}],
        "evidence": {"occurrences": [{"location": path}]},
    }


def add(bom: dict[str, Any]) -> None:
    """Add each file as a component that the product itself depends on."""
    found = [component(path) for path in VENDORED]
    bom["components"] += found
    product = bom["metadata"]["component"]["bom-ref"]
    (own,) = (one for one in bom["dependencies"] if one["ref"] == product)
    own["dependsOn"] = [*own.get("dependsOn", []), *(one["bom-ref"] for one in found)]
    bom["dependencies"] += [{"ref": one["bom-ref"]} for one in found]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    listed = json.loads(target.read_text())
    add(listed)
    target.write_text(json.dumps(listed, indent=2) + "\n")
