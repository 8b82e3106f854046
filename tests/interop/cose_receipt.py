"""A second reader of COSE receipts, from RFC 8949, 9052 and 9942: no CBOR library, no Lethe."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def decode(data: bytes) -> Any:
    """Decode the CBOR that receipts consist of; anything else is a ValueError."""
    value, rest = _item(data)
    if rest:
        raise ValueError("bytes are left")
    return value


def _item(data: bytes) -> tuple[Any, bytes]:
    major, short = data[0] >> 5, data[0] & 31
    rest = data[1:]
    if major == 7:
        if short != 22:
            raise ValueError("no simple value but null")
        return None, rest
    number = short
    if short >= 24:
        width = {24: 1, 25: 2, 26: 4, 27: 8}[short]
        number, rest = int.from_bytes(rest[:width], "big"), rest[width:]
        if number < (24 if width == 1 else 1 << (4 * width)):
            raise ValueError("a number is as short as it can be")
    if major == 0:
        return number, rest
    if major == 1:
        return -1 - number, rest
    if major in (2, 3):
        part = rest[:number]
        if len(part) < number:
            raise ValueError("a string is cut")
        return (part if major == 2 else part.decode()), rest[number:]
    if major == 4:
        return _items(rest, number)
    if major == 5:
        pairs, rest = _items(rest, 2 * number)
        return dict(zip(pairs[::2], pairs[1::2], strict=True)), rest
    tagged, rest = _item(rest)
    return (number, tagged), rest


def _items(rest: bytes, count: int) -> tuple[list[Any], bytes]:
    values = []
    for _ in range(count):
        value, rest = _item(rest)
        values.append(value)
    return values, rest


def bytestring(data: bytes) -> bytes:
    """Encode a byte string."""
    size = len(data)
    head = bytes([0x40 + size]) if size < 24 else bytes([0x58, size])
    return head + data


def check(receipt: bytes, leaf: bytes, log: Ed25519PublicKey) -> dict[int, Any] | None:
    """Return the protected header of a receipt of `leaf`, None if it does not verify."""
    tag, (protected, unprotected, payload, signature) = decode(receipt)
    header: dict[int, Any] = decode(protected)
    (blob,) = unprotected[396][-1]
    size, index, path = decode(blob)
    if (tag, header[1], header[395], payload) != (18, -8, 1, None):
        return None
    root = fold(leaf, index, size, path)
    signed = b"\x84\x6aSignature1" + bytestring(protected) + b"\x40" + bytestring(root)
    try:
        log.verify(signature, signed)
    except InvalidSignature:
        return None
    return header


def fold(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root by RFC 9162 section 2.1.3.2."""
    fn, sn, r = index, size - 1, sha256(b"\0" + leaf).digest()
    for p in path:
        if sn == 0:
            return b""
        if fn & 1 or fn == sn:
            r = sha256(b"\1" + p + r).digest()
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = sha256(b"\1" + r + p).digest()
        fn, sn = fn >> 1, sn >> 1
    return r if sn == 0 else b""
