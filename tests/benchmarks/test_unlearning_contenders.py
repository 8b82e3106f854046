"""Who is asked for, and that a variant is one in its name alone but for one setting."""

from pathlib import Path

from click.testing import CliRunner

from benchmarks.unlearning.__main__ import main, wanted
from benchmarks.unlearning.contenders import ablated, planned


def test_methods_are_asked_for_by_patterns_of_their_labels(tmp_path: Path) -> None:
    asked = ["--setting", "digits", "--cache", str(tmp_path), "--methods", "hf-kcu two steps*"]
    refused = CliRunner().invoke(main, asked)
    assert "hf-kcu two steps* is not in the plan of digits" in refused.output
    found = wanted(planned("components"), ["hf-kcu one step*", "natural"], "cifar")
    steps = [f"hf-kcu one step damping={value}" for value in ("0.1", "0.01", "0.001")]
    labels = [part.label for part in found]
    assert labels[:2] == ["natural", "hf-kcu one step"]
    assert labels[-3:] == steps
    assert len(labels) == 2 + 6 + 3


def test_variants_of_one_step_differ_from_it_in_one_setting() -> None:
    parts = {part.label: part for part in planned("everything")}
    base = parts["hf-kcu one step"].settings
    for label, part in parts.items():
        if label.startswith("hf-kcu one step "):
            changed = {name for name in part.settings if part.settings[name] != base.get(name)}
            same = label == "hf-kcu one step damping=0.01"  # the benchmark's own
            assert len(changed) == (0 if same else 1), label
            assert ablated(label)
    assert not ablated("hf-kcu one step")
    assert not ablated("hf-kcu as printed")
