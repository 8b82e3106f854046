"""Changes of valid inputs: of their bytes, and of what stands in them."""

import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

Mutator = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

MOST_BYTES = 1 << 20  # that a mutation may grow to
NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40, 0.5, 1e308, 1e-320, -0.0,
    float("inf"), float("nan"),
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, "", "\x00", "\ud800", "é", "a" * 300, "../../etc/passwd", "1e400",
    "0x1p+99999", "-0x0.0p+0", [], {}, [[]], {"": None},
)  # fmt: skip
WORDS = (
    b"\x00",
    b"\xff" * 8,
    b"\x80",
    b"\r\n",
    b"\n\n",
    b'"',
    b"\\",
    b"{",
    b"[",
    b"]",
    b"\xed\xa0\x80",
)
DEEP = 4000  # deeper than Python's JSON goes
DIGITS = re.compile(rb"[0-9]+")


def plain(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change bytes, in one to four ways."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        # At each step: four repetitions in a row would fill the memory of the process.
        data = rng.choice(_PLAIN)(rng, data, corpus)[:MOST_BYTES]
    return data


def _flip(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x00"
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    word = rng.choice(WORDS)
    return data[:at] + word + data[at + rng.choice((0, len(word))) :]


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice((data[:first], data[first:], data[:first] + data[last:]))


def _repeat(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:last] * rng.choice((1, 2, 40)) + data[last:]


def _splice(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = rng.choice(corpus)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _random(rng: random.Random, _data: bytes, _: Sequence[bytes]) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 8, 64, 500)))


def _number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Put another number in the place of digits, or of four or eight bytes."""
    digits = DIGITS.search(data, rng.randrange(len(data) + 1)) or DIGITS.search(data)
    if digits and rng.random() < 0.7:
        number = rng.choice((b"0", b"-1", b"+1", b"00", b"1_0", b"9" * 20, b"9" * 5000, b"1e9"))
        return data[: digits.start()] + number + data[digits.end() :]
    width = rng.choice((2, 4, 8))
    at = rng.randrange(len(data) + 1)
    value = rng.choice((0, 1, 2**15, 2**31, 2**32 - 1, 2**63, 2**64 - 1)) % 2 ** (8 * width)
    word: bytes = value.to_bytes(width, "little" if rng.random() < 0.5 else "big")
    return data[:at] + word + data[at + width :]


_PLAIN: tuple[Mutator, ...] = (_flip, _flip, _set, _cut, _repeat, _splice, _random, _number)


def as_json(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change what stands in JSON: values, members, names; or how it is spelt."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return plain(rng, data, corpus)
    for _ in range(rng.choice((1, 1, 2))):
        value = _changed(rng, value)
    return _spelt(rng, value)


def _spelt(rng: random.Random, value: Any) -> bytes:
    kept = rng.random() < 0.85
    written = json.dumps(
        value,
        sort_keys=kept,
        separators=(",", ":") if kept else None,
        ensure_ascii=not kept,
    ).encode("utf-8", "surrogatepass")
    roll = rng.random()
    if roll < 0.02:
        return b"[" * DEEP + b"]" * DEEP
    if roll < 0.04:  # deep inside a value
        return written.replace(b":", b":" + b"[" * DEEP + b"]" * DEEP + b",", 1)
    if roll < 0.06 and written.startswith(b"{"):
        return written[:-1] + b"," + written[1:]  # each name twice
    if roll < 0.07:
        return b'{"a":' * DEEP + b"1" + b"}" * DEEP
    return written


def _changed(rng: random.Random, value: Any) -> Any:
    """Return a value of which one place is another."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        roll = rng.random()
        if roll < 0.08:
            return {key: one for key, one in value.items() if key != name}
        if roll < 0.14:
            return {**value, rng.choice(("more", "", name + "x", "__metadata__")): value[name]}
        return {**value, name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        roll = rng.random()
        if roll < 0.1:
            return value[:at] + value[at + 1 :]
        if roll < 0.2:
            return value + [value[at]] * rng.choice((1, 3, 300))
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return _other(rng, value)


def _other(rng: random.Random, value: Any) -> Any:
    roll = rng.random()
    if isinstance(value, str) and value and roll < 0.5:
        inner = plain(rng, value.encode("utf-8", "surrogatepass"), (b"x",))
        if roll < 0.1 and value[:1] in "{[":  # JSON in a text
            made = as_json(rng, value.encode("utf-8", "surrogatepass"), (b"x",))
            return made.decode("utf-8", "replace")
        return inner.decode("utf-8", "surrogateescape" if roll < 0.02 else "replace")
    if isinstance(value, int | float) and not isinstance(value, bool) and roll < 0.5:
        return rng.choice((value + 1, -value, value * 2, str(value), float(value)))
    return rng.choice(NUMBERS if roll < 0.7 else ODD)


def as_zip(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change the content of a ZIP archive's members and write it with the right checksums."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(one, archive.read(one)) for one in archive.infolist()]
    except Exception:
        return plain(rng, data, corpus)
    if not members:
        return plain(rng, data, corpus)
    at = rng.randrange(len(members))
    info, content = members[at]
    name = info.filename
    roll = rng.random()
    if roll < 0.1:
        members.pop(at)
    elif roll < 0.2:
        members.append((info, content))
    elif roll < 0.3:
        name = plain(rng, name.encode(), (b"x.npy",)).decode("utf-8", "replace") or "x"
        members[at] = (zipfile.ZipInfo(name[:200]), content)
    elif roll < 0.65 and content.startswith(b"\x93NUMPY"):
        members[at] = (info, _array(rng, content))
    else:
        other = as_json if content[:1] in (b"{", b"[") else plain
        members[at] = (info, other(rng, content, [content]))
    stream = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members of one name
        for one, content in members:
            try:
                # Of a name alone it would write the time of day: a seed would not repeat.
                archive.writestr(zipfile.ZipInfo(one.filename), content, method)
            except (IndexError, ValueError):  # a name that no archive can have
                return plain(rng, data, corpus)
    written = stream.getvalue()
    return plain(rng, written, corpus) if rng.random() < 0.1 else written


KINDS = (
    "<f4",
    "<f8",
    "<f2",
    "|O",
    "<U3",
    "<U0",
    "|S1",
    "|b1",
    "<i8",
    "<u8",
    "|u1",
    "<c16",
    "<M8[s]",
    "|V4",
)


def _array(rng: random.Random, content: bytes) -> bytes:
    """Change an .npy: its kind, its shape, its header's text, or its data."""
    size = int.from_bytes(content[8:10], "little")
    header, body = content[10 : 10 + size], content[10 + size :]
    roll = rng.random()
    if roll < 0.3:
        at = header.find(b"'descr': '")
        end = header.find(b"'", at + 10)
        kind = rng.choice(KINDS).encode()
        header = header[: at + 10] + kind + header[end:]
    elif roll < 0.6:
        at, end = header.find(b"(") + 1, header.find(b")")
        shape = rng.choice(
            (
                b"",
                b"0,",
                b"1,",
                b"-1,",
                b"2, 0",
                b"99999999999999999999,",
                b"3, 3, 3",
                b"True,",
                b"1.5,",
            )
        )
        header = header[:at] + shape + header[end:]
    elif roll < 0.7:
        header = header.replace(b"False", b"True")
    elif roll < 0.8:
        header = plain(rng, header, (header,))[:60000]
    else:
        width = rng.choice((4, 8))
        at = rng.randrange(len(body) + 1)
        odd = rng.choice((b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff" * 8, b"\x00" * 8))
        body = body[:at] + odd[:width] + body[at + width :]
    return content[:8] + len(header).to_bytes(2, "little") + header + body


def headed(start: int, width: int, multiple: int = 1) -> Mutator:
    """Return a mutator of files that have JSON after its length, which stays right.

    start: bytes before the length, of `width` bytes. multiple: of which the length is one.
    """

    def changed(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
        first = start + width
        size = int.from_bytes(data[start:first], "little")
        if size > len(data):
            return plain(rng, data, corpus)
        header = as_json(rng, data[first : first + size], corpus)
        if rng.random() < 0.9:
            header += b" " * (-len(header) % multiple)
        body = data[first + size :]
        if rng.random() < 0.2:
            body = plain(rng, body, [body])
        return data[:start] + len(header).to_bytes(width, "little") + header + body

    return changed


as_tensors = headed(0, 8, 8)  # a safetensors file
as_model = headed(16, 4)  # a file of `lethe.estimators.container`


def as_lines(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change lines of text: leave out, repeat, swap, or change one."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    roll = rng.random()
    if roll < 0.2:
        lines.pop(at)
    elif roll < 0.4:
        lines.insert(at, rng.choice(lines))
    elif roll < 0.5:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = plain(rng, lines[at], [*corpus])
    return b"\n".join(lines)[:MOST_BYTES]


def as_json_lines(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Change what stands in one of the lines of JSON."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = as_json(rng, lines[at], [lines[at]])
    return b"\n".join(lines)[:MOST_BYTES]


def within(start: bytes, mutator: Mutator) -> Mutator:
    """Return a mutator of what follows the first `start`."""

    def changed(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
        head, found, rest = data.partition(start)
        return head + found + mutator(rng, rest, corpus) if found else plain(rng, data, corpus)

    return changed
