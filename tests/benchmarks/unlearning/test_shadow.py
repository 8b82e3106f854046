"""The attack with shadow models: chance on a fresh model, near 1 on one that memorised."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from benchmarks.baselines.registry import make
from benchmarks.unlearning import kcu_tables, unrun
from benchmarks.unlearning.__main__ import main
from benchmarks.unlearning.campaign import SettingCampaign
from benchmarks.unlearning.contenders import FIRST, ORIGINAL, RETRAIN, contender, shadowed
from benchmarks.unlearning.records import Record, Records, current, pin_of, read
from benchmarks.unlearning.settings import SETTINGS, SHADOWED, SHADOWS, Setting
from benchmarks.unlearning.shadow import Shadow, attack, fitted, pool_of, shadow, success
from benchmarks.unlearning.sources import load
from benchmarks.unlearning.summary import of
from benchmarks.unlearning.task import make_task
from workers.demo.federated import Teller
from workers.errors import RefusedError
from workers.judge.attacks.outputs import Outputs
from workers.judge.attacks.shokri import PENALTY, features
from workers.judge.attacks.song import ENOUGH
from workers.methods.network.local_case import local_case
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train

torch.set_num_threads(1)
TINY = Setting(
    name="tiny",
    data="digits",
    about="a look",
    rows=60,
    clients=3,
    alpha=0.5,
    rounds=1,
    epochs=1.0,
    rate=0.05,
)
CLASSES = 3


def outputs(labels: list[int], sure: float, seed: int) -> Outputs:
    """Logits whose true class is ahead by about `sure`."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(len(labels), CLASSES))
    found[np.arange(len(labels)), labels] += sure
    return Outputs(found, np.array(labels, dtype=np.int64))


def learned(rows: int = 100) -> list[Shadow]:
    labels = [row % CLASSES for row in range(rows)]
    return [
        Shadow(outputs(labels, 9.0, seed), outputs(labels, 1.0, seed + 10)) for seed in (1, 2)
    ]


def test_a_model_that_memorised_is_seen_through_and_a_fresh_one_is_not() -> None:
    score = fitted(learned())
    outside = outputs([0, 1, 2] * 40, 1.0, 3)
    memorised = success(score, outputs([0] * 30 + [1] * 10, 9.0, 4), outside)
    assert memorised["shadow"] > 0.95
    assert memorised["shadow_auc"] > 0.98
    # Of a fresh model forget rows are as test rows of their classes, here one that it lost.
    lost = outputs([0] * 40, -2.0, 5)
    others = outputs([1, 2] * 40, 9.0, 6)
    everything = Outputs(
        np.concatenate([lost.logits, others.logits]),
        np.concatenate([lost.labels, others.labels]),
    )
    fresh = success(score, lost, everything)
    assert fresh["shadow"] == pytest.approx(0.5)
    assert fresh["shadow_auc"] == pytest.approx(0.5)


def test_success_is_that_of_scikit_learns_attackers_counted_pair_by_pair() -> None:
    shadows = learned()
    forget, outside = outputs([0] * 12 + [1] * 5, 3.0, 7), outputs([0, 1, 1, 2] * 9, 2.0, 8)
    scores: dict[str, list[float]] = {"forget": [0.0] * 17, "outside": [0.0] * 36}
    for label in (0, 1):
        sides = []
        for name in ("members", "others"):
            parts = [getattr(part, name) for part in shadows]
            sides.append(np.concatenate([features(p)[p.labels == label] for p in parts]))
        assert min(map(len, sides)) >= ENOUGH
        known = np.concatenate(sides)
        centre, spread = known.mean(axis=0), known.std(axis=0)
        spread[spread == 0] = 1
        model = LogisticRegression(
            C=1 / (PENALTY * len(known)), class_weight="balanced", tol=1e-10, max_iter=10_000
        )
        model.fit((known - centre) / spread, np.arange(len(known)) < len(sides[0]))
        for name, rows in (("forget", forget), ("outside", outside)):
            for row in np.flatnonzero(rows.labels == label):
                seen = (features(rows)[[row]] - centre) / spread
                scores[name][row] = model.decision_function(seen)[0]
    weight = {0: 12 / 9, 1: 5 / 18, 2: 0.0}  # forget rows over test rows of the class
    weights = [weight[int(label)] for label in outside.labels]
    ahead = sum(
        weights[j] * (mine > scores["outside"][j])
        for mine in scores["forget"]
        for j in range(36)
    ) / (17 * sum(weights))
    called = sum(value > 0 for value in scores["forget"]) / 17
    none = sum(w for w, value in zip(weights, scores["outside"], strict=True) if value <= 0)
    found = success(fitted(shadows), forget, outside)
    assert 0.55 < ahead < 0.95  # neither is trivial
    assert found["shadow_auc"] == pytest.approx(ahead)
    assert found["shadow"] == pytest.approx((called + none / sum(weights)) / 2)
    assert found["shadow_forget"] == pytest.approx(called)


def test_a_class_without_enough_rows_has_the_attacker_of_all() -> None:
    few = learned(rows=3 * (ENOUGH // 2) - 3)  # in both together fewer than ENOUGH of a class
    rows = outputs([0, 1, 2], 4.0, 9)
    assert np.isfinite(fitted(few)(rows)).all()
    with pytest.raises(RefusedError, match="no test row is of a class"):
        success(fitted(few), outputs([0], 1.0, 1), outputs([1], 1.0, 1))


def test_no_shadow_model_has_a_row_that_is_attacked_or_counted() -> None:
    task = make_task(TINY, load("digits", ()), 0)

    def named(rows: torch.Tensor) -> set[bytes]:
        return {row.numpy().tobytes() for row in rows}

    pool = named(pool_of(task).inputs)
    assert len(pool) == 2 * task.rows == 120
    assert not pool & {row for part in task.clients.values() for row in named(part.inputs)}
    assert not pool & named(task.outside.inputs)
    assert len(task.outside) == len(task.test) - 120  # digits' test rows are undrawn ones, too
    one, again, other = shadow(task, 0), shadow(task, 0), shadow(task, 1)
    assert len(one.members) == len(one.others) == 60
    assert np.array_equal(one.members.logits, again.members.logits)
    assert not np.array_equal(one.members.labels, other.members.labels)


def test_a_federation_that_learnt_random_labels_is_seen_through_until_it_is_retrained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.unlearning.shadow.SHADOWS", 2)
    images = load("digits", ())
    drawn = np.random.default_rng(0).permutation(images.labels)
    setting = replace(TINY, rows=40, clients=2, rounds=12, epochs=6.0, batch=8, alpha=None)
    task = make_task(setting, replace(images, labels=drawn), 0)
    values = attack(task, lambda _: None)
    engine = InProcess(task.clients, threads=1)
    trained = train(task.network, sizes(task.clients), task.config, engine).weights
    case = local_case(task.network, trained, task.request, task.config, task.clients, threads=1)
    retrained = make(RETRAIN).run(case).weights
    assert values((trained,))["shadow"] > 0.75  # its rows are nothing but memory
    assert abs(values((retrained,))["shadow"] - 0.5) < 0.12


def test_lines_of_the_attack_are_kept_beside_the_others_and_resumed(tmp_path: Path) -> None:
    task = make_task(TINY, load("digits", ()), 0)
    plan = (contender("natural"),)
    SettingCampaign(tmp_path, Teller(), {}, shadowed=True).seed(task, plan)
    file = tmp_path / "tiny.jsonl"
    text, found = file.read_text(), read([file])
    assert list(found) == [
        ("tiny (shadow models)", 0, label) for label in (ORIGINAL, RETRAIN, "natural")
    ]
    assert all(0 <= part.values["shadow"] <= 1 for part in found.values())
    SettingCampaign(tmp_path, Teller(), found, shadowed=True).seed(task, plan)
    assert file.read_text() == text
    SettingCampaign(tmp_path, Teller(), found).seed(task, ())
    assert ("tiny", 0, RETRAIN) in read([file])


def test_a_line_of_another_number_of_shadow_models_is_stale() -> None:
    setting, first = SETTINGS["digits"], FIRST[0]
    key = "digits" + SHADOWED
    pins = pin_of(setting, first, shadowed=True), pin_of(setting, first)
    made = [Record(key, seed, first.label, pin) for seed, pin in enumerate(pins)]
    assert [seed for _, seed, _ in current({part.key: part for part in made})] == [0]


def test_a_setting_without_rows_left_says_so_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["--shadow", "--setting", "alpha-1", "--seeds", "1", "--cache", str(tmp_path)]
    monkeypatch.setitem(SETTINGS, "alpha-1", replace(TINY, name="alpha-1", rows=600))
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 1
    assert "alpha-1 leaves 837 training rows over, and shadow models need 1200" in result.output
    assert not list(tmp_path.iterdir())


def test_tables_have_a_column_and_say_where_the_attack_was_not_run() -> None:
    def lines(name: str, **values: float) -> Records:
        made = [
            Record(name, seed, label, "p", {part: value for part, value in values.items()})
            for seed in (0, 1)
            for label in (ORIGINAL, RETRAIN)
        ]
        return {part.key: part for part in made}

    measured = of(lines("x", test=0.9, song=0.5, forget=0.5), "x")
    attacked = lines("x" + SHADOWED, shadow=0.5, shadow_auc=0.52)
    for seed, found in ((0, 0.8), (1, 0.9)):
        key = ("x" + SHADOWED, seed, ORIGINAL)
        attacked[key] = replace(attacked[key], values={"shadow": found, "shadow_auc": 0.9})
    text = kcu_tables.table1(measured, of(attacked, "x" + SHADOWED))
    head, _, original, retrain = (
        [cell.strip() for cell in line.split("|")] for line in text.splitlines()[:4]
    )
    at = head.index("MIA Shokri, shadow")
    assert original[at][:4] == "85.0"
    assert original[at + 1][:4] == "35.0"
    assert original[at + 2][:4] == "0.90"
    assert retrain[at : at + 3] == ["50.0 ± 0.0", "0.0 ± 0.0", "0.52 ± 0.00"]
    none = kcu_tables.table1(measured, of({}, "x" + SHADOWED)).splitlines()[2]
    assert none.split("|")[at].strip() == "not run"
    first = {
        ("cifar" + SHADOWED, 0, part.label): Record("cifar" + SHADOWED, 0, part.label, "p")
        for part in (*FIRST, *shadowed(SETTINGS["cifar"].plan))
    }
    [row] = [
        line for line in unrun.render(first).splitlines() if "--setting cifar --sh" in line
    ]
    assert row.startswith("| `cifar` | seeds 1 to 4: all | enough |")
    assert "--first-seed 1 --seeds 4" in row
    said = unrun.render({})
    assert "`python -m benchmarks.unlearning --setting digits --shadow --out" in said
    assert f"{SHADOWS} trainings" in said
