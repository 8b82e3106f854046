"""A SuperLink and SuperNodes as processes of this machine, with TLS and node keys."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

APP = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
START = 120.0  # seconds for a process to be ready on a slow machine
TAIL = 15  # lines of each log that are shown after a failure
LOOK = 60.0  # seconds between two polls of a run: each starts a process


class CheckError(Exception):
    """The adapter broke a promise."""


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something to be true. Raises CheckError if it takes too long."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise CheckError(f"timed out: {what}")
        time.sleep(0.05)


def free_port() -> int:
    """Return a currently free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """A SuperLink, the SuperNodes started so far, and the `flwr` command that talks to it."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root = root
        self.keys = root / "keys"
        self.port = free_port()
        self._stack = ExitStack()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        subprocess.run([APP / "trial-keys.sh", self.keys, *names], check=True)
        home = root / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "check"\n\n[superlink.check]\n'
            f'address = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.keys / "ca.crt"}"\n'
        )

    def __enter__(self) -> "Deployment":
        keys = self.keys
        self._start(
            "superlink",
            *("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt"),
            *("--ssl-keyfile", keys / "server.key", "--enable-supernode-auth"),
            "--disable-runtime-dependency-installation",
        )
        until(lambda: listens(self.port), START, "the SuperLink does not listen")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stack.close()
        for log in sorted(self.root.glob("*.log")) if kind is not None else ():
            lines = log.read_text(errors="replace").splitlines()[-TAIL:]
            print(f"--- {log.name}", *lines, sep="\n", file=sys.stderr)

    def register(self, name: str) -> int:
        """Register a node's public key; returns its node id."""
        return int(self.flwr("supernode", "register", self.keys / f"{name}.pub")["node-id"])

    def start_node(self, name: str, data: Path) -> subprocess.Popen[bytes]:
        """Start the SuperNode of a client with its own rows."""
        self._nodes[name] = self._start(
            name,
            *("flower-supernode", "--superlink", f"127.0.0.1:{self.port}"),
            *("--root-certificates", self.keys / "ca.crt"),
            *("--auth-supernode-private-key", self.keys / name),
            *("--host", "127.0.0.1", "--port", str(free_port()), "--max-retries", "3"),
            *("--node-config", f'client="{name}" data="{data}"'),
        )
        return self._nodes[name]

    def kill_node(self, name: str) -> None:
        """Kill a SuperNode with SIGKILL, without a clean shutdown."""
        self._nodes[name].kill()
        self._nodes[name].wait()

    def run(self, job: dict[str, Any], out: Path) -> str:
        """Start a job; returns the run's id."""
        file = self.root / f"{out.name}.json"
        file.write_text(json.dumps(job))
        config = f'job="{file}" out="{out}"'
        return str(self.flwr("run", APP, "--run-config", config)["run-id"])

    def finish(self, run: str, out: Path, seconds: float) -> dict[str, Any]:
        """Wait for a job's notes and return them. Raises CheckError if the run failed."""
        looked = time.monotonic()

        def done() -> bool:
            nonlocal looked
            if (out / "notes.json").exists():
                return True
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                (found,) = self.flwr("list", "--run-id", run)["runs"]
                if (
                    found["status"].startswith("finished")
                    and "completed" not in found["status"]
                ):
                    raise CheckError(f"the run ended as {found['status']}")
            return False

        until(done, seconds, "the job does not finish")
        notes: dict[str, Any] = json.loads((out / "notes.json").read_bytes())
        return notes

    def flwr(self, *arguments: str | Path) -> dict[str, Any]:
        """Run a `flwr` command and return its JSON."""
        command = [BIN / "flwr", *arguments, "--format", "json"]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CheckError(f"flwr {arguments[0]}: {done.stdout}{done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        return answer

    def _start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                env=self._environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(_stop, process)
        return process

    def _environment(self) -> dict[str, str]:
        # Without PYTHONPATH: the nodes must find the app in what `flwr run` sends them.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {
            **inherited,
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(self.root / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }


def listens(port: int) -> bool:
    """Return whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
