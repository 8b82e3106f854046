"""The page of approximate erasures that pass: its numbers, and where each comes from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from benchmarks.earned import images as earned_images
from benchmarks.earned import page
from benchmarks.earned.__main__ import FILE, METHODS, PAGE, format_lines, parse_lines, together
from benchmarks.earned.page import Area, line_of
from benchmarks.soundness.report import BEGIN, END
from lethe.certificates.statement import CheckPart
from workers.demo.network import IMAGES
from workers.judge.attacks.roc import auc_interval, delong
from workers.judge.inference.intervals import clopper_pearson

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"
LEVEL = 0.05 * 6 / np.pi**2  # of a model's first request


def test_the_page_is_what_its_lines_render() -> None:
    lines = parse_lines((DOCS / FILE).read_text())
    between = (DOCS / PAGE).read_text().partition(BEGIN)[2].partition(END)[0]
    assert between == f"\n\n{page.render(lines)}\n"
    assert parse_lines(format_lines(lines)) == lines
    assert (DOCS / page.FIGURE).exists()


def test_a_certificate_was_earned_and_nobody_passed_without_a_step() -> None:
    lines = parse_lines((DOCS / FILE).read_text())
    passed = {(line.run, line.method) for line in lines if line.result == "PASS"}
    assert {
        ("service", "puf-special"),
        ("service", "hf-kcu"),
        ("verifier", "puf-special"),
        ("verifier", "hf-kcu"),
    } <= passed
    idle = [line.result for line in lines if line.method in ("no step", "natural")]
    assert idle
    assert set(idle) == {"FAIL"}
    assert min(line.pairs for line in lines) >= 310
    assert min(line.before.low for line in lines if line.result == "PASS") > 0.6


def test_the_power_is_that_of_the_binomial_summed_directly() -> None:
    pairs, level = 310, LEVEL / 12
    right = np.arange(2 * pairs + 1)
    ends = [clopper_pearson(int(one), 2 * pairs, level) for one in right]
    inside = np.array([low > 0.4 and high < 0.6 for low, high in ends])
    accuracy = float(binom.pmf(right, 2 * pairs, 0.5)[inside].sum())
    error = np.sqrt((2 * pairs + 1) / (12 * pairs**2))
    reach = 0.1 / error - norm.ppf(1 - level / 2)
    assert page.power(310, 0.1, 1) == pytest.approx(min(accuracy, 2 * norm.cdf(reach) - 1))
    assert (
        page.power(10_000, 0.02, 2) < page.power(10_000, 0.02, 1) < page.power(10_000, 0.1, 1)
    )


def test_what_is_needed_before_is_shown_about_as_often_as_the_page_says() -> None:
    rng, pairs = np.random.default_rng(0), 500
    apart = np.sqrt(2) * norm.ppf(page.needed_before(pairs, 1))
    shown = 0
    for _ in range(400):
        scores = rng.normal(apart, size=pairs), rng.normal(size=pairs)
        shown += auc_interval(*delong(*scores), pairs, LEVEL / 4)[0] > 0.6
    assert 0.7 < shown / 400 < 0.9
    assert page.needed_before(310, 1) > page.needed_before(2000, 1) > 0.6


def check(name: str, value: str, interval: tuple[str, str] | None) -> CheckPart:
    return CheckPart(1, name, "quantity", value, interval, None, True)


def test_a_line_names_the_weakest_control_and_the_attack_that_still_finds_most() -> None:
    checks = [
        check(
            "samples", "461 pairs of both; power at level 0.1: accuracy 0.99, AUC 0.97", None
        ),
        check("control:yeom", "0.7798 (461)", ("0.73", "0.82")),
        check("control:shokri", "0.7754 (461)", ("0.72", "0.81")),
        check("yeom:auc", "0.5346 (461)", ("0.47", "0.59")),
        check("shokri:auc", "0.4600 (461)", ("0.41", "0.51")),
        check("retained-accuracy", "lost -0.2540: 0.6 before", None),
        check("test-accuracy", "lost 0.0305: 0.4 before", None),
    ]
    about: dict[str, Any] = {
        "setting": "s",
        "run": "service",
        "seed": 0,
        "seconds": 1.0,
        "training": None,
    }
    line = line_of(checks, "PASS", method=METHODS[2], **about)
    assert (line.pairs, line.power, line.lost) == (461, 0.97, (-25.4, 3.05))
    assert (line.before, line.after) == (Area(0.7754, 0.72, 0.81), Area(0.46, 0.41, 0.51))
    later = line_of(checks, "FAIL", method=METHODS[2], **about)
    assert together([line], [later]) == [later]
    with pytest.raises(ValueError, match="no attack was run"):
        line_of(checks[:1], "INCONCLUSIVE", method=METHODS[2], **about)


def test_images_become_the_federation_of_the_demonstration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    images, labels = rng.integers(256, size=(90, 32, 32, 3)), np.arange(90) % 3
    np.savez(
        tmp_path / "images.npz",
        x_train=images[:60].astype(np.uint8),
        y_train=labels[:60],
        x_test=images[60:].astype(np.uint8),
        y_test=labels[60:],
    )
    made: list[Any] = []
    monkeypatch.setattr(earned_images, "make_world", lambda *given: made.append(given))
    earned_images.images_world(tmp_path / "images.npz")
    [(manifest, arrays, target)] = made
    assert manifest["training"]["rounds"] == IMAGES.rounds
    assert {"natural", "puf-special", "hf-kcu"} <= set(manifest["settings"])
    assert arrays["inputs"].dtype == np.float32
    assert arrays["inputs"].shape == (60, 3, 32, 32)
    assert np.abs(arrays["inputs"]).max() <= 1.0
    assert arrays["labels"].dtype == np.int64
    own = {str(name): int((arrays["clients"] == name).sum()) for name in arrays["clients"]}
    assert own[target] == max(own.values())
