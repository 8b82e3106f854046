"""The parts that the tables of requests are made of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.lethe.signing.signer import ED25519, P256, Draft, Key, Request, sign

KEYS: dict[str, Key] = {"requester-1": ED25519, "requester-2": P256}
Change = Callable[[Request], None]


@dataclass(frozen=True)
class Case:
    name: str
    want: str | None  # slug of the error; None: accepted
    desc: str
    request: Request


CASES: list[Case] = []


def accept(name: str, desc: str, request: Request) -> None:
    CASES.append(Case(name, None, desc, request))


def refuse(name: str, want: str, desc: str, request: Request) -> None:
    CASES.append(Case(name, want, desc, request))


def drafted(**changes: Any) -> Request:
    return sign(replace(Draft(), **changes))


def with_parameters(**changes: str | None) -> Request:
    draft = Draft()
    for name, value in changes.items():
        if value is None:
            del draft.parameters[name]
        else:
            draft.parameters[name] = value
    return sign(draft)


def with_digest(value: str) -> Request:
    return drafted(headers={**Draft().headers, "content-digest": value})


def after(*changes: Change, request: Request | None = None) -> Request:
    """A request changed after it was signed."""
    changed = request or sign(Draft())
    for change in changes:
        change(changed)
    return changed


def add(name: str, value: str) -> Change:
    return lambda request: request.headers.append((name, value))


def put(name: str, value: str) -> Change:
    return lambda request: request.replace(name, value)


def drop(name: str) -> Change:
    return lambda request: request.drop(name)


def set_part(part: str, value: object) -> Change:
    return lambda request: setattr(request, part, value)
