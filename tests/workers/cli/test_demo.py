"""`lethe demo`: which options belong to which methods."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from workers.cli.demo import demo
from workers.demo import network


def test_rounds_are_of_networks_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--method", "acu", "--rounds", "2", "--out", str(out)]
    refused = CliRunner().invoke(demo, arguments)
    assert refused.exit_code == 2
    assert "--rounds is for methods of networks only: leave it out with acu" in refused.stderr
    assert not out.exists()


@pytest.mark.parametrize(("given", "rounds"), [([], None), (["--rounds", "2"], 2)])
def test_the_help_says_how_many_rounds_there_are(
    given: list[str], rounds: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[int | None] = []
    monkeypatch.setattr(network, "run", lambda *arguments: asked.append(arguments[-1]))
    done = CliRunner().invoke(demo, ["--method", "hf-kcu", "--out", str(tmp_path), *given])
    assert done.exit_code == 0, done.output
    assert asked == [rounds]
    shown = CliRunner().invoke(demo, ["--help"]).stdout
    said = f"Default: {network.DIGITS.rounds}; {network.IMAGES.rounds} for images in --data."
    assert said in " ".join(shown.split())


@pytest.mark.parametrize("words", [["--method", "acu"], ["--rounds", "2"]])
def test_a_family_has_no_method_or_rounds(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused = CliRunner().invoke(demo, ["--family", "recipe", "--out", str(out), *words])
    assert refused.exit_code == 2
    assert "are not for --family" in refused.stderr
    assert not out.exists()
