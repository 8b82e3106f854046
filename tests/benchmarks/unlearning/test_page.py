"""The committed page is what its results say, and names where they were measured."""

import platform
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.unlearning import machines, report
from benchmarks.unlearning.records import Record, line_of, parse_lines, parse_results
from benchmarks.unlearning.settings import FULL
from benchmarks.unlearning.summary import of, ratio

DOCS = Path(__file__).parents[3] / "docs" / "benchmarks"
MACHINE = {
    "device": "cpu",
    "processor": "A, 2 cores",
    "threads": "1",
    "torch": "2",
    "python": "3.11",
}


def test_the_page_is_what_its_results_render() -> None:
    text = (DOCS / "unlearning.md").read_text()
    records = parse_results((DOCS / "unlearning.json").read_text())
    _, between, _ = report.parts(text, "unlearning.md")
    written = between.splitlines()
    rendered = report.generated(records).splitlines()
    differing = [
        f"{here!r} is {there!r}"
        for here, there in zip(written, rendered, strict=False)
        if here != there
    ]
    said = "; renew the page: python -m benchmarks.unlearning --report --out docs/benchmarks"
    assert not differing, differing[0] + said
    assert len(written) == len(rendered), said


def test_the_figures_of_the_page_are_there() -> None:
    text = (DOCS / "unlearning.md").read_text()
    records = parse_results((DOCS / "unlearning.json").read_text())
    _, between, _ = report.parts(text, "unlearning.md")
    drawn = {f"unlearning-{name}.png" for name in FULL if of(records, name).seeds}
    assert drawn
    assert {name for name in drawn if f"({name})" in between} == drawn
    assert all((DOCS / name).exists() for name in drawn)


def test_a_line_says_on_what_it_was_measured_and_nothing_of_the_host() -> None:
    found = machines.measured_on("cpu")
    assert set(found) == set(machines.PARTS)
    assert found["device"] == "cpu"
    assert found["torch"] == torch.__version__.partition("+")[0]
    assert found["threads"] == str(torch.get_num_threads())
    assert not any(platform.node() in value for value in found.values())
    record = Record("x", 0, "pga", "p", {"test": 0.5}, machine=found)
    assert parse_lines([line_of(record)]) == {record.key: record}


def test_a_line_from_before_stays_valid_and_is_told_as_such() -> None:
    old = '{"label": "pga", "pin": "p", "seed": 0, "setting": "x", "values": {"test": 0.5}}'
    [record] = parse_lines([old]).values()
    assert record.machine == {}
    assert line_of(record) == old
    new = replace(record, seed=1, setting="y", machine=MACHINE)
    text = machines.render({part.key: part for part in (record, new)})
    assert text.splitlines()[:2] == [
        "- cpu, A, 2 cores, 1 thread, torch 2, Python 3.11: 1 of 2 lines (`y`).",
        "- not recorded: 1 of 2 lines (`x`).",
    ]
    assert '"Not recorded" are lines from before' in text
    assert "recorded" not in machines.render({new.key: new})


def test_seconds_of_two_machines_are_not_divided() -> None:
    one = Record("x", 0, "pga", "p", cost={"seconds": 2.0, "flops": 2.0}, machine=MACHINE)
    truth = replace(one, label="retrain", cost={"seconds": 8.0, "flops": 8.0})
    elsewhere = replace(truth, machine={**MACHINE, "device": "B"})
    assert ratio(one, truth, "seconds") == 4
    assert ratio(one, elsewhere, "seconds") != ratio(one, elsewhere, "seconds")  # NaN
    assert ratio(one, elsewhere, "flops") == 4
    assert ratio(replace(one, machine={}), replace(truth, machine={}), "seconds") == 4
    unnamed = ratio(one, replace(truth, machine={}), "seconds")
    assert unnamed != unnamed  # it may have been another


@pytest.mark.parametrize(
    ("text", "named"),
    [("model name\t: Zen 9\nmodel name\t: Zen 9\n", "Zen 9"), ("processor: 0\n", "")],
)
def test_a_processor_is_named_as_linux_does(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    other = machines.processor(tmp_path / "none")
    found = machines.processor(file)
    assert found.startswith(named)
    assert (found == other) == (not named)
