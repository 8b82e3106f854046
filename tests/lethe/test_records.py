"""The oracle is `dataclasses` itself, with the same fields."""

import dataclasses
import pickle
from typing import Any

import pytest

from lethe import records


@records.dataclass(frozen=True, slots=True)
class Ours:
    name: str
    size: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    name: str
    size: int = 3


@records.dataclass(frozen=True, slots=True)
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 4), {}),
    (("a",), {"size": 4}),
    ((), {"size": 4, "name": "a"}),
    ((), {}),
    (("a", 4, 5), {}),
    (("a",), {"name": "b"}),
    (("a",), {"other": 1}),
    ((), {"size": 4}),
]


def built(cls: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    try:
        made = cls(*given, **named)
    except TypeError:
        return TypeError
    changed = dataclasses.replace(made, size=9)
    same = (made == cls(*given, **named), made == changed, hash(made) == hash(changed))
    text = repr(made).removeprefix(cls.__name__)
    return text, same, dataclasses.asdict(changed), pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(("given", "named"), CALLS)
def test_a_record_does_what_a_dataclass_does(
    given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert built(Ours, given, named) == built(Theirs, given, named)


@pytest.mark.parametrize("cls", [Ours, Theirs])
def test_it_cannot_be_changed(cls: Any) -> None:
    made = cls("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.name
    assert made != ("a", 3)
    assert {made, cls("a")} == {made}


def test_its_check_runs() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_another_form_is_refused() -> None:
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=False, slots=True)
