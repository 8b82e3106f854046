"""scripts/submit-request.sh: openssl and curl against a service that verifies."""

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from lethe.signing.keys import private_pem, public_of
from tests.lethe.client.service import FakeService, serve
from tests.lethe.signing.signer import ED25519, P256, Key

SCRIPT = Path(__file__).parents[3] / "scripts" / "submit-request.sh"
SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]


@pytest.fixture
def service() -> Iterator[FakeService]:
    service = FakeService()
    service.keys = {"ed": public_of(ED25519), "ec": public_of(P256)}
    with serve(service):
        yield service


def write_key(directory: Path, key: Key) -> str:
    file = directory / "key.pem"
    file.write_text(private_pem(key))
    return str(file)


def run(
    *arguments: str, shell: str = "sh", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [shell, str(SCRIPT), *arguments],
        capture_output=True,
        check=False,
        timeout=60,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("keyid", "key"), [("ed", ED25519), ("ec", P256)])
def test_a_request_is_signed_and_accepted(
    shell: str, keyid: str, key: Key, service: FakeService, tmp_path: Path
) -> None:
    file = write_key(tmp_path, key)
    done = run(service.base, keyid, file, "digits", "r1", shell=shell)
    assert done.returncode == 0, done.stderr
    (stored,) = service.requests.values()
    assert json.loads(done.stdout)["id"] == stored.id
    assert service.signed[0].keyid == keyid


@pytest.mark.parametrize(
    "records",
    [["a", "b", "c"], ['quote "', "back\\slash", "\\n", "%s", "$(id)", "&"], ["é", "日本"]],
    ids=["several", "special", "unicode"],
)
def test_record_ids_arrive_as_they_are(
    records: list[str], service: FakeService, tmp_path: Path
) -> None:
    done = run(f"{service.base}/", "ed", write_key(tmp_path, ED25519), "digits", *records)
    assert done.returncode == 0, done.stderr
    (stored,) = service.requests.values()
    assert stored.document == {
        "model": "digits",
        "regulation": "gdpr",
        "scope": {"level": "sample", "records": records},
    }


def test_a_repeated_key_asks_once(service: FakeService, tmp_path: Path) -> None:
    file = write_key(tmp_path, ED25519)
    answers = {
        run(service.base, "ed", file, "digits", "r1", IDEMPOTENCY_KEY="order-1").stdout
        for _ in range(2)
    }
    assert len(answers) == 1
    run(service.base, "ed", file, "digits", "r1")
    assert len(service.requests) == 2
    assert len(service.signed) == 3


def test_an_ecdsa_number_with_leading_zeros_is_padded(
    service: FakeService, tmp_path: Path
) -> None:
    # One signature in 128 has a short r or s. This openssl signs until it has one.
    openssl = tmp_path / "openssl"
    openssl.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import os, sys
        real = {shutil.which("openssl")!r}
        if sys.argv[1:4] != ["dgst", "-sha256", "-sign"]:
            os.execv(real, sys.argv)
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        key = load_pem_private_key(open(sys.argv[4], "rb").read(), None)
        message = open(sys.argv[7], "rb").read()
        while True:
            der = key.sign(message, ECDSA(SHA256()))
            if min(decode_dss_signature(der)) < 2**248:
                open(sys.argv[6], "wb").write(der)
                break
        """)
    )
    openssl.chmod(openssl.stat().st_mode | stat.S_IXUSR)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run(service.base, "ec", write_key(tmp_path, P256), "digits", "r1", PATH=path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(service.signed) == 1


def test_a_refusal_is_printed_and_fails(service: FakeService, tmp_path: Path) -> None:
    done = run(service.base, "nobody", write_key(tmp_path, ED25519), "digits", "r1")
    assert done.returncode == 22
    assert json.loads(done.stdout)["type"] == "urn:lethe:problem:key-unknown"
    done = run(service.base, "ec", write_key(tmp_path, ED25519), "digits", "r1")
    assert json.loads(done.stdout)["type"] == "urn:lethe:problem:signature-invalid"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{url}", "ed", "{key}", "digits"], 64, "usage"),
        (["ledger.test", "ed", "{key}", "digits", "r1"], 64, "http://"),
        (["{url}/ x", "ed", "{key}", "digits", "r1"], 64, "URL"),
        (['{url}/"', "ed", "{key}", "digits", "r1"], 64, "URL"),
        (["{url}", 'e"d', "{key}", "digits", "r1"], 64, "KEYID"),
        (["{url}", "ed", "{key}", "digits", "r\n1"], 65, "control character"),
        (["{url}", "ed", "{key}", "dig\tits", "r1"], 65, "control character"),
        (["{url}", "ed", "{key}.absent", "digits", "r1"], 66, "cannot be read"),
        (["{url}", "ed", "{public}", "digits", "r1"], 65, "not an unencrypted private key"),
        (["{url}", "ed", "{sealed}", "digits", "r1"], 65, "not an unencrypted private key"),
        (["{url}", "ed", "{foreign}", "digits", "r1"], 65, "neither an Ed25519"),
    ],
    ids=[
        "no record",
        "no scheme",
        "space in URL",
        "quote in URL",
        "quote in keyid",
        "newline in record",
        "tab in model",
        "no key file",
        "public key",
        "encrypted key",
        "key of another curve",
    ],
)
def test_what_cannot_be_signed_is_not_sent(
    arguments: list[str], code: int, message: str, service: FakeService, tmp_path: Path
) -> None:
    sealed, foreign, public = (tmp_path / name for name in ("sealed", "foreign", "public"))
    sealed.write_bytes(
        ED25519.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
        )
    )
    foreign.write_bytes(
        generate_private_key(SECP384R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    public.write_text("-----BEGIN PUBLIC KEY-----\n")
    values = {
        "url": service.base,
        "key": write_key(tmp_path, ED25519),
        "public": public,
        "sealed": sealed,
        "foreign": foreign,
    }
    done = run(*(text.format(**values) for text in arguments))
    assert done.returncode == code, done.stderr
    assert message in done.stderr.decode()
    assert service.seen == []


def test_nothing_is_left_behind(service: FakeService, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    file = write_key(tmp_path, P256)
    assert run(service.base, "ec", file, "digits", "r1", TMPDIR=str(scratch)).returncode == 0
    assert list(scratch.iterdir()) == []


def test_a_default_port_is_left_out_as_curl_leaves_it_out(tmp_path: Path) -> None:
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nfor last; do :; done\nprintf "%s" "$last"\n')
    curl.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    file = write_key(tmp_path, ED25519)
    for given, sent in (
        ("http://h:80", "http://h/v1/requests"),
        ("https://h:443/under/", "https://h/under/v1/requests"),
        ("https://h:80", "https://h:80/v1/requests"),
        ("http://h:8080", "http://h:8080/v1/requests"),
    ):
        assert run(given, "ed", file, "digits", "r1", PATH=path).stdout.decode() == sent


@pytest.mark.parametrize("level", ["client", "subject"])
def test_a_client_or_a_subject_is_a_scope(
    level: str, service: FakeService, tmp_path: Path
) -> None:
    file = write_key(tmp_path, ED25519)
    done = run(service.base, "ed", file, "digits", f"--{level}", 'ward "7"', REGULATION="ccpa")
    assert done.returncode == 0, done.stderr
    (stored,) = service.requests.values()
    assert stored.document == {
        "model": "digits",
        "regulation": "ccpa",
        "scope": {"level": level, level: 'ward "7"'},
    }


def test_a_method_can_be_named_and_records_may_look_like_options(
    service: FakeService, tmp_path: Path
) -> None:
    file = write_key(tmp_path, ED25519)
    done = run(service.base, "ed", file, "digits", "--", "--client", "r2", METHOD="retrain")
    assert done.returncode == 0, done.stderr
    (stored,) = service.requests.values()
    assert stored.document["method"] == "retrain"
    assert stored.document["scope"] == {"level": "sample", "records": ["--client", "r2"]}


@pytest.mark.parametrize(
    "scope",
    [["--client"], ["--client", "a", "b"], ["--subject", "a", "b"], ["--other", "a"], ["--"]],
    ids=" ".join,
)
def test_a_scope_that_is_none_is_not_sent(
    scope: list[str], service: FakeService, tmp_path: Path
) -> None:
    done = run(service.base, "ed", write_key(tmp_path, ED25519), "digits", *scope)
    assert (done.returncode, service.seen) == (64, [])
    assert b"usage: " in done.stderr
