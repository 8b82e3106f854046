"""CycloneDX declarations: valid by the official schema, and of verified certificates alone."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lethe.cli.certificate import certificate
from tests.lethe.certificates.build import CERTIFICATE_ID, Certified, Office


@pytest.fixture(scope="module")
def certified() -> Certified:
    return Office().certify()


def run(directory: Path, file: Path, *more: str) -> Result:
    arguments = ["cyclonedx", str(file), "--keys", str(directory / "keys"), *more]
    return CliRunner().invoke(certificate, arguments)


def written(certified: Certified, directory: Path) -> dict[str, Any]:
    out = directory / "declaration.json"
    done = run(directory, certified.write(directory), "--out", str(out))
    assert (done.exit_code, done.output) == (0, f"{out}\n"), done.exception
    text = out.read_text()
    assert wrong_with(text) is None
    found: dict[str, Any] = json.loads(text)
    return found


def wrong_with(text: str) -> object:
    """Return what the official schema has against a document, None for nothing."""
    # Imported here: tests/schemas.py says why.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)


def refs(found: Any) -> list[str]:
    """Return every bom-ref of a document."""
    if isinstance(found, list):
        return [ref for one in found for ref in refs(one)]
    if not isinstance(found, dict):
        return []
    own = [found["bom-ref"]] if "bom-ref" in found else []
    return own + [ref for one in found.values() for ref in refs(one)]


def test_it_is_valid_and_names_the_certificate(certified: Certified, tmp_path: Path) -> None:
    found = written(certified, tmp_path)
    said = found["declarations"]
    (claim,) = said["claims"]
    (reference,) = claim["externalReferences"]
    digest = sha256(certified.bundle).hexdigest()
    assert reference["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert reference["url"] == f"{CERTIFICATE_ID}.sigstore.json"
    (component,) = said["targets"]["components"]
    assert component["hashes"][0]["content"] == sha256(certified.model).hexdigest()
    (mapped,) = said["attestations"][0]["map"]
    assert mapped["conformance"]["score"] == 1
    assert mapped["claims"] == [claim["bom-ref"]]
    known = refs(found)
    assert len(known) == len(set(known))
    links = [mapped["requirement"], *mapped["claims"], claim["target"], *claim["evidence"]]
    assert set(links) <= set(known)
    assert written(certified, tmp_path) == found


def test_what_did_not_pass_is_a_counter_claim(tmp_path: Path) -> None:
    failed = Office().certify(result="INCONCLUSIVE")
    (mapped,) = written(failed, tmp_path)["declarations"]["attestations"][0]["map"]
    assert mapped["conformance"]["score"] == 0
    assert "claims" not in mapped
    assert mapped["counterClaims"] == ["claim-1"]


def test_nothing_is_declared_of_what_does_not_verify(
    certified: Certified, tmp_path: Path
) -> None:
    file = certified.write(tmp_path)
    file.write_bytes(certified.bundle.replace(b'"7"', b'"8"'))
    out = tmp_path / "declaration.json"
    refused = run(tmp_path, file, "--out", str(out))
    assert refused.exit_code != 0
    assert "does not verify" in str(refused.exception)
    assert not out.exists()


def test_the_schema_refuses_another_document() -> None:
    assert wrong_with('{"x": 1}') is not None
