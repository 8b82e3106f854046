"""`lethe demo`: what it leaves behind is what an auditor needs, and any flipped bit shows."""

import fcntl
import json
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from lethe.certificates.verify import verify_certificate
from lethe.client import Client
from lethe.log.fetch import fetch_from
from lethe.log.follow import verify_log
from lethe.log.note import parse_vkey
from lethe.signing.keys import load_private_key, load_public_key
from workers.arrays import Rows
from workers.artifacts import decode_head, encode_head
from workers.data.digits import load_digits
from workers.data.extractors.random_relu import RandomRelu
from workers.demo.directory import make_directory
from workers.demo.measure import compare
from workers.methods.ridge.ridge_exact import METHOD
from workers.registration.ridge import prepare

LETHE = [sys.executable, "-m", "lethe.cli.main"]
STRIDE = 7  # bytes; every certificate gets another phase


def run_demo(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LETHE_")}
    command = [*LETHE, "demo", "--out", str(out), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=280)
        except BaseException:
            process.terminate()  # killed, it would leave its service
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished demonstration on the digits, one for all test workers."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of this run, and common to its workers
    path, done = base / "demo-on-digits", base / "demo-on-digits.done"
    with (base / "demo-on-digits.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when closed, also by a crash
        if not done.exists():
            ran = run_demo(path)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            done.touch()
    return path


def keys(out: Path) -> dict[str, Any]:
    issuer = load_public_key((out / "keys" / "issuer.pem").read_bytes())
    assert isinstance(issuer, EllipticCurvePublicKey)
    return {
        "log": parse_vkey((out / "keys" / "log.vkey").read_text().strip()),
        "log_ml_dsa": parse_vkey((out / "keys" / "log-mldsa.vkey").read_text().strip()),
        "issuer": issuer,
    }


def test_it_leaves_twenty_certificates_that_verify(out: Path) -> None:
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 20
    levels = []
    for path in certificates:
        evidence = (out / "evidence" / f"{path.name.split('.')[0]}.json").read_bytes()
        verdict = verify_certificate(path.read_bytes(), evidence=evidence, **keys(out))
        assert verdict.result == "PASS", verdict.steps
        assert verdict.statement is not None
        assert verdict.statement.predicate.guarantee.class_ == "exact"
        levels.append(verdict.statement.predicate.scope.level)
    assert levels.count("client") == 1


def test_a_flipped_bit_in_any_certificate_is_noticed(out: Path) -> None:
    # Every certificate; every byte of one is flipped in tests/lethe/certificates.
    rng = random.Random(20261121)
    verifiers = keys(out)
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 20
    for path in certificates:
        data = path.read_bytes()
        for position in range(rng.randrange(STRIDE), len(data), STRIDE):
            flipped = bytearray(data)
            flipped[position] ^= 1 << rng.randrange(8)
            verdict = verify_certificate(bytes(flipped), **verifiers)
            assert verdict.result == "FAIL", (path.name, position)


def test_the_mirror_is_a_log_that_verifies(out: Path) -> None:
    report = verify_log(fetch_from(out / "log"), keys(out)["log"])
    assert report.entries > 100


def test_retraining_elsewhere_gives_the_same_file_and_one_record_more_does_not(
    out: Path, tmp_path: Path
) -> None:
    after = (out / "models" / "after.safetensors").read_bytes()
    _, config = decode_head(after)
    federation = load_digits(clients=100)
    prepared = prepare(federation, RandomRelu(64, 256, 0, 1 / 16), ref="again")
    gone: set[str] = set()
    for path in (out / "evidence").glob("*.json"):
        removal = json.loads(path.read_bytes())["removal"]
        gone |= {record["record"] for record in removal["records"]}
    keep = np.array([record not in gone for record in prepared.records])
    train = ~federation.is_test
    features = RandomRelu(64, 256, 0, 1 / 16).extract(federation.features)[train]
    labels = federation.labels[train]
    rows = tmp_path / "rows.npz"
    head = np.frombuffer(after, dtype=np.uint8)
    np.savez(rows, allow_pickle=True, features=features[keep], labels=labels[keep], head=head)
    # Another process, one thread, blocks of 97 rows.
    done = subprocess.run(
        [sys.executable, "-m", "workers.demo.retrain", str(rows)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    digest, distance = done.stdout.split()
    assert digest == sha256(after).hexdigest()
    # The head is the solution rounded to float32, so it is not the solution itself.
    assert 0 < float(distance) < 2.0**-24 * np.linalg.norm(decode_head(after)[0])
    keep[np.flatnonzero(~keep)[0]] = True  # one record left in
    codes, _ = config.quantiser.quantise(features[keep])
    left_in = METHOD.refit(config, [Rows(codes, labels[keep])]).state
    assert sha256(encode_head(left_in.head, config)).hexdigest() != sha256(after).hexdigest()


def test_retraining_with_a_record_left_in_is_told_from_the_unlearned_head(out: Path) -> None:
    after = (out / "models" / "after.safetensors").read_bytes()
    certificate = next((out / "certificates").iterdir()).read_bytes()
    prepared = prepare(load_digits(clients=100), RandomRelu(64, 256, 0, 1 / 16), ref="again")
    assert not compare(after, certificate, prepared, set(), set()).agrees


def test_it_refuses_a_directory_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "service.json").write_text("{}")
    (tmp_path / "precious").write_text("data")
    done = run_demo(tmp_path)
    assert done.returncode == 2
    assert "choose another" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"service.json", "precious"}


def test_an_unusable_file_is_named_before_anything_is_deleted(tmp_path: Path) -> None:
    path, out = tmp_path / "bad.npz", tmp_path / "out"
    make_directory(out, None)
    (out / "certificates" / "kept").write_text("kept")
    np.savez(path, allow_pickle=True, features=np.ones((3, 2)))
    done = run_demo(out, "--data", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: labels: missing")
    assert "Traceback" not in done.stderr
    assert (out / "certificates" / "kept").read_text() == "kept"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small federation of nine clients."""
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    labels = rng.integers(3, size=300)
    features = rng.normal(size=(300, 5)) + labels[:, None]
    arrays: dict[str, Any] = {"features": features.astype(np.float16), "labels": labels}
    np.savez(path, allow_pickle=True, clients=rng.integers(9, size=300), **arrays)
    return path


@pytest.fixture
def serving(file: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A demonstration on a file, left serving."""
    out = tmp_path / "out"
    done = run_demo(out, "--data", str(file), "--keep-serving")
    assert done.returncode == 0, done.stdout + done.stderr
    described = json.loads((out / "service.json").read_text())
    yield {**described, "out": out}
    os.kill(described["pid"], 15)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_demonstration_takes_any_file_and_keeps_serving(serving: dict[str, Any]) -> None:
    private = sorted((serving["out"] / "keys").glob("requester-*.pem"))
    assert len(private) == 2
    assert {mode(path) for path in [*private, serving["out"] / "service.json"]} == {0o600}
    requester = serving["out"] / "keys" / "requester-ed25519.pem"
    key = load_private_key(requester.read_bytes())
    with Client(serving["base_url"], "requester-ed25519", key) as client:
        record = serving["erasable_records"][0]
        receipt = client.submit_erasure(serving["model"], records=[record])
        assert client.wait(receipt.id, timeout=30).state == "certified"


OTHERS = {
    "ridge-woodbury": ("ridge-woodbury", "numerically-exact", "Distance to retraining"),
    "acu": ("acu", "numerically-exact", "Distance to retraining"),
    "ridge-sketched": ("ridge-sketched", "certified-approximate", "Distance to retraining"),
    "ridge-masked": ("ridge-exact", "exact", "10 data holders"),
}


# test_ridge_methods.py runs these on real processes; `make demos-check` runs their demonstrations.
LATER = ("ridge-woodbury", "acu")


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.slow) if name in LATER else name for name in OTHERS],
)
def test_the_other_methods_are_demonstrated_too(
    file: Path, method: str, tmp_path: Path
) -> None:
    id_, guarantee, said = OTHERS[method]
    out = tmp_path / "out"
    done = run_demo(out, "--data", str(file), "--method", method)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 20
    for path in certificates:
        verdict = verify_certificate(path.read_bytes(), **keys(out))
        assert verdict.result == "PASS", verdict.steps
        assert verdict.statement is not None
        predicate = verdict.statement.predicate
        assert predicate.method.id == id_
        assert predicate.guarantee.class_ == guarantee
        masked = method == "ridge-masked"
        assert ("rows were not seen" in predicate.guarantee.statement) == masked
