"""Everything that the catalogue names is implemented, and nothing else is offered."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from lethe.catalogue import (
    ATTACKS,
    CHECKS,
    METHODS,
    VERIFIERS,
    Distance,
    check_of,
)
from workers.families.base import FAMILIES, configured
from workers.families.recipe.family import RecipeFamily
from workers.judge import registry as verifiers
from workers.judge.attacks import registry as attacks
from workers.judge.checks import CheckRoom
from workers.judge.recheck.refitted import REPEATED
from workers.judge.samples.distances import DISTANCES
from workers.methods.network import registry as network
from workers.methods.ridge import base as ridge

NAMED = sorted((one.name, one.model) for one in METHODS.values())


def implemented() -> list[tuple[str, str]]:
    """Return each method with the family that binds it; masked ridge heads have those of ridge."""
    several = {"ridge": ridge.method_names(), "network": tuple(network.METHODS)}
    families = sorted(FAMILIES.keys() - {"ridge-masked"})
    own = [(family, several.get(family) or (_method_of(family),)) for family in families]
    return sorted((name, family) for family, names in own for name in names)


def _method_of(family: str) -> str:
    found = configured({"family": family})
    assert isinstance(found, RecipeFamily)
    return found.method


def test_each_method_is_bound_by_its_family_and_no_other_name_is() -> None:
    assert implemented() == NAMED


def test_a_name_that_the_catalogue_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(network.METHODS, "planted", network.METHODS["natural"])
    assert set(implemented()) - set(NAMED) == {("planted", "network")}


def test_a_name_that_no_family_binds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(network.METHODS, "natural")
    assert set(NAMED) - set(implemented()) == {("natural", "network")}


@pytest.mark.parametrize("family", ["forest", "recipe", "script", "shards", "sums", "vectors"])
def test_another_name_of_a_tabular_family_is_found(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that another family binds too."""
    monkeypatch.setattr(configured({"family": family}), "method", "natural")
    assert implemented() != NAMED


def test_attacks_and_distances_are_those_that_the_judge_has() -> None:
    assert set(attacks.ATTACKS) == set(ATTACKS)
    assert set(DISTANCES) == set(get_args(Distance))


WORKERS = Path(__file__).parents[2] / "workers"


def literals() -> set[str]:
    """Return the strings in the files of judge and families, except docstrings."""
    found = set()
    for room in ("judge", "families"):
        for path in (WORKERS / room).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text()))
            found |= {str(n.value) for n in nodes if isinstance(n, ast.Constant)}
    return found


def test_each_check_is_bound_to_its_line() -> None:
    bound = literals() | {f"distance:{name}" for name in DISTANCES}
    assert CHECKS.keys() - bound == set(), "no file of workers/judge has such a check"


def test_each_verifier_has_its_version() -> None:
    assert set(VERIFIERS) == set(verifiers.known())
    assert {name: verifiers.get(name).version for name in VERIFIERS} == dict(VERIFIERS)


def test_a_check_outside_the_catalogue_cannot_be_registered() -> None:
    room: CheckRoom[object] = CheckRoom("workers.judge.ridge")
    with pytest.raises(AssertionError, match=r"add it to lethe/catalogue\.py"):
        room.check("head-guessed")
    room.check("purge")(object())
    with pytest.raises(AssertionError, match="two functions"):
        room.check("purge")(object())


@pytest.mark.parametrize("attack", ATTACKS)
def test_checks_of_an_attack_are_found_by_their_full_names(attack: str) -> None:
    for pattern in (
        "*:auc",
        "*:accuracy",
        "*:tail",
        "*:advantage",
        "*:best-advantage",
        "*:roc",
    ):
        spec = CHECKS[pattern].of(attack)
        assert check_of(spec.name) == spec
    assert check_of(f"control:{attack}") == CHECKS["control:*"].of(attack)


def test_a_name_that_no_check_has_is_unknown() -> None:
    assert check_of("distance:test-accuracy") is not None
    for name in ("another", "another:auc", "control:another", "distance:another", "yeom:x"):
        assert check_of(name) is None


def test_what_is_rechecked_without_scores_is_in_the_catalogue() -> None:
    counted = "retained-set"  # only its counts are compared
    assert {name for name, spec in CHECKS.items() if spec.rechecked} == REPEATED.keys() - {
        counted
    }
