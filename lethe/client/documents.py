"""A service's JSON answer, checked against the form that this version's API gives it.

A type is checked at once, a missing field when it is read: a service of another version may
lack what the caller does not need.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import httpx2

from lethe.client.errors import AnswerError
from lethe.client.shapes import calls, fields_of, find_call

_PLAIN: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"),
    "int": ((int,), "a whole number"),
    "num": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
}


class Answer(dict[str, Any]):
    """An object in an answer. Reading a field that it lacks raises AnswerError."""

    def __init__(self, fields: Mapping[str, Any], call: str, place: str) -> None:
        """Begin. call: as `find_call` returns it. place: of this object, such as `parts[].`."""
        super().__init__(fields)
        self._call, self._place = call, place

    def __missing__(self, name: str) -> NoReturn:
        """Raise AnswerError."""
        raise _foreign(self._call, f"it lacks the field {self._place}{name}")


def name_call(response: httpx2.Response) -> str | None:
    """Return the call that an answer belongs to, None if it is none of this API."""
    try:
        request = response.request
    except RuntimeError:  # not the answer to a request
        return None
    path = request.url.raw_path.partition(b"?")[0].decode("ascii")
    return find_call(request.method, path)


def check_answer(document: dict[str, Any], call: str) -> Answer:
    """Return the answer to a call. Raises AnswerError: a field has another type."""
    found: Answer = _checked(document, calls()[call], call, "")
    return found


def _checked(value: Any, kind: str, call: str, place: str) -> Any:
    """Return a value with each object in it as an Answer. Raises AnswerError."""
    if kind == "any":
        return value
    if kind.endswith("?"):
        return None if value is None else _checked(value, kind[:-1], call, place)
    if kind in _PLAIN:
        types, words = _PLAIN[kind]
        if type(value) not in types:
            raise _foreign(call, f"its field {place} is not {words}")
        return value
    if kind.startswith("["):
        if type(value) is not list:
            raise _foreign(call, f"its field {place} is not an array")
        return [_checked(item, kind[1:-1], call, f"{place}[]") for item in value]
    if type(value) is not dict:
        raise _foreign(call, f"its field {place} is not an object")
    inside = f"{place}." if place else ""
    if kind.startswith("{"):
        every = kind[1:-1]
        found = {
            # The names are a stranger's text, which an error does not repeat.
            name: _checked(item, every, call, f"{inside}*")
            for name, item in value.items()
        }
    else:
        known = fields_of(kind)
        found = {
            name: _checked(item, known.get(name, "any"), call, f"{inside}{name}")
            for name, item in value.items()
        }
    return Answer(found, call, inside)


def _foreign(call: str, problem: str) -> AnswerError:
    return AnswerError(
        f"the service's answer to {call} is not one of this API: {problem}; is the URL right, "
        "and the service of this version?"
    )
