"""`lethe policy`: a default policy passes its own check, and impossible ones are named."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from workers.cli.policy import policy
from workers.judge.policy.document import digest, from_document


def run(*arguments: str) -> Result:
    return CliRunner().invoke(policy, list(arguments))


def checked(tmp_path: Path, document: dict[str, Any]) -> Result:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(document, indent=2))
    return run("check", str(file))


def written(*arguments: str) -> dict[str, Any]:
    result = run("default", *arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_default_by_method_and_size_passes_its_check(tmp_path: Path) -> None:
    document = written("--rows", "1000")
    attempt = {"method": "hf-kcu", "settings": {"curvature_rows": "0.1"}}
    assert document["ladder"] == [attempt]
    assert document["fingerprint"] == {"method": "puf-special"}
    assert written("--rows", "1000", "--method", "hf-kcu")["ladder"] == []
    assert written("--rows", "30")["ladder"] == []
    result = checked(tmp_path, document)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"policy sha256 {digest(from_document(document))}"
    assert result.stdout.splitlines()[2:] == [
        "ladder: the method asked for, hf-kcu(curvature_rows=0.1), retrain",
        "budget: 1 retrainings for all before the last",
    ]


@pytest.mark.parametrize(("rows", "warned"), [("10", True), ("413", True), ("414", False)])
def test_too_few_rows_for_any_margin_are_said_at_once(rows: str, warned: bool) -> None:
    # 414: three quarters of them are the 310 pairs of docs/policies.md.
    result = run("default", "--rows", rows)
    assert result.exit_code == 0
    says = f"{rows} rows can show no margin: this policy always escalates to the retraining"
    assert (says in result.stderr) == warned
    assert ("It takes 414" in result.stderr) == warned
    json.loads(result.stdout)


def test_a_model_is_no_policy_and_the_error_says_where_it_is(tmp_path: Path) -> None:
    answer = {"ref": "m", "config": {"policy": written("--rows", "1000")}}
    assert "config.policy" in str(checked(tmp_path, answer).exception)
    assert "without a policy" in str(checked(tmp_path, {"ref": "m", "config": {}}).exception)


def test_a_ladder_of_its_own_is_shown_in_order(tmp_path: Path) -> None:
    attempts = [
        {"method": "puf-special", "settings": {"guard": {"rise": 2}}},
        {"method": "hf-kcu", "settings": {"curvature_rows": "0.1"}},
    ]
    result = checked(
        tmp_path, {**written("--rows", "1000"), "ladder": attempts, "budget": "0.5"}
    )
    said = "puf-special(guard.rise=2), hf-kcu(curvature_rows=0.1), retrain"
    assert f"ladder: the method asked for, {said}" in result.stdout
    assert "budget: 0.5 retrainings" in result.stdout


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ladder": [{"method": "retrain"}]}, "leave retrain out"),
        ({"ladder": [{"method": "magic"}]}, "method: choose one of puf-special"),
        ({"ladder": [{"method": "sisa"}]}, "method: choose one of"),
        ({"ladder": [{"method": "hf-kcu", "settings": {"speed": 2}}]}, "setting is unknown"),
        ({"budget": "1000"}, "budget: choose from 0 to 100"),
        ({"version": 1}, "version: must be 2"),
    ],
)
def test_what_could_never_be_escalated_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    result = checked(tmp_path, {**written("--rows", "1000"), **changes})
    assert result.exit_code == 1
    assert reason in str(result.exception)


def test_a_default_for_a_method_that_nobody_offers_is_refused() -> None:
    result = run("default", "--rows", "1000", "--method", "magic")
    assert result.exit_code == 1
    assert "method: choose one of" in str(result.exception)


def test_reference_models_are_asked_for_and_their_cost_is_said(tmp_path: Path) -> None:
    document = written("--rows", "1000", "--references", "16")
    assert document["references"] == 16
    assert {"lira", "rmia"} <= set(document["attacks"])
    result = checked(tmp_path, {**document, "distances": {"output-kl": "0.1"}})
    assert result.exit_code == 0
    assert "trainings: each judgement trains 17 models" in result.stdout
    assert "trainings: " not in checked(tmp_path, written("--rows", "1000")).stdout
    del document["references"]
    result = checked(tmp_path, document)
    assert result.exit_code == 1
    assert "references: lira and rmia cannot do without" in str(result.exception)
    assert run("default", "--rows", "9", "--references", "3").exit_code == 2
