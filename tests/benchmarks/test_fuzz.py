"""A short run of every fuzzer, and that a fuzzer finds what is broken on purpose."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.fuzz import campaign, engine, mutate
from benchmarks.fuzz.mutate import Mutator, as_json, as_lines, as_tensors, as_zip, plain
from benchmarks.fuzz.target import Target
from benchmarks.soundness.report import BEGIN, END
from lethe.certificates.bundle import parse_bundle
from lethe.errors import LetheError
from tests.lethe.web import second
from tests.small import pack, rows

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "benchmarks"


@pytest.mark.timeout(900)
def test_no_parser_raises_anything_but_its_refusal(tmp_path: Path) -> None:
    report = tmp_path / "fuzz.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", "--runs", "300", "--json", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(report.read_text())
    assert len(results) > 90
    assert {one["runs"] for one in results} == {300}


def careless(data: bytes) -> object:
    """A parser that forgets an error."""
    try:
        return json.loads(data)["a"]
    except ValueError:
        raise KeyError from None


def fuzzed(read: object, runs: int = 400) -> engine.Found:
    target = Target("planted", read, lambda: [b'{"a":1}'], (KeyError,), (as_json, plain))  # type: ignore[arg-type]
    return engine.fuzz(target, runs)


def test_an_error_that_is_no_refusal_is_found() -> None:
    found = fuzzed(careless)
    assert found.runs == 400
    assert any(where.startswith("TypeError") for where in found.crashes), found.crashes
    assert any(where.startswith("RecursionError") for where in found.crashes), found.crashes


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HANG_S", 0.2)

    def slow(data: bytes) -> None:
        if data != b'{"a":1}':
            time.sleep(5)

    found = fuzzed(slow, runs=1)
    assert [where for where in found.crashes if "hangs" in where]


def test_memory_without_bound_is_found() -> None:
    def greedy(data: bytes) -> None:
        if data != b'{"a":1}':
            bytearray(2 * engine.MEMORY_BYTES)  # more than any that was given back

    found = fuzzed(greedy, runs=20)
    assert any(where.startswith("MemoryError") for where in found.crashes), found.crashes


def test_a_process_that_dies_is_found() -> None:
    def deadly(data: bytes) -> None:
        if data != b'{"a":1}':
            os._exit(3)

    assert list(fuzzed(deadly, runs=20).crashes) == ["the process died: status 768"]


@second.needs_node
def test_a_difference_between_the_two_verifiers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks.fuzz.targets import verifiers

    (target,) = (one for one in verifiers.TARGETS if one.name == "both-certificates")
    assert not engine.fuzz(target, 50).crashes

    def lenient(data: bytes) -> object:
        try:
            return parse_bundle(data)
        except LetheError:
            return parse_bundle(target.seeds()[0])

    monkeypatch.setattr("lethe.certificates.verify.parse_bundle", lenient)
    found = engine.fuzz(target, 50)
    assert [where.split()[0] for where in found.crashes] == ["AssertionError"]


def test_a_campaign_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "BATCH", 100)
    file, asked = tmp_path / "fuzz.json", []
    (tmp_path / campaign.PAGE).write_text(f"Prose.\n\n{BEGIN}\n{END}\n\nMore.\n")

    def fuzz(name: str, runs: int, seed: int) -> engine.Found:
        asked.append((name, runs, seed))
        crashes = {"TypeError at a:1": "00"} if name == "b" else {}
        return engine.Found(name, runs, runs - 1, 1, 2, 0.5, 1.0, crashes)

    soon = time.monotonic() + 60
    campaign.FuzzCampaign(file).run("ab", 150, soon, fuzz)
    campaign.FuzzCampaign(file).run("ab", 250, soon, fuzz)
    campaign.FuzzCampaign(file).run("ab", 1000, 0.0, fuzz)  # no time is left
    assert asked == [
        ("a", 100, 0), ("b", 100, 0), ("a", 50, 1), ("b", 50, 1), ("a", 100, 2), ("b", 100, 2)
    ]  # fmt: skip
    found = json.loads(file.read_text())
    assert {name: one["runs"] for name, one in found.items()} == {"a": 250, "b": 250}
    assert [name for name, one in found.items() if one["crashes"]] == ["b"]
    page = (tmp_path / campaign.PAGE).read_text()
    assert page.startswith("Prose.")
    assert page.endswith("More.\n")
    assert "500 inputs of 2 targets, 1,000,000 of 0 of them and at least 250 of each" in page


def test_a_campaign_goes_on_with_the_target_that_is_done_soonest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "BATCH", 100)
    asked = []

    def fuzz(name: str, runs: int, _: int) -> engine.Found:
        asked.append(name)
        return engine.Found(name, runs, seconds={"a": 9.0, "b": 1.0}[name])

    campaign.FuzzCampaign(tmp_path / "fuzz.json").run("ab", 300, time.monotonic() + 60, fuzz)
    assert "".join(asked) == "abbbaa"


def test_a_target_without_a_corpus_has_one_batch_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "BATCH", 100)
    file, asked = tmp_path / "fuzz.json", []
    before = {"batches": 3, "runs": 300, "seconds": 1.0, "read": 0, "refused": 0}
    file.write_text(json.dumps({"a": before, "b": {**before, "corpus": True}}))

    def fuzz(name: str, runs: int, seed: int) -> engine.Found:
        asked.append((name, runs, seed))
        return engine.Found(name, runs)

    campaign.FuzzCampaign(file).run("ab", 300, time.monotonic() + 60, fuzz)
    assert asked == [("a", 100, 3)]
    assert json.loads(file.read_text())["a"]["corpus"] is True


def test_two_calls_of_a_campaign_add_to_one_file(tmp_path: Path) -> None:
    file = tmp_path / "fuzz.json"
    both = [campaign.FuzzCampaign(file), campaign.FuzzCampaign(file)]
    for one, names in zip(both, "ab", strict=True):
        one.run(
            names, 10, time.monotonic() + 60, lambda name, runs, _: engine.Found(name, runs)
        )
    assert {name: one["runs"] for name, one in json.loads(file.read_text()).items()} == {
        "a": 10,
        "b": 10,
    }


def test_what_grew_is_not_kept(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        if len(data) > engine.KEPT_BYTES:
            raise ValueError
        if len(data) > 1:
            raise KeyError

    def grow(rng: random.Random, _: bytes, __: Sequence[bytes]) -> bytes:
        return bytes(rng.choice((2, engine.KEPT_BYTES + 1)))

    target = Target("grown", read, lambda: [b"1"], (KeyError, ValueError), (grow,))
    assert engine.fuzz(target, 50, corpus=tmp_path, keep=True).ways == 2
    assert [path.read_bytes() for path in (tmp_path / "grown").iterdir()] == [bytes(2)]


def test_the_page_is_what_the_campaign_found() -> None:
    found = json.loads((PAGES / "fuzz.json").read_text())
    between = (PAGES / campaign.PAGE).read_text().partition(BEGIN)[2].partition(END)[0]
    assert between == f"\n\n{campaign.render(found)}\n"
    from benchmarks.fuzz.targets import TARGETS  # loads all parsers, torch's too

    assert set(found) == set(TARGETS)
    assert not [name for name, one in found.items() if one["crashes"]]


@pytest.mark.parametrize("mutator", [plain, as_json, as_zip, as_tensors, as_lines])
def test_mutations_repeat_and_differ(mutator: Mutator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed gives the same bytes on another day: an archive's members have no time of today."""
    inputs = (b'{"a":[1,"x"]}', pack(rows()), b"", b"a\nb\n")

    def mutated() -> list[list[bytes]]:
        return [
            [mutator(random.Random(seed), one, [one]) for seed in range(60)] for one in inputs
        ]

    made = mutated()
    monkeypatch.setattr(time, "time", lambda: 10**9)
    assert mutated() == made
    assert all(len(set(one)) > 5 for one in made)


def test_a_campaign_keeps_one_input_of_each_way(tmp_path: Path) -> None:
    def picky(data: bytes) -> object:
        value = json.loads(data)["a"]
        if value != 1:
            raise KeyError(value)
        return value

    refusals = (KeyError, ValueError, TypeError, RecursionError)
    target = Target("planted", picky, lambda: [b'{"a":1}'], refusals, (as_json, plain))
    folder = tmp_path / "planted"
    engine.fuzz(target, 400, corpus=tmp_path)
    assert not folder.exists()  # only a campaign writes
    ways = engine.fuzz(target, 400, corpus=tmp_path, keep=True).ways
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(first) == ways
    (folder / "again").write_bytes(max(first.values(), key=len) + b" " * 9)
    assert engine.fuzz(target, 0, corpus=tmp_path).ways == ways  # all are tried anew
    engine.fuzz(target, 0, corpus=tmp_path, keep=True)
    assert len(list(folder.iterdir())) == ways


def test_an_input_of_the_corpus_that_is_no_longer_refused_is_found(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "old").write_bytes(b"[]")
    target = Target("planted", careless, lambda: [b'{"a":1}'], (KeyError,))
    found = engine.fuzz(target, 0, corpus=tmp_path)
    assert [where.split()[0] for where in found.crashes] == ["TypeError"]


def test_no_mutation_fills_the_memory() -> None:
    data, rng = bytes(mutate.MOST_BYTES), random.Random(1)
    assert max(len(mutate.plain(rng, data, [data])) for _ in range(200)) <= mutate.MOST_BYTES
