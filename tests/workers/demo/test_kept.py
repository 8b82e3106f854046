"""The file names of the demonstration's certificates: none may give access to a request."""

from pathlib import Path
from typing import cast

from lethe.client import Client
from tests.lethe.certificates.build import CERTIFICATE_ID, Office
from workers.demo.kept import certificate_file, evidence_file, keep_certificate

REQUEST_ID = "c0ffee00-0d1e-4a2b-9c3d-4e5f60718293"


class Requester:
    """Answers for one request."""

    def __init__(self) -> None:
        self.certified = Office().certify()

    def certificate(self, request_id: str) -> bytes:
        assert request_id == REQUEST_ID
        return self.certified.bundle

    def evidence(self, request_id: str) -> bytes:
        assert request_id == REQUEST_ID
        return self.certified.evidence


def test_files_are_named_after_the_certificate_and_not_after_the_request(
    tmp_path: Path,
) -> None:
    for folder in ("certificates", "evidence"):
        (tmp_path / folder).mkdir()
    requester = Requester()
    kept = keep_certificate(tmp_path, cast(Client, requester), REQUEST_ID)
    assert kept == CERTIFICATE_ID
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))
    assert written == [
        f"certificates/{CERTIFICATE_ID}.sigstore.json",
        f"evidence/{CERTIFICATE_ID}.json",
    ]
    assert certificate_file(tmp_path, kept).read_bytes() == requester.certified.bundle
    assert evidence_file(tmp_path, kept).read_bytes() == requester.certified.evidence
