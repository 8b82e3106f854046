"""The benchmark's own promises, on digits: who must agree, who may drift, what is kept."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.baselines.exact_fun import ExactFun
from benchmarks.baselines.history import same
from benchmarks.common import refit
from benchmarks.ridge_paper import (
    chunks,
    continual,
    findings,
    messages,
    not_measured,
    plots,
    report,
    skips,
    stream,
    table3,
    table4,
    width,
)
from benchmarks.ridge_paper.__main__ import main
from benchmarks.ridge_paper.contenders import OURS, PAPER, REFIT, Ours, Start
from benchmarks.ridge_paper.data import digits, load, read
from benchmarks.ridge_paper.exact import Files, bits_apart, federated, files, head64, retrained
from benchmarks.ridge_paper.ledgers import Acu, VariantA, VariantB, deviation, pooled
from benchmarks.ridge_paper.linear_heads import (
    EXACT_FUN,
    FATS,
    FEDAVG,
    FEDERATED,
    QUICK,
    STEP,
    FederatedHeads,
    LinearTask,
    Rounds,
    accuracy,
    config_of,
    logits,
)
from benchmarks.ridge_paper.partition import members
from benchmarks.ridge_paper.results import Results, format_results, parse_results
from benchmarks.ridge_paper.task import HeadTask, make_task
from workers.errors import RefusedError
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.training.fedavg.client.flops import CountedOperations
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes


@pytest.fixture(scope="module")
def task() -> HeadTask:
    return digits(32)


@pytest.fixture(scope="module")
def start(task: HeadTask) -> Start:
    return Start(task, QUICK)


@pytest.fixture(scope="module", autouse=True)
def no_pauses() -> Iterator[None]:
    """Nothing is timed here, so nobody has to wait for idle threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.common.PAUSE", 0.0)
        patch.setattr("benchmarks.ridge_paper.stream.PAUSE", 0.0)
        yield


@pytest.fixture(scope="module")
def results(task: HeadTask, start: Start) -> Results:
    return Results(
        quick=True,
        machine={"processor": "x"},
        seconds={"stream": 1.0},
        table3=[table3.measure(start)],
        table4=[table4.measure(task, quick=True)],
        stream=[stream.measure(start, quick=True)],
        skips=skips.measure(start, quick=True),
        chunks=[chunks.measure(start, 25)],
        continual=[continual.measure(start, 5, quick=True)],
        messages=[messages.measure(task)],
    )


def test_the_exact_ledger_is_zero_bits_off_everywhere(results: Results) -> None:
    bits = results.exact_bits()
    assert len(bits) == 3 + 4 + 5
    assert set(bits) == {0}


def test_one_unit_in_one_statistic_is_seen_as_bits(task: HeadTask) -> None:
    state = retrained(task)
    gram = state.statistics.gram.copy()
    gram[3, 3] += 1
    changed = RidgeStatistics(gram, state.statistics.moment, state.statistics.rows)
    other = files(replace(state, statistics=changed), task.config)
    assert files(state, task.config).bits_apart(other) > 0


def test_a_row_that_was_not_deleted_is_seen_as_bits(task: HeadTask, start: Start) -> None:
    keep = np.ones(len(task.rows), dtype=np.bool_)
    keep[7] = False
    exact = start.contenders(("ridge-exact",))["ridge-exact"]
    assert isinstance(exact, Ours)
    alone = files(retrained(task, keep), task.config)
    assert files(exact.state, task.config).bits_apart(alone) > 0
    exact.change(np.array([7]), -1)
    assert files(exact.state, task.config).bits_apart(alone) == 0


@pytest.mark.parametrize(
    ("left", "right", "bits"),
    [
        (b"", b"", 0),
        (b"\x00", b"\x00", 0),
        (b"\x01", b"\x02", 2),
        (b"\xff", b"", 8),
        (b"a", b"ab", 8),
    ],
)
def test_bits_are_counted(left: bytes, right: bytes, bits: int) -> None:
    assert bits_apart(left, right) == bits
    assert Files(left, right).bits_apart(Files(right, left)) == 2 * bits


def test_every_partition_gives_the_retrained_files(task: HeadTask) -> None:
    alone = files(retrained(task), task.config)
    for count in (1, 3, 100):
        state = federated(task, members(task.owners(count)))
        assert files(state, task.config).bits_apart(alone) == 0


def test_the_papers_ledgers_follow_the_oracle_and_not_exactly(task: HeadTask) -> None:
    x, y, config = task.features, task.targets, task.config
    gone, kept = np.arange(40), np.arange(40, len(x))
    oracle = refit(x[kept], y[kept], config.penalty)
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-1)):
        for kind in (VariantA, VariantB, Acu):
            ledger = kind(config.dimension, config.classes, config.penalty, dtype)
            ledger.update(x, y, +1)
            for i in gone:
                ledger.update(x[i : i + 1], y[i : i + 1], -1)
            assert ledger.head().dtype == dtype
            assert 0 < deviation(ledger.head(), oracle) < tolerance, (kind, dtype)


def test_a_ledger_that_deletes_the_wrong_row_is_off(task: HeadTask) -> None:
    x, y, config = task.features, task.targets, task.config
    ledger = VariantB(config.dimension, config.classes, config.penalty)
    ledger.update(x, y, +1)
    ledger.update(x[1:2], y[1:2], -1)
    assert deviation(ledger.head(), refit(x[1:], y[1:], config.penalty)) > 1e-6


def test_stacked_factors_of_clients_are_the_whole(task: HeadTask) -> None:
    x, y, config = task.features, task.targets, task.config
    ledger = VariantB(config.dimension, config.classes, config.penalty)
    pooled(ledger, x, y, members(task.owners(100)))
    assert deviation(ledger.head(), refit(x, y, config.penalty)) < 1e-9


def test_copies_of_contenders_go_their_own_way(task: HeadTask, start: Start) -> None:
    before = {name: contender.head() for name, contender in start.contenders().items()}
    for contender in start.contenders().values():
        contender.change(np.arange(200), -1)
    for name, contender in start.contenders().items():
        assert np.array_equal(contender.head(), before[name]), name


def test_deletions_and_additions_stay_near_and_are_proven(results: Results) -> None:
    (run,) = results.stream
    assert run.checkpoints == ["10 deletions", "20 deletions", "10 added back", "20 added back"]
    assert all(0 < value < 1e-9 for name in PAPER for value in run.deviation[name])
    assert run.deviation["ridge-exact"] == [0.0] * 4
    for name in OURS:
        assert all(
            off <= bound
            for off, bound in zip(run.deviation[name], run.bound[name], strict=True)
        )
    assert {name: len(run.seconds[name]) for name in (*PAPER, *OURS)} == dict.fromkeys(
        (*PAPER, *OURS), 20
    )
    assert len(run.seconds[REFIT]) == 4
    assert all(len(run.seconds[name]) == 2 for name in FEDERATED)


def test_all_ridge_heads_are_equally_accurate(results: Results) -> None:
    (row,) = results.table3
    others = (FEDAVG, FATS, EXACT_FUN)
    assert set(others) < set(row.accuracy)
    ridge = {value for name, value in row.accuracy.items() if name not in others}
    assert max(ridge) - min(ridge) < 0.01
    (run,) = results.chunks
    for name in (*PAPER, *OURS):
        assert np.allclose(run.test[name], run.test[REFIT], atol=0.01), name
        assert np.allclose(run.retained[name], run.retained[REFIT], atol=0.01), name


def test_the_exact_baselines_forget_what_they_learned(start: Start) -> None:
    owners, federated = start.owners, start.federated
    keep = np.ones(len(owners), dtype=np.bool_)
    keep[::3] = False
    keep[owners == owners[1]] = False  # a whole client leaves too
    clients = federated.linear.clients(owners, keep)
    assert len(clients) < len(federated.linear.clients(owners))
    exact = ExactFun(step=STEP, clients_per_round=QUICK.exact_fun[1]).train(
        federated.linear.network,
        sizes(clients),
        config_of(QUICK.exact_fun[0]),
        InProcess(clients, "cpu", threads=1),
    )
    assert same(federated.forget(EXACT_FUN, keep).weights, exact.weights)
    fewer = keep.copy()
    fewer[np.flatnonzero(keep)[:40]] = False
    for name in FEDERATED:
        more = federated.forget(name, fewer)
        assert not same(federated.forget(name, keep).weights, more.weights)
        assert more.seconds > 0
        assert more.operations > 0


def test_repeated_rounds_are_told_without_repeating_them(start: Start) -> None:
    federated = start.federated
    counts: dict[str, list[int]] = {FATS: [], EXACT_FUN: []}
    for row in range(0, len(start.owners), 97):
        keep = np.ones(len(start.owners), dtype=np.bool_)
        keep[row] = False
        for name, probe in (
            (FATS, federated.fats_repeats),
            (EXACT_FUN, federated.exact_fun_repeats),
        ):
            found = federated.forget(name, keep)
            assert probe(keep) == found.repeated, (name, row)
            # What was never drawn is forgotten by doing nothing.
            assert found.repeated or name == EXACT_FUN or found.operations == 0
            counts[name].append(found.repeated)
    assert len(set(counts[FATS])) > 2


def test_a_grid_too_coarse_never_leaves_its_start(task: HeadTask, start: Start) -> None:
    coarse = FederatedHeads(task, start.owners, QUICK, step=1e3)
    keep = np.ones(len(start.owners), dtype=np.bool_)
    keep[3] = False
    assert coarse.exact_fun_repeats(keep) == 0
    assert all(not part.any() for part in coarse.exact_fun.weights.values())


def test_single_precision_is_worse_than_double(results: Results) -> None:
    (row,) = results.table4
    for variant in ("Variant A", "Variant B"):
        single, double = row.deviation[f"{variant}, fp32"], row.deviation[f"{variant}, fp64"]
        for low, high in zip(single, double, strict=True):
            assert low is not None
            assert high is not None
            assert low > 1e3 * high


def test_fedavg_learns_and_forgets_nobody_it_keeps(task: HeadTask, start: Start) -> None:
    federated = FederatedHeads(task, task.owners(20), Rounds(fedavg=(30, 20)))
    test = federated.linear.test
    assert accuracy(federated.fedavg, test) > 0.7  # chance is 0.1
    keep = np.ones(len(task.rows), dtype=np.bool_)
    again = federated.forget(FEDAVG, keep)
    assert same(again.weights, federated.fedavg)
    assert again.repeated == 30
    keep[task.rows.labels == 4] = False
    without = federated.forget(FEDAVG, keep).weights
    assert 4 not in logits(without, test).argmax(1)


def test_natural_clients_stay_whole(task: HeadTask) -> None:
    names = np.array([f"maintainer-{i % 37}" for i in range(len(task.rows))])
    own = make_task(
        "x", "", (task.features, task.rows.labels), (task.test, task.test_labels), 10, names
    )
    owners = own.owners(5)
    assert own.client_counts(quick=False) == (10, 100, 37)
    assert set(owners.tolist()) == set(range(5))
    assert all(len(set(owners[names == name].tolist())) == 1 for name in set(names.tolist()))


def test_wide_random_features_are_measured_in_a_process_of_their_own(
    task: HeadTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(width, "QUICK_WIDTHS", (160,))
    plain, proven = width.measure(task, quick=True)
    assert (plain.kind, proven.kind) == width.KINDS
    assert plain.rows == proven.rows == 400
    assert plain.bound is None
    assert proven.bound is not None
    assert proven.deviation < 1e-10
    assert plain.deviation < 1e-9
    assert 0 < proven.before <= proven.peak
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="d = 160"):
        width.measure(task, quick=True)


def test_analytic_heads_leave_no_gap_and_the_original_does(results: Results) -> None:
    (run,) = results.continual
    for name in continual.ANALYTIC:
        gaps = run.gaps[name]
        assert gaps["weights"] < 1e-6, name  # ridge-exact publishes float32
        assert [gaps[part] for part in continual.PARTS[1:]] == [0.0] * 4
    for name in (continual.NO_METHOD, continual.ANOTHER_SEED, *continual.BASELINES):
        assert run.gaps[name]["weights"] > 1e-3, name
        assert 0 <= run.gaps[name]["attack"] <= 1
    measured = {continual.ANOTHER_SEED, *continual.BASELINES, *continual.ANALYTIC}
    assert set(run.seconds) == measured
    assert run.refused == {}
    for name in continual.ANALYTIC:  # before, between and after the baselines
        assert len(run.runs[name]) == len(continual.BASELINES) + 2
        assert run.seconds[name] == pytest.approx(np.median(run.runs[name]))


def test_a_course_ends_with_the_gaps_of_the_table(results: Results) -> None:
    (run,) = results.continual
    assert run.courses.keys() == run.seconds.keys() - {continual.ANOTHER_SEED}
    for name, course in run.courses.items():
        assert [len(course[part]) for part in continual.COURSE] == [run.requests] * 3
        assert course["seconds"] == sorted(course["seconds"])
        assert course["seconds"][-1] == pytest.approx(run.seconds[name])
        kind = {"ACU": "ridge"}.get(name, "ridge, 16 bits")
        reference = run.reference["SGD" if name in continual.BASELINES else kind]
        for part in ("retained", "test"):
            apart = abs(course[part][-1] - reference[part])
            assert apart == pytest.approx(run.gaps[name][part]), (name, part)


def test_rows_that_stay_in_the_head_leave_a_gap(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continual, "BASELINES", {})
    change = Ours.change
    monkeypatch.setattr(Ours, "change", lambda self, part, sign: change(self, part[:-9], sign))
    run = continual.measure(start, 2, quick=True)
    assert run.gaps["ridge-exact"]["weights"] > 1e-3
    assert run.gaps["ACU"]["weights"] < 1e-9


def test_a_baseline_that_refuses_is_reported_with_its_reason(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise RefusedError(f"{name} diverged: use retrain")

    monkeypatch.setattr(continual, "BASELINES", {"NegGrad": "neg-grad"})
    monkeypatch.setattr(continual, "make", refuse)
    run = continual.measure(start, 2, quick=True)
    assert run.refused == {"NegGrad": "after 0 rows: neg-grad diverged: use retrain"}
    assert "NegGrad" not in run.gaps
    assert "neg-grad diverged" in report.render(Results(True, continual=[run]), ())


def test_a_linear_head_is_judged_on_the_rows_of_its_task(task: HeadTask) -> None:
    linear = LinearTask(task)
    norms = (linear.test.inputs.double() ** 2).sum(1)
    assert float(norms.mean()) == pytest.approx(160, rel=1e-5)
    clients = linear.clients(task.owners(20))
    assert sum(len(rows) for rows in clients.values()) == len(task.rows)
    weights = continual.trained(linear, linear.rows, 5, seed=0)
    own = np.argmax(logits(weights, linear.test).numpy(), axis=1) == task.test_labels
    assert accuracy(weights, linear.test) == pytest.approx(float(own.mean()))
    assert own.mean() > 0.5


def test_messages_have_the_sizes_of_table_1(results: Results, task: HeadTask) -> None:
    (row,) = results.messages
    d, c = task.config.dimension, task.config.classes
    assert {found["Variant A"] for found in row.bytes.values()} == {8 * (d * d + d * c)}
    for count, found in row.bytes.items():
        assert found["Variant B"] == 8 * (min(int(count), d) * d + d * c)
        assert found["exact statistics"] == 8 * (d * (d + 1) // 2 + d * c + c)
    whole = [one for one in row.sketches if one.kind == "frequent-directions"][-1]
    assert whole.rank == d
    assert whole.deviation is not None
    assert whole.proven is not None
    assert whole.deviation <= whole.proven < 1e-6
    coarse = [one for one in row.sketches if one.rank == 8]
    assert all(one.deviation is None or one.deviation > 1e-3 for one in coarse)


def test_the_servers_operations_are_those_of_its_products() -> None:
    d, c = 4, 3
    # A factor of 4 x 4, and two triangular solves of 4 x 4 with 4 x 3.
    assert report.operations("Variant A", 1, d, c) == pytest.approx(64 / 3 + 96)
    # V 32, its product with U 8, a factor of one, a solve 4, P' 32; two products 48, P' times 96.
    whole = 32 + 8 + 1 / 3 + 4 + 32 + 48 + 96
    assert report.operations("Variant B", 1, d, c) == pytest.approx(whole)
    assert report.operations("Variant B", 9, d, c) == report.operations("Variant B", d, d, c)


def test_the_variants_are_compared_in_float32_as_in_the_papers_table(results: Results) -> None:
    [told] = [line for line in findings.render(results).splitlines() if "Float32" in line]
    assert "42 to 44 times" in told
    changed = parse_results(format_results(results))
    changed.table4[0].deviation["Variant A, fp32"] = [8.0, 1.0, None]
    changed.table4[0].deviation["Variant B, fp32"] = [1.0, 2.0, 1.0]
    [told] = [line for line in findings.render(changed).splitlines() if "Float32" in line]
    data = changed.table4[0].data
    assert f"Variant B is further off on {data} with some clients (2.0 times)" in told
    assert f"Variant A is further off on {data} with few clients (8.0 times)" in told


def test_results_survive_their_file(results: Results) -> None:
    assert parse_results(format_results(results)) == results
    broken = json.loads(format_results(results))
    broken["table3"][0]["unknown"] = 1
    with pytest.raises(TypeError):
        parse_results(json.dumps(broken))


def test_the_page_keeps_its_prose_and_shows_every_picture(
    results: Results, tmp_path: Path
) -> None:
    page = tmp_path / "ridge.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    # A short stream stands for one of 25 requests, which have a figure.
    results = replace(results, continual=[replace(results.continual[0], requests=25)])
    pictures = plots.draw_all(results, tmp_path)
    report.write_page(results, pictures, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "differ in 0 bits" in text
    assert pictures == ["ridge-figure2-25.png", "acu-figure3.png", "ridge-figure3.png"]
    for picture in pictures:
        assert f"]({picture})" in text
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    report.write_page(results, pictures, page)
    assert page.read_text() == text
    page.write_text("no markers")
    with pytest.raises(ValueError, match="markers"):
        report.write_page(results, pictures, page)


def test_the_committed_page_is_what_its_results_render() -> None:
    folder = Path(__file__).parents[2] / "docs" / "benchmarks"
    pictures = sorted(file.name for file in folder.glob("*.png"))
    wanted = report.render(parse_results((folder / "ridge.json").read_text()), pictures)
    _, _, rest = (folder / "ridge.md").read_text().partition(report.BEGIN)
    written, closed, _ = rest.partition(report.END)
    assert closed
    assert written.strip().splitlines() == wanted.strip().splitlines()


def test_the_papers_figures_stand_beside_their_rows(results: Results) -> None:
    text = report.render(results, ())
    rows = [line for line in text.splitlines() if "central ridge 0.9802" in line]
    assert rows == [line for line in text.splitlines() if line.startswith("| CIFAR-10 | not")]
    assert len(rows) == 1  # digits are no data of the paper's
    [drift] = [line for line in text.splitlines() if "100 deletions 2.72e-11" in line]
    assert "Variant A" in drift
    [seconds] = [line for line in text.splitlines() if line.endswith("| 12.68 s |")]
    assert seconds.startswith("| ACU, plain float64 |")


def test_findings_are_computed_from_the_results(results: Results) -> None:
    text = findings.render(results)
    for name in ("Drift", "Accuracy", "Single deletions", "Retained accuracy"):
        assert f"- **{name}" in text, name
    changed = parse_results(format_results(results))
    changed.continual[0].seconds["SCRUB"] = 5000 * changed.continual[0].seconds["ACU"]
    assert "to 5,000 times" in findings.render(changed)
    assert findings.render(Results(True)) == "## Findings\n\n"


def test_operations_of_a_backbone_are_those_that_are_counted() -> None:
    shape = not_measured.Transformer(2, 64, 10)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 4 * 64, batch_first=True, dropout=0.0)
    counted = CountedOperations()
    # In training mode, and by matrix products: fused operators of processors are not counted.
    with sdpa_kernel(SDPBackend.MATH), counted:
        layer(torch.zeros(1, 10, 64))
    assert shape.operations == 2 * counted.total
    # ViT-B/16 at 224 pixels: 17.6e9 multiply-adds, as its paper's table 6 and timm have it.
    vit = not_measured.Transformer(12, 768, 197, 3 * 16 * 16)
    assert vit.operations / 2 == pytest.approx(17.6e9, rel=0.01)


def test_every_figure_and_table_of_the_papers_is_told_of() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks" / "ridge.md").read_text()
    told = page.partition(report.BEGIN)[2]
    for number in (1, 2, 3, 4, 5):
        assert re.search(rf"[Tt]ables? ([0-9]( to | and |, ))*{number}\b", told), number
    for number in (2, 3):
        assert f"ridge-figure{number}" in told
    for text in ("ridge paper's figure 1", "ACU's figures 1 and 2", '"Privacy"', "FeMNIST"):
        assert text in told, text


def test_a_page_says_how_many_bits_are_off(results: Results) -> None:
    spoiled = parse_results(format_results(results))
    spoiled.table4[0].exact_bits[1] = 3
    assert "differ in 3 bits" in report.render(spoiled, ())


def test_files_are_told_by_their_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = rng.integers(0, 256, (60, 5, 5), dtype=np.uint8)
    np.savez(
        tmp_path / "grey.npz",
        train_images=images, train_labels=labels, test_images=images, test_labels=labels,
    )  # fmt: skip
    np.savez(
        tmp_path / "own.npz", features=rng.normal(size=(60, 4)), labels=labels, clients=labels
    )
    grey, own = load([tmp_path], quick=True, cache=tmp_path)
    assert grey.config.dimension == 256
    assert grey.natural is None
    assert own.config.dimension == 4
    assert own.natural is not None
    np.savez(
        tmp_path / "flat.npz",
        train_images=images[0], train_labels=labels, test_images=images[0], test_labels=labels,
    )  # fmt: skip
    outcome = CliRunner().invoke(
        main, ["--data", str(tmp_path / "flat.npz"), "--out", str(tmp_path)]
    )
    assert outcome.exit_code == 1
    assert "images must be" in outcome.output


def test_colour_images_without_torch_name_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "benchmarks.ridge_paper.network", raising=False)
    images, labels = np.zeros((9, 32, 32, 3), np.uint8), np.arange(9)
    file = tmp_path / "colour.npz"
    np.savez(
        file, train_images=images, train_labels=labels, test_images=images, test_labels=labels
    )
    outcome = CliRunner().invoke(main, ["--data", str(file), "--out", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "extra `torch`" in outcome.output


def test_a_network_is_trained_on_base_images_alone_and_cached(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "train_images": rng.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8),
        "train_labels": np.arange(60) % 2,
        "test_images": rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        "test_labels": np.arange(12) % 2,
    }
    np.savez(tmp_path / "colour.npz", **arrays)
    first = read(tmp_path / "colour.npz", quick=True, cache=tmp_path)
    assert len(first.rows) == 40  # 20 of 60 train the network and are not federated
    assert len(list(tmp_path.glob("features-*.npz"))) == 1
    again = read(tmp_path / "colour.npz", quick=True, cache=tmp_path)
    assert np.array_equal(first.features, again.features)
    # Other labels of federated rows change nothing that the network knows.
    arrays["train_labels"][20:] = 0
    np.savez(tmp_path / "colour.npz", **arrays)
    assert np.array_equal(
        first.features, read(tmp_path / "colour.npz", True, tmp_path).features
    )


def test_only_some_parts_are_measured_and_the_others_stay(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.ridge_paper.__main__.CACHE", tmp_path)
    (tmp_path / "ridge.json").write_text(format_results(results))
    outcome = CliRunner().invoke(main, ["--quick", "--only", "table4", "--out", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    kept = parse_results((tmp_path / "ridge.json").read_text())
    assert kept.stream == results.stream
    assert kept.table4[0].data == "digits"
    assert kept.table4 != results.table4
    unknown = CliRunner().invoke(main, ["--only", "table9", "--out", str(tmp_path)])
    assert unknown.exit_code == 2
    assert "table9" in unknown.output


def test_the_solution_is_what_the_head_rounds(task: HeadTask) -> None:
    state = retrained(task)
    solution = head64(state, exact=True)
    assert np.array_equal(solution.astype(np.float32), state.head)
    assert deviation(refit(task.quantised, task.targets, task.config.penalty), solution) < 1e-11
