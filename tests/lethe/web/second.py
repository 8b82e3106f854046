"""The verifier in JavaScript as functions, and beside the first one: both must agree.

Tests that use it are skipped where there is no Node.js.
"""

import atexit
import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lethe.certificates.trust_root import parse_trust_root
from lethe.certificates.verify import Verdict, verify_certificate
from lethe.errors import LetheError
from lethe.log.policy import Policy, parse_policy
from lethe.signing.keys import public_pem

HARNESS = Path(__file__).parent / "harness.mjs"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None, reason="the verifier in JavaScript needs `node` (18 or newer) on PATH"
)


class RefusedError(Exception):
    """The second verifier refused, and said why."""


def ask(operation: str, **given: Any) -> Any:
    """Return what an operation of harness.mjs gives.

    Raises:
        RefusedError: It refused.
        AssertionError: It crashed, which no input may make it do.
    """
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"operation": operation, **given}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert "crash" not in answer, answer["crash"]
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    return answer["value"]


def verify_both(bundle: bytes, **options: Any) -> Verdict:
    """Return the first verifier's verdict, after the second gave the same in every word."""
    trust_root: bytes | None = options.pop("trust_root", None)
    if trust_root is not None:
        root = parse_trust_root(trust_root)
        options |= {"log": root.log, "issuer": root.issuers}
    first = verify_certificate(bundle, **options)
    model = options.get("model")
    second = ask(
        "verify",
        bundle=base64(bundle),
        log=None if trust_root is not None else options["log"].vkey,
        issuer=None if trust_root is not None else public_pem(options["issuer"]),
        trustRoot=base64(trust_root),
        issuerKeyid=options.get("issuer_keyid"),
        model=base64(model.read_bytes() if isinstance(model, Path) else model),
        evidence=base64(options.get("evidence")),
        witnesses=[key.vkey for key in options.get("witnesses", ())],
        threshold=options.get("threshold", 0),
        mlDsa=None if (second := options.get("log_ml_dsa")) is None else second.vkey,
        policy=base64(_file_of(options.get("policy"))),
    )
    assert {name: second[name] for name in ("result", "outcome", "steps")} == first.to_json()
    assert (second["statement"] is None) == (first.statement is None)
    return first


def _file_of(policy: Policy | None) -> bytes | None:
    """Return a file that says what a policy says."""
    if policy is None:
        return None
    lines = [
        *(f"log {log.key.vkey}" for log in policy.logs),
        *(f"witness {one.name} {one.key.vkey}" for one in policy.witnesses),
        *(f"group {one.name} {one.least} {' '.join(one.members)}" for one in policy.groups),
        f"quorum {policy.quorum}",
    ]
    data = "".join(f"{line}\n" for line in lines).encode()
    assert parse_policy(data) == policy
    return data


def both(
    first: Callable[..., Any],
    second: Callable[..., None],
    fits: Callable[..., bool] = lambda *_, **__: True,
) -> Callable[..., Any]:
    """Return a function that gives what `first` does, if `second` refuses what it refuses.

    Only `first` is asked about what does not fit: values that JSON has no place for.
    """

    def run(*given: Any, **named: Any) -> Any:
        if not fits(*given, **named):
            return first(*given, **named)
        try:
            found, refused = first(*given, **named), None
        except LetheError as error:
            found, refused = None, error
        try:
            second(*given, **named)
            said = None
        except RefusedError as error:
            said = str(error)
        assert said == (None if refused is None else refused.detail)
        if refused is not None:
            raise refused
        return found

    return run


def base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


@cache
def _process() -> "subprocess.Popen[str]":
    assert NODE is not None
    process = subprocess.Popen(
        [NODE, "--no-warnings", str(HARNESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    atexit.register(_end, process)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()
