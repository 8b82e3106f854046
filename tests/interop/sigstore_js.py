"""The npm verifier as a function. It fails, and does not skip, where Node.js is missing."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "interop"
FILES = ("package.json", "package-lock.json", ".npmrc", "verify.mjs")

# The packages ask for Node.js 22 and run on 20: --force turns the refusal into a warning.
NPM_CI = ("ci", "--force", "--ignore-scripts", "--no-audit", "--no-fund")


def verify(bundle: Path, log_vkey: Path, issuer_pem: Path) -> tuple[bool, str]:
    """Return whether @sigstore/verify accepts a bundle, and else its code and message."""
    return verify_all([bundle], log_vkey, issuer_pem)[0]


def verify_all(
    bundles: Sequence[Path], log_vkey: Path, issuer_pem: Path
) -> list[tuple[bool, str]]:
    """Verify several bundles in one process, in their order."""
    script = install() / "verify.mjs"
    paths = [str(path.resolve()) for path in (log_vkey, issuer_pem, *bundles)]
    output = _run([_program("node"), str(script), *paths])
    verdicts = [json.loads(line) for line in output.splitlines()]
    assert len(verdicts) == len(bundles)
    return [(verdict["ok"], verdict["reason"]) for verdict in verdicts]


def install() -> Path:
    """Return a directory with verify.mjs and its packages, installed once for each lock file.

    Raises:
        RuntimeError: Node.js or npm is missing, or the packages cannot be installed.
    """
    contents = b"".join((HERE / name).read_bytes() for name in FILES)
    directory = BUILD / sha256(contents).hexdigest()[:16]
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes start here together
        if not directory.exists():
            fresh = directory.with_suffix(".part")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            for name in FILES:
                shutil.copy(HERE / name, fresh)
            _run([_program("npm"), *NPM_CI], fresh)
            fresh.rename(directory)
    return directory


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not on PATH: install Node.js 20 or newer with npm")
    return path


def _run(command: Sequence[str], directory: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
    return done.stdout
