"""Tables against hand-made results: intervals, targets, claims, both papers' shapes."""

from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import pytest

from benchmarks.unlearning import (
    claims,
    kcu_ablations,
    kcu_tables,
    puf_tables,
    report,
    targets,
)
from benchmarks.unlearning.both_papers import SIZES, size_of
from benchmarks.unlearning.contenders import AGAIN, FIRST, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import points, times
from benchmarks.unlearning.measures import closeness, expense
from benchmarks.unlearning.records import (
    Record,
    Records,
    append,
    current,
    format_results,
    parse_results,
    pin_of,
    read,
)
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.summary import Interval, Seeds, interval, of, one_minus_ratio


def test_a_cut_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file, record = tmp_path / "x.jsonl", Record("x", 0, "natural", "p", {"test": 0.5})
    append(file, record)
    with file.open("a") as stream:
        stream.write('{"setting": "x", "se')
    assert read([file]) == {record.key: record}
    append(file, replace(record, seed=1))  # begins a line of its own
    with pytest.raises(ValueError, match="line 1"):
        read([file])


def test_results_survive_their_file() -> None:
    record = Record("x", 3, "pga", "p", {"test": 0.123456789}, {"flops": 1e9}, {"a": "b"})
    refused = Record("x", 3, "sisa", "p", refused="no shards")
    text = format_results({part.key: part for part in (record, refused)})
    assert parse_results(text) == {
        record.key: replace(record, values={"test": 0.12346}),
        refused.key: refused,
    }


def test_stale_lines_and_seeds_that_were_tuned_on_are_in_no_table() -> None:
    pin = pin_of(SETTINGS["digits"], FIRST[1])
    made = [
        Record("digits", seed, RETRAIN, own)
        for seed, own in ((0, pin), (1, "stale"), (99, pin), (100, pin), (101, pin))
    ]
    found = current({part.key: part for part in made})
    assert [seed for _, seed, _ in found] == [0, 99]


def test_intervals_are_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half == pytest.approx(4.302653 / 3**0.5, abs=1e-6)
    assert isnan(interval([5.0]).half)
    assert (points(Interval(0.5, 0.025, 3)), points(Interval(nan, nan, 0))) == (
        "50.0 ± 2.5",
        "–",
    )


def hand_made(**own: tuple[float, float, float]) -> Records:
    """Two seeds; label: (test, forget, flops). The retrained model: 0.8, 0.5, 100."""
    lines = {ORIGINAL: (0.9, 0.8, 110.0), RETRAIN: (0.8, 0.5, 100.0), **own}
    return {
        ("x", seed, label): Record(
            "x",
            seed,
            label,
            "p",
            {"test": test, "forget": forget + 0.02 * seed, "song": forget, "yeom": forget},
            {"flops": flops, "bytes": flops, "storage": 4.0, "seconds": 1.0},
        )
        for seed in (0, 1)
        for label, (test, forget, flops) in lines.items()
    }


def test_targets_are_judged_seed_by_seed() -> None:
    records = hand_made(**{"puf-special": (0.79, 0.58, 5.0), "hf-kcu": (0.77, 0.7, 10.0)})
    found = targets.verdicts(of(records, "x"))
    assert [(one.label, one.seed, one.met) for one in found] == [
        ("puf-special", 0, (True, True, True)),
        ("puf-special", 1, (True, True, True)),
        ("hf-kcu", 0, (False, False, False)),
        ("hf-kcu", 1, (False, False, False)),
    ]
    assert found[0].share == pytest.approx(0.08 / 0.3)
    records["x", 1, "puf-special"] = replace(
        records["x", 1, "puf-special"], values={}, cost={}, refused="no step"
    )
    text = targets.render(of(records, "x"))
    assert "all three in 1 of 2 seeds (compute 1, forgetting 1, test 1)" in text
    assert "| PUF-Special, guarded | 1 | refused |" in text
    noisy = targets.render(of(hand_made(**{AGAIN: (0.82, 0.45, 100.0)}), "x"))
    assert "their seed are 5.0 ± 0.0 points apart there, and 2.0 ± 0.0 in test" in noisy


def client_table(seeds: Seeds) -> str:
    return puf_tables.client_table(seeds, "PUF III", puf_tables.TABLE3)


def test_the_papers_figures_stand_beside_its_own_rows_and_no_others() -> None:
    seeds = Seeds("cifar", {})
    rows = {line.split("|")[1].strip(): line for line in client_table(seeds).splitlines()[:-2]}
    assert rows["PUF-Special"].startswith("| PUF-Special | not run |")
    assert "forget acc. 82.0 (0.9±1.4)" in rows["PUF-Special"]
    assert rows["PUF-Special, guarded"].endswith("|  |  | – |")
    kcu = kcu_tables.table1(seeds, Seeds("cifar (shadow models)", {}))
    assert kcu.count("CF 0.38; MIA 0.499; time × 47.75×") == 2  # corrected and as printed
    assert "FedEraser | not run |" in kcu


def test_a_residual_is_given_as_a_range_over_seeds_and_cycles() -> None:
    records = hand_made(**{"hf-kcu": (0.84, 0.6, 5.0)})
    for seed, said in ((0, "0.5 | 1.25"), (1, "2.0")):
        key = ("x", seed, "hf-kcu")
        records[key] = replace(records[key], notes={"cg.residual": said})
    seeds = of(records, "x")
    assert seeds.residuals("hf-kcu") == [0.5, 1.25, 2.0]
    assert kcu_tables.residual(seeds, "hf-kcu") == "0.5 to 2"
    assert kcu_tables.residual(seeds, ORIGINAL) == "–"


def test_puf_rows_have_means_gaps_and_reductions() -> None:
    text = client_table(of(hand_made(natural=(0.85, 0.7, 4.0)), "x"))
    row = next(line for line in text.splitlines() if line.startswith("| Natural"))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells[0] == "85.0 ± 0.0"
    assert cells[1] == "71.0 (20.0 ± 0.0)"
    assert cells[4:] == ["4.00e+00 (25.0×)", "4.00e+00 (25.0×)", "4.00e+00 (1.0×)", "–"]
    assert "| PGA | not run |  |  |  |  |  |  | – |" in text.splitlines()


def test_a_refusal_is_a_line_of_every_table() -> None:
    records = hand_made()
    for seed in (0, 1):
        records["x", seed, "pga"] = Record("x", seed, "pga", "p", refused="no updates")
    seeds = of(records, "x")
    for text in (client_table(seeds), closeness(seeds), expense(seeds)):
        assert "| PGA | refused: no updates |" in text


def test_why_no_row_is_without_causal_weights_depends_on_who_leaves() -> None:
    lines = hand_made(**{"hf-kcu": (0.8, 0.6, 5.0), "hf-kcu causal=gradient": (0.8, 0.6, 5.0)})
    for setting, said in (("digits", "one client leaves"), ("two", "two clients leave")):
        records = {
            (setting, seed, label): replace(one, setting=setting)
            for (_, seed, label), one in lines.items()
        }
        text = kcu_ablations.table4(of(records, setting))
        [row] = [line for line in text.splitlines() if "w/o causal weighting" in line]
        assert f"| not run: {said}" in row
        assert ("each of the two leaving clients has one" in text) == (setting == "two")
        assert ("causal weights by equation 7 (line 16) | not run" in text) == (
            setting == "two"
        )


def test_table_4_has_the_papers_figures_beside_both_of_its_algorithms() -> None:
    paper = "HF-KCU, table 4"
    seeds = of(hand_made(**{"hf-kcu corrected": (0.8, 0.6, 5.0)}), "x")
    text = kcu_ablations.table4(seeds, None)  # the paper's alone, rows not run too
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
    assert paper in text
    for name in ("corrected, the paper's constants", "Algorithm 1 as printed"):
        assert "71.18" in rows[name].split("|")[-2], name
    assert "| not run |" in rows["Algorithm 1 as printed"]
    assert "70.99" in rows["as printed, without adaptive scaling"].split("|")[-2]
    assert not any("the benchmark's setting" in name for name in rows)
    assert kcu_ablations.table4(seeds) == kcu_ablations.table5(seeds) == ""
    assert "| 0.100, corrected, the paper's constants | not run |" in (
        kcu_ablations.table5(seeds, None)
    )


def test_the_table_of_sizes_counts_the_network_it_times_and_says_where() -> None:
    sizes = {title: size_of(name, shape) for name, title, shape in SIZES}
    assert sizes == {"SimpleCNN": 190_410, "ResNet-18": 11_173_962, "ViT-Lite": 102_090}
    records = hand_made(**{"hf-kcu": (0.8, 0.6, 5.0)})
    for seed in (0, 1):
        for label, device in ((RETRAIN, "Card 9"), ("hf-kcu", "cpu")):
            key = ("x", seed, label)
            records[key] = replace(records[key], machine={"device": device})
    text = kcu_tables.table8([("SimpleCNN", 190_410, of(records, "x"))])
    [row] = [line for line in text.splitlines() if "| HF-KCU, guarded |" in line]
    assert row.startswith("| SimpleCNN | 190,410 | `x` |")
    assert "| one thread of a CPU; Card 9 | – |" in row  # seconds of two machines: no ratio
    assert "not comparable with the paper's" in text


def test_causal_faithfulness_is_the_papers_formula() -> None:
    seeds = of(hand_made(**{"hf-kcu": (0.84, 0.6, 5.0)}), "x")
    assert kcu_tables.faithfulness(seeds, "hf-kcu").mean == pytest.approx(1 - 0.04 / 0.1)
    flat = {
        key: replace(one, values={**one.values, "test": 0.8})
        for key, one in hand_made().items()
    }
    found = kcu_tables.faithfulness(of(flat, "x"), ORIGINAL)
    assert found.mean != found.mean  # NaN


def test_the_interval_of_a_ratio_of_means_is_the_jackknifes() -> None:
    pairs = [(1.0, 4.0), (2.0, 4.0), (3.0, 8.0)]
    found = one_minus_ratio(pairs)
    assert found.mean == pytest.approx(1 - 6 / 16)
    # Without the first 5/12 is left, then 4/12, then 3/8; t of 2 degrees of freedom is 4.303.
    less = [1 - 5 / 12, 1 - 4 / 12, 1 - 3 / 8]
    spread = sum((one - sum(less) / 3) ** 2 for one in less)
    assert found.half == pytest.approx(4.302653 * (2 / 3 * spread) ** 0.5, rel=1e-6)
    # Without its second seed the ratio has no denominator.
    partly = one_minus_ratio([(0.5, 0.0), (0.1, 0.4)])
    assert partly.mean == pytest.approx(-0.5)
    assert isnan(partly.half)
    assert one_minus_ratio([(1.0, 2.0)]).half != one_minus_ratio([(1.0, 2.0)]).half  # NaN


def test_claims_are_judged_by_what_was_measured() -> None:
    records = hand_made(**{"puf-special": (0.8, 0.55, 5.0), "natural": (0.8, 0.52, 4.0)})
    text = claims.render({"digits": of(records, "x")})
    lines = [line for line in text.splitlines() if "PUF forgets" in line]
    assert lines == [
        "| PUF V-E | PUF forgets what recovery alone does not | digits | PUF-Special, guarded | "
        "PUF-Special, guarded 5.0; Natural 2.0 | **not reproduced** |"
    ]
    assert "NaiveGA" not in text  # not measured, not judged
    assert times(of(records, "x").ratio("puf-special", "flops")) == "20.0×"


def test_the_page_keeps_its_prose(tmp_path: Path) -> None:
    records = {
        ("quick", seed, label): replace(record, setting="quick")
        for (_, seed, label), record in hand_made(natural=(0.85, 0.7, 4.0)).items()
    }
    page = tmp_path / "unlearning.md"
    page.write_text(f"# Title\n\nprose\n\n{report.BEGIN}\nold\n{report.END}\nmore\n")
    report.write_page(records, tmp_path)
    text = page.read_text()
    assert text.startswith(f"# Title\n\nprose\n\n{report.BEGIN}\n\n## Settings measured")
    assert text.endswith(f"{report.END}\nmore\n")
    assert "\nold\n" not in text
    assert (tmp_path / "unlearning-quick.png").read_bytes()[:4] == b"\x89PNG"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="no markers"):
        report.write_page(records, tmp_path)
