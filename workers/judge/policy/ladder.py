"""The ladder of a policy: which methods are tried, in turn, where a result is refuted.

Before all rungs comes the method that a request asks for, after them always the retraining,
which no policy can leave out and none needs to name. What the methods are called and what
can be set of them, the registration of a model checks: a judge knows no methods.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.judge.policy.form import PolicyError, mapping, spelled

Setting = bool | int | float | str | None
MOST_RUNGS = 8
LAST = "retrain"
NAME = "ladder"
WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# A fraction: whole numbers stand without quotes, so that nothing has two spellings.
FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,8})\.[0-9]{0,15}[1-9]")
MOST_WHOLE = 2**53 - 1  # RFC 8785 has no larger integers
ABOUT_SETTINGS = (
    'write words, true, false, null, whole numbers, or shortest decimals in quotes ("0.5")'
)


@dataclass(frozen=True, slots=True)
class Rung:
    """One method, and the settings by which it differs from the registration's.

    Settings that are objects, such as guard, differ by their members. Raises PolicyError.
    """

    method: str
    settings: Mapping[str, Setting | Mapping[str, Setting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not WORD.fullmatch(self.method):
            raise PolicyError(NAME, "name a method in each rung, such as hf-kcu")
        if self.method == LAST:
            raise PolicyError(NAME, f"leave {LAST} out: it is always the last rung")
        for name, value in mapping(NAME, self.settings).items():
            inner = value if isinstance(value, Mapping) else {name: value}
            for key, one in mapping(NAME, inner).items():
                if not WORD.fullmatch(name) or not WORD.fullmatch(key) or not _is_setting(one):
                    raise PolicyError(NAME, ABOUT_SETTINGS)


def check_ladder(ladder: object) -> None:
    """Raise PolicyError unless `ladder` is a tuple of few rungs, no two of them equal."""
    if not isinstance(ladder, tuple) or any(not isinstance(rung, Rung) for rung in ladder):
        raise PolicyError(NAME, 'write a list of rungs, such as {"method": "hf-kcu"}, or []')
    if len(ladder) > MOST_RUNGS:
        raise PolicyError(NAME, f"name at most {MOST_RUNGS} rungs")
    if any(rung in ladder[:place] for place, rung in enumerate(ladder)):
        raise PolicyError(NAME, "name each rung once: the same on the same rows says the same")


def write_ladder(ladder: Sequence[Rung]) -> list[dict[str, Any]]:
    """Return the rungs as what JSON can hold."""
    return [
        {
            "method": rung.method,
            "settings": {
                name: (
                    {key: _write(one) for key, one in value.items()}
                    if isinstance(value, Mapping)
                    else _write(value)
                )
                for name, value in rung.settings.items()
            },
        }
        for rung in ladder
    ]


def read_ladder(document: object) -> tuple[Rung, ...]:
    """Return the rungs of parsed JSON. Raises PolicyError."""
    if not isinstance(document, list):
        raise PolicyError(NAME, "write a list of rungs, [] for the retraining alone")
    found = []
    for item in document:
        given = dict(mapping(NAME, item))
        settings = mapping(NAME, given.pop("settings", {}))
        method = given.pop("method", None)
        if given or not isinstance(method, str):
            raise PolicyError(NAME, "a rung has a method, perhaps settings, and no more")
        read = {
            name: (
                {key: _read(one) for key, one in value.items()}
                if isinstance(value, Mapping)
                else _read(value)
            )
            for name, value in settings.items()
        }
        found.append(Rung(method, read))
    return tuple(found)


def _is_setting(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= MOST_WHOLE
    if isinstance(value, float):
        return FRACTION.fullmatch(spelled(value)) is not None
    return isinstance(value, str) and WORD.fullmatch(value) is not None


def _write(value: Setting) -> Setting:
    return spelled(value) if isinstance(value, float) else value


def _read(value: object) -> Any:
    """Return a setting; what is none is left for `Rung` to refuse."""
    if isinstance(value, float):
        raise PolicyError(NAME, ABOUT_SETTINGS)
    if isinstance(value, str) and FRACTION.fullmatch(value):
        if spelled(float(value)) != value:
            raise PolicyError(NAME, ABOUT_SETTINGS)
        return float(value)
    return value
