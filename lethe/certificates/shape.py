"""Frozen dataclasses as the schema of JSON documents, read and written by the same types.

A member's JSON name is the field's in camelCase, its spelling follows from its type:

    str                  a string, not empty       int      a string, decimal, no sign
    bytes                standard base64 of 32     bool     true or false
    Literal[...]         one of these strings      X | None null or X
    tuple[X, ...]        an array                  tuple[X, Y]  an array of exactly these
    Mapping[str, X]      an object with any names  a dataclass  an object with its members

A field is left out of the object if it has its default value. `Annotated[type, codec]`
overrides the spelling (`Sha256`, `Blob`, `Moment`, `Uuid`). Numbers are strings because JSON
readers disagree about large ones. Every value has one spelling: what `read` accepts, `write`
gives back unchanged.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from lethe import canonical, records
from lethe.canonical import format_base64, parse_base64, parse_decimal
from lethe.certificates.errors import ShapeError

T = TypeVar("T")
Json = Any

_COUNTS = 2**63  # the bundle's numbers are protobuf int64
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Codec:
    """Reads one kind of value from JSON and writes it; `read` validates it fully.

    schema: what JSON Schema (draft 2020-12) can say of its spelling.
    """

    read: Callable[[Json], Any]
    write: Callable[[Any], Json]
    schema: Mapping[str, Json]


@records.dataclass(frozen=True, slots=True)
class Name:
    """A JSON member name that does not follow from a Python field name."""

    json: str


def read(cls: type[T], value: Json) -> T:
    """Parse a JSON value as a `cls`.

    Raises ShapeError: a member is missing, unknown, of another type or spelled otherwise.
    """
    return cast(T, _codec(cast(Any, cls)).read(value))


def write(value: Any) -> dict[str, Json]:
    """Return the JSON object of a dataclass instance, the inverse of `read`."""
    return cast(dict[str, Json], _codec(cast(Any, type(value))).write(value))


def json_schema(cls: type, uri: str, title: str) -> dict[str, Json]:
    """Return the JSON schema (draft 2020-12) of the documents of a dataclass.

    Whatever `read` accepts is valid, but not the reverse: `read` also requires that a `Moment`
    is a real date and that base64 is canonical.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": uri}
    return {**head, "title": title, **_codec(cast(Any, cls)).schema}


def decode(cls: type[T], data: bytes) -> T:
    """Parse a canonical JSON document, and check by round trip that nothing was lost.

    Raises NotCanonicalError: the bytes are not RFC 8785 canonical JSON; ShapeError: the
    document is not a `cls`.
    """
    value = canonical.decode(data)
    result = read(cls, value)
    if write(result) != value:  # catches a codec that accepts two spellings
        raise ShapeError("is not spelled the way this format spells it")
    return result


def encode(value: Any) -> bytes:
    """Return the canonical document of a dataclass instance.

    Raises ShapeError if a value is outside the format's range: no reader would accept it.
    """
    document = write(value)
    read(type(value), document)
    return canonical.encode(document)


def _string(value: Json) -> str:
    if type(value) is not str or not value:
        raise ShapeError("must be a string that is not empty")
    return value


def _flag(value: Json) -> bool:
    if type(value) is not bool:
        raise ShapeError("must be true or false")
    return value


def _count(value: Json) -> int:
    try:
        return parse_decimal(_string(value), _COUNTS)
    except ValueError:
        raise ShapeError("must be a decimal number in a string") from None


def _blob(value: Json) -> bytes:
    try:
        return parse_base64(_string(value))
    except ValueError:
        raise ShapeError("must be standard base64 with padding") from None


def _hash(value: Json) -> bytes:
    data = _blob(value)
    if len(data) != 32:
        raise ShapeError("must be the base64 of 32 bytes")
    return data


def _sha256(value: Json) -> str:
    digest = value.get("sha256") if type(value) is dict and len(value) == 1 else None
    if type(digest) is not str or not _HEX.fullmatch(digest):
        raise ShapeError('must be {"sha256": 64 lower-case hexadecimal digits}')
    return digest


def _uuid(value: Json) -> str:
    if type(value) is not str or not _UUID.fullmatch(value):
        raise ShapeError("must be a UUID in lower case")
    return value


def _moment(value: Json) -> datetime:
    if type(value) is str and _MOMENT.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass  # such as 30 February; reported below
    raise ShapeError("must be a UTC time such as 2026-11-21T08:30:00Z")


def _write_moment(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise ShapeError("must be a time with its zone, or its instant is a guess")
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _same(value: Any) -> Any:
    return value


def _pattern(pattern: str) -> dict[str, Json]:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _object(members: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(members),
        "required": list(members),
        "additionalProperties": False,
    }


_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

Sha256 = Annotated[
    str,
    Codec(
        _sha256, lambda digest: {"sha256": digest}, _object({"sha256": _pattern(_HEX.pattern)})
    ),
]
"""Hexadecimal SHA-256 of a file, as `sha256sum` prints it; an in-toto DigestSet in JSON."""
Blob = Annotated[bytes, Codec(_blob, format_base64, _pattern(_BASE64) | {"minLength": 4})]
"""Bytes of any length above zero, in standard base64."""
Moment = Annotated[datetime, Codec(_moment, _write_moment, _pattern(_ISO))]
"""An aware time, kept to the second; RFC 3339 in UTC with `Z`."""
Uuid = Annotated[str, Codec(_uuid, _same, _pattern(_UUID.pattern))]

_PLAIN: dict[type, Codec] = {
    str: Codec(_string, _same, {"type": "string", "minLength": 1}),
    bool: Codec(_flag, _same, {"type": "boolean"}),
    int: Codec(_count, str, _pattern("(0|[1-9][0-9]{0,18})")),
    bytes: Codec(_hash, format_base64, _pattern("[A-Za-z0-9+/]{43}=")),
}


@cache
def _codec(hint: Any) -> Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        own = [extra for extra in arguments[1:] if isinstance(extra, Codec)]
        return own[0] if own else _codec(arguments[0])
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Literal:
        return Codec(_choice(arguments), _same, {"enum": list(arguments)})
    if origin in (Union, types.UnionType) and arguments[1:] == (types.NoneType,):
        return _optional(_codec(arguments[0]))
    if origin is tuple and arguments[1:] == (...,):
        return _array(_codec(arguments[0]))
    if origin is tuple:
        return _pair([_codec(argument) for argument in arguments])
    if origin is Mapping and arguments[0] is str:
        return _mapping(_codec(arguments[1]))
    if is_dataclass(hint):
        return _record(cast(type, hint))
    raise TypeError(f"no JSON spelling for {hint!r}")


def _choice(options: Sequence[str]) -> Callable[[Json], str]:
    def read_one(value: Json) -> str:
        if type(value) is not str or value not in options:
            raise ShapeError("must be " + " or ".join(map(repr, options)))
        return value

    return read_one


def _optional(inner: Codec) -> Codec:
    return Codec(
        lambda value: None if value is None else inner.read(value),
        lambda value: None if value is None else inner.write(value),
        {"anyOf": [inner.schema, {"type": "null"}]},
    )


def _items(codecs: Sequence[Codec], values: Sequence[Json]) -> tuple[Any, ...]:
    result = []
    for position, (codec, value) in enumerate(zip(codecs, values, strict=True)):
        try:
            result.append(codec.read(value))
        except ShapeError as error:
            raise error.inside(f"[{position}]") from None
    return tuple(result)


def _array(inner: Codec) -> Codec:
    def read_all(value: Json) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ShapeError("must be an array")
        return _items([inner] * len(value), value)

    return Codec(
        read_all,
        lambda values: [inner.write(value) for value in values],
        {"type": "array", "items": inner.schema},
    )


def _pair(codecs: Sequence[Codec]) -> Codec:
    def read_all(value: Json) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(codecs):
            raise ShapeError(f"must be an array of {len(codecs)}")
        return _items(codecs, value)

    def write_all(values: Sequence[Any]) -> list[Json]:
        return [codec.write(value) for codec, value in zip(codecs, values, strict=True)]

    schemas = [codec.schema for codec in codecs]
    length = {"minItems": len(codecs), "maxItems": len(codecs)}
    return Codec(read_all, write_all, {"type": "array", "prefixItems": schemas, **length})


def _mapping(inner: Codec) -> Codec:
    def read_all(value: Json) -> dict[str, Any]:
        if type(value) is not dict or "" in value:
            raise ShapeError("must be an object whose names are not empty")
        try:
            return {name: inner.read(item) for name, item in value.items()}
        except ShapeError as error:
            raise error.inside("*") from None  # names of the document are not repeated

    def write_all(values: Mapping[str, Any]) -> dict[str, Json]:
        return {name: inner.write(item) for name, item in values.items()}

    names = {"propertyNames": {"minLength": 1}}
    schema = {"type": "object", "additionalProperties": inner.schema, **names}
    return Codec(read_all, write_all, schema)


def _record(cls: type) -> Codec:
    hints = get_type_hints(cls, include_extras=True)
    members = {
        _json_name(field.name, hints[field.name]): (field.name, _codec(hints[field.name]))
        for field in fields(cls)
    }
    defaults = {
        _json_name(field.name, hints[field.name]): field.default
        for field in fields(cls)
        if field.default is not MISSING
    }

    def read_all(value: Json) -> Any:
        if type(value) is not dict or value.keys() | defaults.keys() != members.keys():
            raise ShapeError("must be an object with exactly " + ", ".join(members))
        found = []  # in the order of the fields
        for name, (_, codec) in members.items():
            if name in defaults and name not in value:
                found.append(defaults[name])
                continue
            try:
                found.append(codec.read(value[name]))
            except ShapeError as error:
                raise error.inside(name) from None
            if name in defaults and found[-1] == defaults[name]:
                raise ShapeError("must be left out").inside(name)
        return cls(*found)

    def write_all(record: Any) -> dict[str, Json]:
        return {
            name: codec.write(getattr(record, attribute))
            for name, (attribute, codec) in members.items()
            if name not in defaults or getattr(record, attribute) != defaults[name]
        }

    schema = _object({name: codec.schema for name, (_, codec) in members.items()})
    schema["required"] = [name for name in members if name not in defaults]
    return Codec(read_all, write_all, schema)


def _json_name(attribute: str, hint: Any) -> str:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Name):
            return extra.json
    head, *rest = attribute.rstrip("_").split("_")
    return head + "".join(word.capitalize() for word in rest)
