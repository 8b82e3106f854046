"""Count what a protobuf file holds before a parser reads it.

A parser takes hundreds of bytes for a message of two, and eight for a number of one. The
encoding is <https://protobuf.dev/programming-guides/encoding/>; which fields are messages or
packed numbers, the descriptors say. Nothing of the file is copied.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from workers.errors import RefusedError

# What others of a file take when it is parsed, in round numbers: 700, 16 and 70 bytes each.
MOST_MESSAGES = 1 << 17  # of ONNX: nodes, attributes, tensors, types; a large network has 10^4
MOST_NUMBERS = 1 << 25  # not in raw bytes; a forest has ten for each node
MOST_OTHERS = 1 << 22  # texts, bytes, unknown fields; a forest has a text for each node
MOST_DEPTH = 100  # as in protobuf's own parsers
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
WIDTH_OF_TYPE = {1: 8, 2: 4, 6: 8, 7: 4, 15: 4, 16: 8}  # FieldDescriptor.TYPE_*
NOT_NUMBERS = (9, 10, 11, 12)  # string, group, message, bytes
BLOCK = 1 << 20


class WireError(RefusedError):
    """The bytes are no protobuf message, or hold more than a limit. The message says which."""


@dataclass(slots=True)
class Count:
    """What has been counted in a file."""

    messages: int = 0
    numbers: int = 0
    others: int = 0

    def check(self) -> None:
        """Raise WireError if a count is above its limit."""
        for found, most, what in (
            (self.messages, MOST_MESSAGES, "nodes, attributes and other parts"),
            (self.numbers, MOST_NUMBERS, "numbers outside raw tensor data"),
            (self.others, MOST_OTHERS, "texts and other fields"),
        ):
            if found > most:
                raise WireError(f"more than {most:,} {what}")


def count(data: bytes, descriptor: Any) -> Count:
    """Return the counts of a message of this descriptor. Raises WireError."""
    found, view = Count(), memoryview(data)
    open_messages: list[tuple[int, Any]] = []
    end, fields = len(data), descriptor.fields_by_number
    place = 0
    while True:
        if place == end:
            if not open_messages:
                found.check()
                return found
            end, fields = open_messages.pop()
            continue
        start = place
        tag = data[place]
        place += 1
        if tag > 127:
            tag, place = _varint(data, start, end)
        kind, field = tag & 7, fields.get(tag >> 3)
        if kind == LENGTH:
            size, place = _varint(data, place, end)
            if size > end - place:
                raise WireError("a field is longer than its message")
            if field is not None and field.message_type is not None:
                found.messages += 1
                open_messages.append((end, fields))
                end, fields = place + size, field.message_type.fields_by_number
                if len(open_messages) > MOST_DEPTH:
                    raise WireError(f"messages are nested more than {MOST_DEPTH} deep")
            else:
                found.others += 1
                if field is not None and field.type not in NOT_NUMBERS:
                    found.numbers += _packed(view[place : place + size], field.type)
                place += size
        elif kind in (VARINT, FIXED64, FIXED32):
            found.others += 1
            first, place = place, _end_of_number(data, place, end, kind)
            if field is not None:  # a repeated one, number by number
                run = _run(data[start:first], kind).match(data, start, end)
                place = max(place, run.end() if run else 0)
                found.numbers += _in_run(view[start:place], place - start, kind)
        else:
            raise WireError("it has a group, which ONNX does not use")
        if found.others > MOST_OTHERS or found.messages > MOST_MESSAGES:
            found.check()


def _varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    if place < end and (value := data[place]) < 128:
        return value, place + 1
    value = 0
    for shift in range(0, 70, 7):
        if place >= end:
            break
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise WireError("a number does not end")


def _end_of_number(data: bytes, place: int, end: int, kind: int) -> int:
    if kind == VARINT:
        return _varint(data, place, end)[1]
    place += 8 if kind == FIXED64 else 4
    if place > end:
        raise WireError("a number is longer than its message")
    return place


@cache
def _run(tag: bytes, kind: int) -> "re.Pattern[bytes]":
    """Return the pattern of a run of numbers, each after this tag."""
    number = {
        VARINT: rb"[\x80-\xff]{0,9}[\x00-\x7f]",
        FIXED64: rb".{8}",
        FIXED32: rb".{4}",
    }[kind]
    return re.compile(rb"(?:%s%s)++" % (re.escape(tag), number), re.DOTALL)


def _in_run(run: memoryview, size: int, kind: int) -> int:
    """Return how many numbers a run of one field has, of `size` bytes."""
    if kind == VARINT:  # each, and each tag of at most 5 bytes, has one byte below 128
        return _ends(run) // 2
    return size // (5 if kind == FIXED32 else 9)


def _packed(numbers: memoryview, kind: int) -> int:
    width = WIDTH_OF_TYPE.get(kind)
    return _ends(numbers) if width is None else len(numbers) // width


def _ends(data: memoryview) -> int:
    """Return the number of bytes below 128, which end a varint each."""
    values = np.frombuffer(data, np.int8)
    blocks = (values[first : first + BLOCK] for first in range(0, len(values), BLOCK))
    return sum(int(np.count_nonzero(block >= 0)) for block in blocks)
