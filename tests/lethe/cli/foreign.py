"""A service whose answers conform to the API but for one field, and what commands do then."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import httpx2
import pytest
from click.testing import CliRunner

from lethe.client.shapes import calls, fields_of, find_call
from lethe.client.sync import Client
from lethe.errors import LetheError

NAME = "6f1d2a3b-0000-4000-8000-000000000001"
AT = "2026-11-24T10:02:11Z"
OF_FIELD = {"penalty": "0x1p0", "leaf": "AAAA", "hashes": "AAAA"}
PLAIN = {"str": NAME, "int": 1, "num": 1.5, "bool": False, "any": NAME}


def example(kind: str, name: str = "") -> Any:
    """Return a value of a type of `lethe.client.shapes`."""
    if kind.endswith("?"):
        return example(kind[:-1], name)
    if kind == "str":
        return AT if name.endswith(("_at", "at", "until", "by")) else OF_FIELD.get(name, NAME)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind[0] == "[":
        return [example(kind[1:-1], name)]
    if kind[0] == "{":
        return {"one": example(kind[1:-1])}
    made = {field: example(one, field) for field, one in fields_of(kind).items()}
    return {**made, "next": None} if kind[-1] == "*" else made


@dataclass(frozen=True)
class Changed:
    """An answer in which the field at `place` is missing or of another type."""

    place: str
    document: dict[str, Any]


def changes(document: dict[str, Any]) -> Iterator[Changed]:
    """Yield a document with each field left out, null, and of another type."""
    for path in _paths(document):
        for other in (None, 7, "x", [7], {"x": 7}, True):
            changed = copy.deepcopy(document)
            holder: Any = changed
            for part in path[:-1]:
                holder = holder[part]
            was = holder[path[-1]]
            if isinstance(other, type(was)):
                del holder[path[-1]]
            else:
                holder[path[-1]] = other
            yield Changed(".".join(map(str, path)), changed)


def _paths(value: Any, head: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, one in items:
        yield (*head, name)
        yield from _paths(one, (*head, name))


@dataclass
class Foreign:
    """Answers each call with an example, or as told; keeps the names of calls."""

    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        call = find_call(request.method, request.url.path)
        assert call is not None, f"{request.url.path} is no call of the API"
        self.called.add(call)
        return httpx2.Response(200, json=self.changed.get(call) or self.answer(call))

    def answer(self, call: str) -> dict[str, Any]:
        """Return an answer that is one of the API."""
        found: dict[str, Any] = self.told.get(call) or example(calls()[call])
        return found


def serve(monkeypatch: pytest.MonkeyPatch) -> Foreign:
    """Return a service that every client reaches, whatever its address."""
    service = Foreign()
    begin = Client.__init__

    def inside(client: Client, base: str, *given: Any, **options: Any) -> None:
        transport = httpx2.MockTransport(service)
        begin(client, base, *given, **{**options, "transport": transport})

    monkeypatch.setattr("lethe.client.sync.Client.__init__", inside)
    return service


def check_refused(
    command: click.Command, service: Foreign, arguments: Sequence[str], least: int = 1
) -> None:
    """Require that a command never ends with an error of Python's, whatever an answer lacks.

    least: the number of changed answers that must be refused, by the name of their call.
    """
    environment = {"LETHE_URL": "http://ledger.test", "LETHE_TOKEN": "t" * 32}

    def run() -> BaseException | None:
        result = CliRunner().invoke(command, list(arguments), env=environment)
        return result.exception

    error = run()
    assert isinstance(error, SystemExit | None), repr(error)
    refused = 0
    for call in sorted(service.called):
        for change in changes(service.answer(call)):
            service.changed = {call: change.document}
            error = run()
            expected = isinstance(error, SystemExit | LetheError | None)
            assert expected, f"{call} {change.place}: {error!r}"
            if isinstance(error, LetheError) and "not one of this API" in error.detail:
                assert call in error.detail
                refused += 1
    service.changed = {}
    assert refused >= least
