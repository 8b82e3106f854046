"""Fail unless a bill of materials follows the official schema of CycloneDX 1.6.

Run by `make sbom` with the tool's Python, which has the schema.
"""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

path = Path(sys.argv[1])
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text())
if wrong is not None:
    sys.exit(f"{path} is not valid CycloneDX 1.6: {wrong}")
