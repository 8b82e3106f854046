"""Alert rules and dashboard: each rule fires on its fault alone, and every metric is Lethe's."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from app.counters import COUNTERS, HISTOGRAMS
from app.service.health import PARTS
from tests.docs.test_metrics_documented import documented
from tests.servers import NoServerError

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = MONITORING / "alerts.yaml"
UNITS = {"bool_on_off", "bytes", "reqps", "s", "short"}
NAME = re.compile(r"\blethe_[a-z_]+\b")

# For each alert the series of its fault, sampled each minute for five hours, and those of a
# service that is well; 0x300 is the value 0 three hundred times more.
FAULTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "LetheRequestOverdue": (
        {"lethe_requests_overdue": "2x300"},
        {"lethe_requests_overdue": "0x300"},
    ),
    "LetheRequestDueSoon": (
        {"lethe_requests_due_soon": "1x3000"},
        {"lethe_requests_due_soon": "0x3000"},
    ),
    "LetheDecisionNeeded": (
        {'lethe_requests{state="needs-decision"}': "1x300"},
        {'lethe_requests{state="received"}': "9x300"},
    ),
    "LetheRequestFailed": (
        {'lethe_requests{state="failed"}': "0x299 1"},  # at once, on the first one
        {'lethe_requests{state="failed"}': "3x300"},
    ),
    "LetheQueueStands": (
        {"lethe_queue_oldest_seconds": "0+60x300", "lethe_leases_held": "0x300"},
        {"lethe_queue_oldest_seconds": "0+60x300", "lethe_leases_held": "1x300"},
    ),
    "LetheScheduleAway": (
        {"lethe_schedule_running": "1x293 0x6"},
        {"lethe_schedule_running": "0x297 1x2"},  # it runs again
    ),
    "LetheReceiptsMissing": (
        {"lethe_checkpoint_lag_entries": "3x300"},
        {"lethe_checkpoint_lag_entries": "0x300"},
    ),
    "LetheLogForked": ({"lethe_witness_forks": "1x300"}, {"lethe_witness_forks": "0x300"}),
    "LetheWitnessesMissing": (
        {"lethe_witnessed_lag_entries": "3x300"},
        {"lethe_witnessed_lag_entries": "0x297 3x3"},
    ),
    "LetheLogLockSlow": (
        {
            'lethe_log_lock_wait_seconds_bucket{le="1"}': "0x300",
            'lethe_log_lock_wait_seconds_bucket{le="5"}': "0+10x300",
            'lethe_log_lock_wait_seconds_bucket{le="+Inf"}': "0+10x300",
        },
        {
            'lethe_log_lock_wait_seconds_bucket{le="1"}': "0+10x300",
            'lethe_log_lock_wait_seconds_bucket{le="5"}': "0+10x300",
            'lethe_log_lock_wait_seconds_bucket{le="+Inf"}': "0+10x300",
        },
    ),
    "LetheStageErrors": (
        {'lethe_stage_errors_total{stage="execute"}': "0+1x300"},
        {'lethe_stage_errors_total{stage="execute"}': "7x300"},
    ),
    "LetheQuotaReached": (
        {'lethe_refused_total{problem="quota"}': "0+1x300"},
        {
            'lethe_refused_total{problem="quota"}': "7x300",
            'lethe_refused_total{problem="rate-limit"}': "0+1x300",
        },
    ),
    "LetheNoticesFail": (
        {'lethe_deliveries{state="failed"}': "0x270 2x30"},
        {'lethe_deliveries{state="failed"}': "2x300"},
    ),
    "LetheForeignMessages": (
        {"lethe_messages_dropped_total": "0x295 4x5"},
        {"lethe_messages_dropped_total": "4x300"},
    ),
    "LetheDiskFull": (
        {"lethe_free_bytes": "100000000000-300000000x300"},
        {"lethe_free_bytes": "100000000000-100x300"},
    ),
    "LetheDiskLow": (
        {"lethe_free_bytes": "1000000000x300", "lethe_min_free_bytes": "268435456x300"},
        {"lethe_free_bytes": "1100000000x300", "lethe_min_free_bytes": "268435456x300"},
    ),
    "LetheFollowerLate": ({"lethe_followers_late": "1x300"}, {"lethe_followers_late": "0x300"}),
    "LethePartAway": (
        {'lethe_scrape_ok{part="broker"}': "0x300"},
        {'lethe_scrape_ok{part="broker"}': "1x300"},
    ),
    "LetheNotReady": (
        {'lethe_ready{part="keys"}': "0x300"},
        {'lethe_ready{part="keys"}': "1x300"},
    ),
    "LetheProcessAway": (
        {'up{job="lethe-processes"}': "0x300"},
        {'up{job="lethe-processes"}': "1x300"},
    ),
    "LetheAway": ({'up{job="lethe"}': "0x300"}, {'up{job="lethe"}': "1x300"}),
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def test_each_rule_has_its_fault_here_and_says_what_to_do() -> None:
    assert {rule["alert"] for rule in rules()} == set(FAULTS)
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "remedy"}


def exported() -> set[str]:
    """Return the names of all series, of a histogram its three."""
    ends = ("", "_bucket", "_sum", "_count")
    return {f"{name}{end}" for name in documented() for end in ends}


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    asked = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    panels = [one for one in dashboard["panels"] if "targets" in one]
    shown = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in NAME.findall(target["expr"])
    }
    assert asked | shown <= exported()
    ends = r"_(bucket|sum|count)$"
    histograms = {re.sub(ends, "", name) for name in shown}
    assert documented().keys() <= shown | histograms  # each metric is drawn somewhere


def test_each_panel_has_what_grafana_needs() -> None:
    """Nothing here draws them: Debian has no Grafana."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    (variable,) = dashboard["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["title"]
        assert panel["datasource"] == source
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert [one["refId"] for one in panel["targets"]] == list(
            "ABC"[: len(panel["targets"])]
        )
        assert all(one["expr"].strip() for one in panel["targets"])
        if panel["type"] == "stat":  # of a range it shows the last number there was
            assert all(one["instant"] and not one["range"] for one in panel["targets"])
        at = panel["gridPos"]
        place = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in place) < 24  # the grid has 24 columns
        assert not place & taken, panel["title"]
        taken |= place
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    """Grafana's own models of its JSON leave out what they do not know: a misspelt field."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert not unknown_to_grafana(dashboard)
    first, second = dashboard["panels"][:2]
    first["feildConfig"] = first["fieldConfig"]
    second["targets"][0]["exrp"] = "up"
    assert unknown_to_grafana(dashboard) == [
        "/panels/0/feildConfig",
        "/panels/1/targets/0/exrp",
    ]


def unknown_to_grafana(dashboard: dict[str, Any]) -> list[str]:
    """Return the paths of fields that Grafana reads as another value, or not at all."""
    plugins.register_default_plugins()
    read = Dashboard.from_json(dashboard)
    return list(differences(dashboard, json.loads(JSONEncoder().encode(read))))


def differences(written: Any, read: Any, path: str = "") -> Iterator[str]:
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            yield from differences(value, read.get(name), f"{path}/{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for place, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from differences(one, other, f"{path}/{place}")
    elif written != read:
        yield path


def test_the_jobs_are_those_of_the_rules_and_each_keeps_its_kind() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert config["rule_files"] == [RULES.name]
    whole, processes = config["scrape_configs"]
    named = re.findall(r'job="([^"]+)"', RULES.read_text())
    assert set(named) == {whole["job_name"], processes["job_name"]}
    (dropped,), (kept,) = whole["metric_relabel_configs"], processes["metric_relabel_configs"]
    assert (dropped["action"], kept["action"]) == ("drop", "keep")
    assert dropped["regex"] == kept["regex"]
    of_processes = {f"{one.name}_total" for one in COUNTERS} | {one.name for one in HISTOGRAMS}
    matched = {name for name in documented() if re.fullmatch(kept["regex"], name)}
    assert matched == of_processes | {"lethe_ready"}
    assert all(re.fullmatch(kept["regex"], f"{one.name}_bucket") for one in HISTOGRAMS)
    (worker,) = (one["port"] for one in processes["dns_sd_configs"])
    for manifest in ("compose.yaml", "deploy/kubernetes/lethe.yaml"):
        said = re.findall(
            r'LETHE_WORKER_METRICS\W+(?:value: ")?0\.0\.0\.0:(\d+)',
            (MONITORING.parents[1] / manifest).read_text(),
        )
        assert said == [str(worker)], manifest


def recorded() -> list[str]:
    """Return the alerts of each row of what was seen, fired and ended, in Markdown."""
    page = (MONITORING.parents[1] / "docs" / "monitoring.md").read_text()
    row = r"(?m)^\| (`Lethe[^|]+) \|.*\| after \d+ s \|.*\| after \d+ s \|"
    return [str(alerts) for alerts in re.findall(row, page)]


def test_each_alert_is_in_the_record_of_what_was_seen() -> None:
    seen = {name for row in recorded() for name in re.findall(r"`(Lethe\w+)`", row)}
    assert seen == {rule["alert"] for rule in rules()}


def test_each_part_of_readiness_is_in_the_record_of_what_was_seen() -> None:
    parts = (re.findall(r"`LetheNotReady` of `(\w+)`", row) for row in recorded())
    assert {name for row in parts for name in row} == {*PARTS}


def unit_test(alert: str, series: dict[str, str], firing: int) -> dict[str, Any]:
    """Return promtool's test that at the end of the series so many alerts fire."""
    end = max(3000 if values.endswith("x3000") else 300 for values in series.values())
    firings = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{alert}, {firing}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": firings,
                "eval_time": f"{end}m",
                "exp_samples": [{"labels": "{}", "value": firing}],
            }
        ],
    }


def test_each_rule_fires_on_its_fault_alone(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:  # never skipped: .ci/run would show a rule that cannot fire as fine
        raise NoServerError("no promtool: make prometheus, or apt-get install prometheus")
    tests = [
        unit_test(alert, series, firing)
        for alert, both in FAULTS.items()
        for series, firing in zip(both, (1, 0), strict=True)
    ]
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    done = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
