"""A real Prometheus that scrapes and judges as deploy/monitoring says, in less time."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import httpx2
import yaml

from tests.servers import NoServerError, free_port

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
EACH = 2  # seconds from scrape to scrape: on a busy machine an answer takes a second
WAIT, RANGE = "6s", "60s"  # what each `for:` and each longer range becomes
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
START_S = 60.0
NAMING = ("alertname", "part")

Labels = Mapping[str, str]


def shortened(rules: str) -> str:
    """Return rules that answer in seconds: `for: T` is WAIT, `[T]` RANGE; nothing else differs.

    No threshold is touched. RANGE holds ten scrapes and more, also on a busy machine.
    """
    assert all(in_seconds(one) > in_seconds(RANGE) for one in re.findall(r"\[(\w+)\]", rules))
    return re.sub(r"\[\w+\]", f"[{RANGE}]", re.sub(r"\bfor: \w+", f"for: {WAIT}", rules))


def in_seconds(duration: str) -> int:
    """Return the seconds of a duration with one unit, as the rules have them."""
    return int(duration[:-1]) * SECONDS[duration[-1]]


def configured(directory: Path, api: str, worker: str, token: str) -> Path:
    """Write configuration, rules and token into a directory; return the configuration's path.

    Of deploy/monitoring/prometheus.yml, addresses and intervals alone are others.
    """
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    fast = dict.fromkeys(
        ("scrape_interval", "evaluation_interval", "scrape_timeout"), f"{EACH}s"
    )
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
    http: httpx2.Client

    def firing(self) -> set[str]:
        """Return the alerts that fire: of rules about parts, as "RULE of PART"."""
        firing = [one for one in self._ask("alerts")["alerts"] if one["state"] == "firing"]
        return {
            " of ".join([one["labels"][name] for name in NAMING if name in one["labels"]])
            for one in firing
        }

    def values(self, query: str) -> list[tuple[Labels, float]]:
        """Return the numbers that a query returns now, each with its labels."""
        found = self._ask("query", query=query)["result"]
        read = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, value) for labels, value in read if not isnan(value)]

    def scraped(self) -> set[str]:
        """Return the health of each target: up, down, unknown."""
        return {one["health"] for one in self._ask("targets")["activeTargets"]}

    def _ask(self, what: str, **parameters: str) -> Any:
        answer = self.http.get(f"{self.url}/api/v1/{what}", params=parameters)
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
        httpx2.Client(timeout=30) as http,
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        made = Prometheus(f"http://127.0.0.1:{port}", http)
        try:
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
