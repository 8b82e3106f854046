"""The fault campaign finds nothing in the product, and finds what is broken on purpose."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.campaign import KINDS, Campaign
from benchmarks.faults.case import Case, Outcome
from benchmarks.faults.judgement import Judgement
from benchmarks.faults.layer import MODES, Fault
from benchmarks.faults.schedule import differing, every, places, schedule

ROOT = Path(__file__).parents[2]


Reports = dict[str, dict[str, Any]]
# Its dozens of workloads take two minutes, and more on cores that are busy with other tests.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def campaigns() -> Reports:
    """Return the reports of small campaigns against the product, honest and broken."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.broken_product"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    reports: Reports = json.loads(done.stdout.splitlines()[-1])
    return reports


def test_the_product_survives(campaigns: Reports) -> None:
    report = campaigns["honest"]
    assert report["injected"] == 30
    assert report["findings"] == []
    assert [report[kind] for kind in KINDS] == [0] * len(KINDS)


# Reached in real processes, of which the whole campaign has some; and where an operator keeps
# the master key in the environment, which no workload does.
ELSEWHERE = {"app/broker.py", "app/election.py", "app/keys/rotate_master.py"}


def test_what_becomes_durable_is_reached(campaigns: Reports) -> None:
    missed = {one.partition(":")[0] for one in campaigns["honest"]["places_not_reached"]}
    assert missed == ELSEWHERE


def test_an_acknowledgement_before_the_commit_is_a_loss(campaigns: Reports) -> None:
    report = campaigns["hasty"]
    assert report["lost"] > 0
    assert "receipt" in str(report["findings"])


def test_work_that_nobody_resumes_is_stuck(campaigns: Reports) -> None:
    report = campaigns["idle"]
    assert report["stuck"] > 0
    assert report["lost"] == 0


def test_a_followed_backup_without_its_pieces_is_a_loss(campaigns: Reports) -> None:
    report = campaigns["forgetful"]
    assert "followed" in str(report["findings"])


@pytest.mark.parametrize(
    ("workload", "kind", "said"),
    [
        ("table", "lost", "sums has 39 rows"),
        ("table", "lost", "forest has 39 rows"),
        ("table", "lost", "vectors has 39 rows"),
        ("table", "stuck", "117 records are left, and 3 tombstones"),
        ("refit", "lost", "recipe has 39 rows"),
        ("refit", "lost", "shards has 39 rows"),
        ("refit", "lost", "script has 39 rows"),
        ("intake", "lost", "the requests of"),
        ("intake", "duplicated", "0 forms were proven, and 2 cases began"),
        ("intake", "stuck", "'received'"),
        ("agent", "lost", "nobody was called back"),
        ("agent", "duplicated", "4 cases began of 2 envelopes"),
        ("controller", "lost", "nobody was called back"),
        ("controller", "lost", "are {'certified'}"),
        ("late", "lost", "has no quorum"),
        ("case", "lost", "is not closed"),
        ("round", "lost", "another record of what it added"),
        ("network", "lost", "not that of the receipt"),
        ("silos", "stuck", "tasks of silos are left"),
        ("audit", "lost", "no report of the audit"),
        ("mend", "lost", "no return of small to service"),
        ("watch", "lost", "that proves an alarm was not kept"),
        ("fork", "lost", "the proof of the fork was not kept"),
    ],
)
def test_what_a_workload_does_not_end_with_is_found(
    campaigns: Reports, workload: str, kind: str, said: str
) -> None:
    found = {one["workload"]: one for one in campaigns["planted"]["findings"]}
    assert said in str(found[workload][kind])


def test_the_parts_of_a_campaign_are_the_whole() -> None:
    calls = {"erase": {"commit a.py:1": 3, "fsync b.py:2": 1}, "withdraw": {"begin c.py:3": 2}}
    parts = [list(every(schedule(calls), (number, 4))) for number in (1, 2, 3, 4)]
    together = [case for part in parts for case in part]
    assert len(together) == len(set(together))
    assert set(together) == set(schedule(calls))


def test_on_another_database_files_apart_from_it_are_not_struck_again() -> None:
    sites = {
        "commit app/backup/a.py:1": 1,
        "statement lethe/b.py:2": 2,
        "fsync app/ledger/guard.py:3": 3,
        "fsync app/backup/a.py:4": 4,
        "write lethe/witness/heads.py:5": 5,
    }
    assert list(differing(sites).values()) == [1, 2, 3]


def test_each_site_gets_each_mode_before_any_gets_one_twice() -> None:
    calls = {"erase": {"commit a.py:1": 3, "fsync b.py:2": 1}, "withdraw": {"begin c.py:3": 2}}
    cases = list(schedule(calls))
    assert len(cases) == len(set(cases))
    alone = [case for case in cases if case.fault and not case.beside]
    first = [case for case in alone if case.fault and case.fault.nth == 1]
    assert alone[: len(first)] == first
    for name, sites in calls.items():
        for site in sites:
            modes = {
                c.fault.mode
                for c in first
                if c.fault and (c.workload, c.fault.site) == (name, site)
            }
            assert modes == set(MODES[site.split()[0]])
    assert not [case for case in cases if case.beside and case.workload == "withdraw"]


def test_a_campaign_begins_with_both_ways_to_fail_and_all_others_in_turns() -> None:
    calls = {"erase": {"commit a.py:1": 3, "begin b.py:2": 1}, "key": {"fsync c.py:3": 2}}
    cases = [case.fault for case in schedule(calls) if case.fault and not case.beside]
    both = {
        (site, mode)
        for site in ("commit a.py:1", "fsync c.py:3")
        for mode in ("failed", "persisted")
    }
    turns = [(fault.site, fault.mode) in both for fault in cases[:8]]
    assert turns == [True, True, False, False] * 2
    for number in (1, 2):
        part = every(turns, (number, 2))
        assert list(part) == [True, False] * 2


def test_what_neither_failed_nor_failed_but_persisted_is_named() -> None:
    campaign = Campaign(sites={"commit a.py:1", "write b.py:2", "open c.py:3"})
    for fault, struck in (
        (Fault("commit a.py:1", 1, "failed"), True),
        (Fault("write b.py:2", 1, "persisted"), True),
        (Fault("write b.py:2", 1, "failed"), False),  # the call did not come
    ):
        campaign.add(Outcome(Case("erase", fault), "sqlite", struck, Judgement()))
    assert campaign.report()["calls_not_struck"] == [
        "failed write b.py:2",
        "persisted commit a.py:1",
    ]


@pytest.mark.parametrize(
    "place", ["app/ledger/guard.py", "app/vault/journal.py", "app/broker.py", "app/election.py"]
)
def test_where_something_becomes_durable_is_known(place: str) -> None:
    assert place in {file for file, *_ in places()}


def test_the_page_has_the_figures_of_the_recorded_runs() -> None:
    runs = json.loads((ROOT / "docs/benchmarks/faults.json").read_text())
    page = (ROOT / "docs/benchmarks/faults.md").read_text()
    for name in (
        "injected", *KINDS, "not_reached_again", "sites", "places_reached", "seconds",
    ):  # fmt: skip
        figures = " +".join(str(run[name]) for run in runs)
        assert re.search(rf"(?m)^{name} +{figures}$", page), name
    assert f"in {sum(run['injected'] for run in runs):,} faults" in page
    assert not any(run["findings"] for run in runs)
    assert not set.intersection(*(set(run["calls_not_struck"]) for run in runs))
