"""A real Prometheus that scrapes and judges as deploy/monitoring says, in less time."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml

from tests.servers import NoServerError, free_port

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
WAIT, RANGE = "3s", "20s"  # what each `for:` and each longer range becomes
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
START_S = 60.0

Labels = Mapping[str, str]


def shortened(rules: str) -> str:
    """Return rules that answer in seconds: `for: T` is WAIT, `[T]` RANGE; nothing else differs.

    No threshold is touched. RANGE holds ten scrapes and more, also on a busy machine.
    """
    assert all(in_seconds(one) > 20 for one in re.findall(r"\[(\w+)\]", rules))
    return re.sub(r"\[\w+\]", f"[{RANGE}]", re.sub(r"\bfor: \w+", f"for: {WAIT}", rules))


def in_seconds(duration: str) -> int:
    """Return the seconds of a duration with one unit, as the rules have them."""
    return int(duration[:-1]) * SECONDS[duration[-1]]


def configured(directory: Path, api: str, worker: str, token: str) -> Path:
    """Write configuration, rules and token into a directory; return the configuration's path.

    Of deploy/monitoring/prometheus.yml, addresses and intervals alone are others.
    """
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    fast = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    assert config["global"].keys() == fast.keys()
    config["global"] = fast
    whole, processes = config["scrape_configs"]
    whole["static_configs"] = [{"targets": [api]}]
    del processes["dns_sd_configs"]
    processes["static_configs"] = [{"targets": [api, worker]}]
    (directory / "alerts.yaml").write_text(shortened((MONITORING / "alerts.yaml").read_text()))
    (directory / "lethe.token").write_text(token)
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass(frozen=True)
class Prometheus:
    """Asks a running Prometheus by its HTTP API."""

    url: str

    def firing(self) -> list[Labels]:
        """Return the labels of each alert that fires."""
        return [
            one["labels"] for one in self._ask("alerts")["alerts"] if one["state"] == "firing"
        ]

    def has_data(self, query: str) -> bool:
        """Return whether a query returns a number now."""
        found = self._ask("query", query=query)["result"]
        return any(one["value"][1] != "NaN" for one in found)

    def scraped(self) -> set[str]:
        """Return the health of each target: up, down, unknown."""
        return {one["health"] for one in self._ask("targets")["activeTargets"]}

    def _ask(self, what: str, **parameters: str) -> Any:
        answer = httpx2.get(f"{self.url}/api/v1/{what}", params=parameters, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@contextmanager
def watching(config: Path) -> Iterator[Prometheus]:
    """Run Prometheus with a configuration.

    Raises:
        NoServerError: There is none, or it does not start.
    """
    binary = shutil.which("prometheus")
    if binary is None:
        raise NoServerError("no Prometheus: make prometheus, or apt-get install prometheus")
    port, log = free_port(), config.parent / "prometheus.log"
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            made = Prometheus(f"http://127.0.0.1:{port}")
            deadline = time.monotonic() + START_S
            while not _is_ready(made.url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise NoServerError(f"Prometheus did not start:\n{log.read_text()}")
                time.sleep(0.1)
            yield made
        finally:
            process.kill()  # nothing of it is needed again


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/ready", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False
