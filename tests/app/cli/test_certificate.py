"""`lethe certificate` as a user meets it: files in, a table or JSON and an exit code out."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.certificates.bundle import MAX_BUNDLE
from app.certificates.statement import EvidencePart, Subject, build_statement
from app.cli.certificate import DownloadError, certificate
from app.errors import LetheError
from app.signing.keys import private_pem, public_pem
from tests.app.certificates.build import (
    BEFORE,
    CERTIFICATE_ID,
    MODEL,
    Certified,
    Office,
    contents,
    digest_of,
    issuer_key,
    log_signer,
)


@pytest.fixture(scope="module")
def certified() -> Certified:
    return Office().certify()


@pytest.fixture
def files(certified: Certified, tmp_path: Path) -> Path:
    certified.write(tmp_path)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(certificate, [str(argument) for argument in arguments])


def bundle_in(files: Path) -> Path:
    return files / f"certificates/{CERTIFICATE_ID}.sigstore.json"


def verify(files: Path, *options: object) -> Result:
    return run("verify", bundle_in(files), "--keys", files / "keys", *options)


def both(files: Path) -> list[object]:
    evidence = files / f"evidence/{CERTIFICATE_ID}.json"
    return ["--model", files / "models/after.safetensors", "--evidence", evidence]


def test_a_genuine_certificate_exits_0_with_a_numbered_table(files: Path) -> None:
    result = verify(files, *both(files))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("AUTHENTIC  ")
    assert [line.split()[:2] for line in lines[1:10]] == [
        [str(number), "pass"] for number in range(1, 10)
    ]
    assert "The certificate is authentic. It says:" in result.output
    assert "58 after" in result.output


def test_unasked_steps_are_marked_as_not_checked(files: Path) -> None:
    result = verify(files)
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.output.splitlines()[8:10]] == ["-", "-"]
    assert result.output.count("not checked") == 2


def test_json_is_the_fixed_form(files: Path) -> None:
    verdict = json.loads(verify(files, *both(files), "--json").output)
    assert verdict.keys() == {"result", "steps"}
    assert verdict["result"] == "PASS"
    assert [step["number"] for step in verdict["steps"]] == list(range(1, 10))
    assert all(step["passed"] is True for step in verdict["steps"])


def test_a_forged_certificate_exits_1_and_names_the_step(files: Path) -> None:
    path = bundle_in(files)
    path.write_bytes(path.read_bytes().replace(b'"treeSize":"7"', b'"treeSize":"8"'))
    result = verify(files)
    assert result.exit_code == 1
    assert result.output.startswith("NOT AUTHENTIC  ")
    assert "5  FAIL  checkpoint signature and origin" in result.output
    assert result.output.count("not reached") == 4
    assert "is authentic" not in result.output
    verdict = json.loads(verify(files, "--json").output)
    assert verdict["result"] == "FAIL"
    assert verdict["steps"][4]["passed"] is False


@pytest.mark.parametrize("result", ["FAIL", "INCONCLUSIVE"])
def test_an_authentic_certificate_of_a_removal_that_failed_exits_1(
    tmp_path: Path, result: Any
) -> None:
    Office().certify(result=result).write(tmp_path)
    words = "authentic, but the removal did not pass\n"
    shown, told = verify(tmp_path), verify(tmp_path, "--json")
    assert (shown.exit_code, told.exit_code) == (1, 1)
    assert shown.stderr == told.stderr == words
    assert all(step["passed"] for step in json.loads(told.stdout)["steps"])
    assert json.loads(told.stdout)["result"] == "PASS"  # of the certificate, not of the removal


def test_another_model_exits_1(files: Path) -> None:
    path = files / "models/before.safetensors"
    path.write_bytes(BEFORE)
    result = verify(files, "--model", path)
    assert result.exit_code == 1
    assert result.output.startswith("NOT AUTHENTIC with these files  ")
    assert "the model before the erasure" in result.output


def test_keys_can_be_given_one_by_one(files: Path, tmp_path: Path) -> None:
    keys = files / "keys"
    options = ["--log-key", keys / "log.vkey", "--issuer-key", keys / "issuer.pem"]
    assert run("verify", bundle_in(files), *options).exit_code == 0
    other = tmp_path / "other.vkey"
    other.write_text(log_signer(seed=b"other").verifier.vkey)
    assert verify(files, "--log-key", other).exit_code == 1


def test_the_keyid_can_be_pinned(files: Path) -> None:
    assert verify(files, "--issuer-keyid", "issuer-2026").exit_code == 0
    assert verify(files, "--issuer-keyid", "issuer-2027").exit_code == 1


def test_a_required_witness_that_did_not_sign_exits_1(files: Path) -> None:
    witness = files / "witness.vkey"
    witness.write_text(log_signer("witness.example", b"witness").verifier.vkey)
    assert verify(files, "--witness", witness).exit_code == 1
    assert verify(files, "--witness", witness, "--threshold", 0).exit_code == 0


USAGE: dict[str, list[str]] = {
    "no keys": ["CERTIFICATE"],
    "half the keys": ["CERTIFICATE", "--log-key", "keys/log.vkey"],
    "an empty key directory": ["CERTIFICATE", "--keys", "models"],
    "no such file": ["missing.json", "--keys", "keys"],
    "no file at all": ["--keys", "keys"],
    "a vkey that is none": ["CERTIFICATE", "--keys", "keys", "--log-key", "keys/issuer.pem"],
    "a model as a vkey": ["CERTIFICATE", "--keys", "keys", "--log-key", "binary"],
    "an Ed25519 issuer": ["CERTIFICATE", "--keys", "keys", "--issuer-key", "ed25519.pem"],
    "a threshold without witnesses": ["CERTIFICATE", "--keys", "keys", "--threshold", "1"],
    "a negative threshold": ["CERTIFICATE", "--keys", "keys", "--threshold", "-1"],
}


@pytest.mark.parametrize("name", USAGE)
def test_unusable_input_exits_2_with_the_remedy(
    files: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    (files / "binary").write_bytes(b"\xff\xfe\x00")
    (files / "ed25519.pem").write_text(public_pem(Ed25519PrivateKey.generate()))
    arguments = [str(bundle_in(files)) if a == "CERTIFICATE" else a for a in USAGE[name]]
    result = run("verify", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


AGAIN = "get it again from the operator, over a channel you trust"
NO_ISSUERS: dict[str, tuple[str, str]] = {
    "no key": ("a web page", f"issuer.pem is not a public key in PEM: {AGAIN}"),
    "an Ed25519 key": (
        public_pem(Ed25519PrivateKey.generate()),
        f"issuer.pem is not an ECDSA P-256 key, and issuers use no other: {AGAIN}",
    ),
    "another curve": (
        public_pem(generate_private_key(SECP384R1())),
        f"issuer.pem is not an ECDSA P-256 key, and issuers use no other: {AGAIN}",
    ),
    "a private key": (
        private_pem(issuer_key()),
        "issuer.pem holds a private key: tell the operator, since whoever saw it",
    ),
}


@pytest.mark.parametrize("name", NO_ISSUERS)
def test_a_file_that_is_no_issuers_key_is_named_with_the_remedy(files: Path, name: str) -> None:
    text, said = NO_ISSUERS[name]
    (files / "keys/issuer.pem").write_text(text)
    result = verify(files)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "key new" not in result.output


def test_a_missing_key_comes_from_the_operator(files: Path) -> None:
    (files / "keys/log.vkey").unlink()
    result = verify(files)
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "has no log.vkey: the operator gives it to you (docs/auditor-guide.md)" in told


def test_the_key_of_another_operator_is_named_and_no_forgery(files: Path) -> None:
    (files / "keys/issuer.pem").write_text(public_pem(issuer_key(5)))
    result = verify(files)
    assert result.exit_code == 1
    assert "another key file, or another operator" in result.output


def test_show_says_what_the_file_says_and_that_nothing_was_verified(files: Path) -> None:
    result = run("show", bundle_in(files))
    assert result.exit_code == 0
    assert result.output.startswith("NOT VERIFIED")
    for text in ("exact", "digits-head/7", "sample, 2 records", "gram-digest passed"):
        assert text in result.output
    assert "1 artifact, 2 feature rows, 1 key\n" in result.output


def test_show_prints_what_an_auditor_compares(tmp_path: Path) -> None:
    predicate = contents()[1]
    told = {"policy": "ab" * 32, "cost.rounds": "12", "cost.flops": "340"}
    evidence = (*predicate.evidence, EvidencePart("climb.scores", "cd" * 32, "x/y"))
    method = replace(predicate.method, parameters={**predicate.method.parameters, **told})
    payload = build_statement(
        [Subject("x", digest_of(MODEL))], replace(predicate, method=method, evidence=evidence)
    )
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    lines = run("show", path).output.splitlines()
    for line in (
        f"policy      sha256:{'ab' * 32}",
        f"evidence    evidence/{CERTIFICATE_ID}.json sha256:{predicate.evidence[0].digest}",
        f"scores      climb.scores sha256:{'cd' * 32}",
        f"code        method sha256:{digest_of(b'method code')}",
        f"            lethe-verifier 0.1.0 sha256:{digest_of(b'verifier code')}",
        "cost        flops 340, rounds 12",
    ):
        assert line in lines
    assert run("show", path, "--json").output.encode() == payload + b"\n"


def test_show_as_json_of_something_else_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(b"{}"))
    assert isinstance(run("show", path, "--json").exception, LetheError)


def test_show_tells_the_whole_climb_a_line_for_each_rung(tmp_path: Path) -> None:
    predicate = contents()[1]
    climb = "puf-special: FAIL (yeom:auc: 0.7) | hf-kcu: skipped, over the budget"
    told = {"asked": "puf-special", "climb": climb, "rung": "puf-special(guard.rise=2)"}
    method = replace(predicate.method, parameters={**predicate.method.parameters, **told})
    payload = build_statement(
        [Subject("x", digest_of(MODEL))], replace(predicate, method=method)
    )
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    lines = run("show", path).output.splitlines()
    first = lines.index("rung        puf-special(guard.rise=2)")
    assert lines[first + 1 : first + 5] == [
        "asked       puf-special",
        "climb       puf-special: FAIL (yeom:auc: 0.7)",
        "              that is: a check refuted the result of puf-special, so it was not certified",
        "            hf-kcu: skipped, over the budget",
    ]


def test_show_of_another_file_is_a_named_error(files: Path) -> None:
    result = run("show", files / "keys/issuer.pem")
    assert isinstance(result.exception, LetheError)


def test_a_file_cannot_repaint_the_terminal(tmp_path: Path) -> None:
    name = "head\x1b[2J\nPASS"
    payload = build_statement([Subject(name, digest_of(MODEL))], contents()[1])
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    output = run("show", path).output
    assert "\x1b" not in output
    assert "\nPASS" not in output


# --- get ---------------------------------------------------------------------------------


class Service(ThreadingHTTPServer):
    """Answers every GET with one prepared response and remembers what was asked."""

    answer: tuple[int, bytes] = (200, b"")
    asked: list[tuple[str, str]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Service)
        self.server.asked.append((self.path, self.headers["Accept"]))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


REQUEST_ID = "c0ffee00-0d1e-4a2b-9c3d-4e5f60718293"


def get(service: Service, *options: object) -> Result:
    url = f"http://127.0.0.1:{service.server_port}/"
    return run("get", REQUEST_ID, "--url", url, *options)


def test_get_writes_the_file_as_it_came(
    service: Service, certified: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service.answer = (200, certified.bundle)
    result = get(service)
    assert result.exit_code == 0
    name = f"{CERTIFICATE_ID}.sigstore.json"
    assert result.output == f"{name}\n"
    # The request's id opens the request: whoever is shown the certificate must not get it.
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == certified.bundle
    path, accept = service.asked[0]
    assert path == f"/v1/requests/{REQUEST_ID}/certificate"
    assert accept.startswith("application/vnd.dev.sigstore.bundle.v0.3+json")


PROBLEM = json.dumps({"title": "Not found", "detail": "no such request\x1b[2J"}).encode()
REFUSED: dict[str, tuple[int, bytes, str]] = {
    "404 with a problem": (404, PROBLEM, "answered 404: Not found: no such request\ufffd"),
    "500 without one": (500, b"oops", "answered 500"),
    "a list": (500, b"[]", "answered 500"),
    "not a certificate": (200, b"{}", "not a certificate"),
    "a bundle of something else": (200, Office().seal(b"{}"), "not a certificate"),
    "too large": (200, b" " * (MAX_BUNDLE + 1), "too large"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_answer_is_an_error_and_writes_nothing(
    service: Service, tmp_path: Path, name: str
) -> None:
    status, body, message = REFUSED[name]
    service.answer = (status, body)
    out = tmp_path / "out.json"
    result = get(service, "--out", out)
    assert isinstance(result.exception, DownloadError)
    assert message in result.exception.detail
    assert "\x1b" not in result.exception.detail
    assert not out.exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://[", "ftp://x"])
def test_a_service_that_cannot_be_reached_is_an_error(url: str) -> None:
    result = run("get", REQUEST_ID, "--url", url)
    assert isinstance(result.exception, DownloadError)
    assert "cannot be reached" in result.exception.detail


def test_the_service_may_be_named_by_the_environment(
    service: Service, certified: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETHE_URL", f"http://127.0.0.1:{service.server_port}")
    service.answer = (200, certified.bundle)
    assert run("get", CERTIFICATE_ID, "--out", tmp_path / "x.json").exit_code == 0
    assert len(service.asked) == 1


def test_an_id_that_is_none_is_refused_before_any_call(service: Service) -> None:
    url = f"http://127.0.0.1:{service.server_port}"
    assert run("get", "../keys", "--url", url).exit_code == 2
    assert service.asked == []


def test_a_place_that_cannot_be_written_exits_2(
    service: Service, certified: Certified, tmp_path: Path
) -> None:
    service.answer = (200, certified.bundle)
    result = get(service, "--out", tmp_path / "missing" / "x.json")
    assert result.exit_code == 2
    assert "cannot write" in result.output


def test_verify_imports_no_http_client_and_nothing_of_the_server(files: Path) -> None:
    script = (
        "import sys\n"
        "from app.cli.certificate import certificate\n"
        "certificate(sys.argv[1:], standalone_mode=False)\n"
        "heavy = {'httpx2', 'http_message_signatures', 'pydantic', 'sqlalchemy', 'numpy',\n"
        "         'fastapi', 'asyncio', 'ssl'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    arguments = ["verify", str(bundle_in(files)), "--keys", str(files / "keys")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
