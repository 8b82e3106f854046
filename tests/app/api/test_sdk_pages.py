"""The Python programs of the user guide and the auditor guide, run as a reader runs them."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lethe.signing.keys import private_pem
from tests.app.protocols.test_page import listening
from tests.docs.markdown import blocks
from tests.installation import Installation
from tests.small import MODEL

# What a reader replaces.
NAMES = {
    '"support-intents"': f'"{MODEL}"',
    '"record-0000041", "record-0000042"': '"r1", "r2"',
    'Path("FILE")': 'Path("mine.sigstore.json")',
}


def program(page: str, address: str) -> str:
    """Return the one program of a page that imports the client or the verifier."""
    (found,) = [one for one in blocks(page, "python") if "from lethe import " in one]
    for name, own in {**NAMES, "https://erasure.example.org": address}.items():
        found = found.replace(name, own)
    return found


def test_a_request_is_submitted_and_its_certificate_verified(
    ready: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "alice.pem").write_text(private_pem(ready.caller.key))
    (tmp_path / "trusted").symlink_to(ready.settings.keys_dir)
    monkeypatch.chdir(tmp_path)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            ready.drain()
            time.sleep(0.05)

    names: dict[str, Any] = {}
    worker = threading.Thread(target=work)
    with listening(ready) as address:
        worker.start()
        try:
            exec(compile(program("docs/user-guide.md", address), "user-guide", "exec"), names)
        finally:
            done.set()
            worker.join()
    assert names["done"].state == "certified"
    exec(compile(program("docs/auditor-guide.md", ""), "auditor-guide", "exec"), names)
    assert names["verdict"].result == "PASS"
    assert names["verdict"].statement.predicate.scope.records == 2
    file = tmp_path / "mine.sigstore.json"
    file.write_bytes(file.read_bytes().replace(b'"logIndex":"', b'"logIndex":"1', 1))
    exec(compile(program("docs/auditor-guide.md", ""), "auditor-guide", "exec"), names)
    assert names["verdict"].result == "FAIL"
