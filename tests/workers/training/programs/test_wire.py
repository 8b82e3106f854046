"""Files of a program that cost a parser far more than their bytes: counted, and refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.workers.training.programs.test_outputs_compared import linear, model, own_function
from workers.judge.refitted import largest_difference
from workers.training.programs import outputs, wire
from workers.training.programs.outputs import OutputError
from workers.training.programs.wire import WireError, count

MODEL = onnx.ModelProto.DESCRIPTOR


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def graph(data: bytes) -> bytes:
    return b"\x08\x0a" + field(7, data) + field(8, b"\x10\x12")


def attribute(data: bytes) -> bytes:
    return graph(field(1, field(5, b"\x0a\x01a" + data) + b"\x22\x04Relu"))


def counted(message: Any) -> tuple[int, int]:
    """Return messages and numbers of a parsed message, by its fields: slower, and apart."""
    messages = numbers = 0
    for described, value in message.ListFields():
        values = value if described.is_repeated else [value]
        if described.message_type is not None:
            inner = [counted(one) for one in values]
            messages += len(inner) + sum(one for one, _ in inner)
            numbers += sum(one for _, one in inner)
        elif described.type not in wire.NOT_NUMBERS:
            numbers += len(values)
    return messages, numbers


def many() -> bytes:
    """Return a model with numbers in each field of a tensor, and texts."""
    kinds = ("FLOAT", "DOUBLE", "INT8", "INT64", "UINT64", "FLOAT16", "BOOL", "COMPLEX64")
    tensors = []
    for name in kinds:
        kind = getattr(TensorProto, name)
        values = np.array([1, 0, 1] * 7).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensors.append(helper.make_tensor(name, kind, [21], values.tolist()))
    words: list[Any] = [b"a", b"bc"]
    texts = helper.make_tensor("texts", TensorProto.STRING, [2], words)
    made = onnx.load_model_from_string(model(linear(1, -2, 3e9, 4, labels=(-1, 1 << 40))))
    made.graph.initializer.extend([*tensors, texts])
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        model(linear(*map(float, range(300)))),
        own_function(numpy_helper.from_array(np.ones((2, 1)), "w")),
        many(),
        graph(b""),
        b"",
    ],
)
def test_counts_are_those_of_the_parsed_message(data: bytes) -> None:
    found = count(data, MODEL)
    assert (found.messages, found.numbers) == counted(onnx.load_model_from_string(data))


BOMBS: dict[str, tuple[bytes, str]] = {
    "attributes": (graph(field(1, b"\x2a\x03\xa0\x01\x01" * 99)), "nodes, attributes"),
    "nodes": (graph(b"\x0a\x00" * 99), "nodes, attributes"),
    "graphs, of which the last one counts": (b"\x3a\x00" * 99, "nodes, attributes"),
    "floats": (attribute(b"\x3d1234" * 99), "numbers"),
    "packed floats": (attribute(b"\x3a" + varint(400) + b"1234" * 100), "numbers"),
    "integers": (attribute(b"\x40\x07" * 99), "numbers"),
    "long integers": (attribute(b"\x40\x87\x80\x07" * 99), "numbers"),
    "packed integers": (attribute(b"\x42" + varint(99) + b"\x07" * 99), "numbers"),
    "doubles": (graph(field(5, b"\x5112345678" * 99)), "numbers"),
    "texts": (attribute(b"\x4a\x00" * 99), "texts"),
    "unknown texts": (b"\xfa\x3e\x00" * 99, "texts"),
    "unknown numbers": (b"\xf8\x3e\x00" * 99, "texts"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_more_than_a_limit_is_refused_before_it_is_parsed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, said = BOMBS[name]
    count(data, MODEL)
    for limit in ("MOST_MESSAGES", "MOST_NUMBERS", "MOST_OTHERS"):
        monkeypatch.setattr(wire, limit, 50)
    monkeypatch.setattr(onnx, "load_model_from_string", lambda data: pytest.fail("parsed"))
    with pytest.raises(OutputError, match=f"more than 50 {said}"):
        outputs.read(data, "onnx")


DEEP = b""
for _ in range(40):
    DEEP = field(1, field(5, field(6, DEEP)))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (graph(DEEP), "deep"),
        (b"\x3a\x05\x0a\x00", "longer than its message"),
        (b"\x3a\x02\x0a\x01\x00", "longer than its message"),
        (b"\x3a\x02\x0d\x01\x00\x00\x00", "longer than its message"),
        (b"\x3a", "number does not end"),
        (b"\x08" + b"\x80" * 11, "number does not end"),
        (b"\x3a\x01\x80\x00", "number does not end"),
        (b"\x0b\x0c", "group"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        count(data, MODEL)
    with pytest.raises(OutputError, match="not a valid ONNX model"):
        outputs.read(data, "onnx")


def spent(code: str) -> tuple[float, int]:
    """Return the seconds of the processor and the MiB that reading takes, after imports."""
    before = (
        "import resource, time\n"
        "import onnx, onnx.checker, onnx.numpy_helper\n"
        "import numpy as np\n"
        "from tests.workers.training.programs.test_wire import *\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
    )
    after = "\nprint(time.process_time() - begun, most() - base)"
    done = subprocess.run(
        [sys.executable, "-c", before + code + after],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, memory = done.stdout.split()
    return float(seconds), int(memory)


READ = (
    "base, begun = most(), time.process_time()\n"
    "try: outputs.read(data, 'onnx')\n"
    "except OutputError: pass"
)


def test_a_small_file_takes_neither_minutes_nor_gigabytes() -> None:
    """Eight MiB of attributes took 24 s and 1,190 MiB in the worker itself."""
    bomb = "data = graph(field(1, bytes.fromhex('2a03a00101') * ((8 << 20) // 5)))\n"
    seconds, memory = spent(bomb + READ)
    assert seconds < 10
    assert memory < 100


@pytest.mark.full
def test_texts_are_not_padded_to_the_longest() -> None:
    """NumPy gave each of 30,000 empty texts the size of the one long text: 4 GiB."""
    bomb = (
        "data = graph(field(5, bytes.fromhex('4201611008') + field(1, varint(30001))\n"
        "    + bytes.fromhex('3200') * 30000 + field(6, b'x' * 40000)))\n"
    )
    seconds, memory = spent(bomb + READ)
    assert seconds < 10
    assert memory < 100


def test_dimensions_and_imports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    dims = field(5, b"\x42\x01a\x10\x15" + field(1, b"\x09" * 65) + field(9, b"1"))
    with pytest.raises(OutputError, match="more than 64 dimensions"):
        outputs.read(graph(dims), "onnx")
    monkeypatch.setattr(outputs, "MOST_IMPORTS", 1)
    with pytest.raises(OutputError, match="imports too many"):
        outputs.read(own_function(numpy_helper.from_array(np.ones((2, 1)), "w")), "onnx")


def test_large_tensors_are_read_in_blocks_with_the_same_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = outputs.numbers(many(), "onnx")
    monkeypatch.setattr(outputs, "BLOCK", 4)
    parts = outputs.numbers(many(), "onnx")
    assert whole.keys() == parts.keys()
    for name, values in whole.items():
        assert values.dtype == parts[name].dtype, name
        assert np.array_equal(values, parts[name]), name
    odd = helper.make_tensor("w", TensorProto.FLOAT, [21], [1.0] * 21)
    odd.dims[0] = 1 << 40
    with pytest.raises(OutputError, match="is packed"):
        outputs.numbers(graph(field(5, odd.SerializeToString())), "onnx")


def slow(first: Any, second: Any) -> float:
    """Return the difference of whole tensors at once."""
    most = 0.0
    for name in first:
        one, other = first[name].astype(float), second[name].astype(float)
        if one.size and (scale := max(abs(one).max(), abs(other).max())):
            most = max(most, float(abs(one / scale - other / scale).max()))
    return most


@pytest.mark.parametrize("difference", [outputs.difference, largest_difference])
def test_blocks_do_not_change_a_difference(
    difference: Callable[[Any, Any], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "BLOCK", 5)
    monkeypatch.setattr("workers.judge.refitted.PART", 5)
    rng = np.random.default_rng(3)
    for _ in range(50):
        first, second = (
            {
                "a": rng.normal(size=(3, 7)).astype(np.float32).T,
                "b": rng.integers(0, 255, 11).astype(np.uint8),
                "c": np.array(rng.normal()),
                "d": np.zeros((0, 2)),
                "e": rng.integers(0, 2, 6).astype(bool),
            }
            for _ in range(2)
        )
        assert difference(first, second) == slow(first, second)
        assert difference(first, first) == 0


@pytest.mark.parametrize("whose", ["outputs.difference", "largest_difference"])
def test_a_comparison_takes_no_multiple_of_the_files(whose: str) -> None:
    """As doubles, two tensors of bytes took 32 times as much."""
    code = (
        "from workers.judge.refitted import largest_difference\n"
        "one, two = ({'w': np.full(64 << 20, value, np.uint8)} for value in (1, 2))\n"
        f"base, begun = most(), time.process_time()\nassert {whose}(one, two) == 0.5"
    )
    assert spent(code)[1] < 100


def test_a_header_of_brackets_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_BRACKETS", 50)
    header = json.dumps({"w": [[]] * 99}).encode()
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("parsed"))
    with pytest.raises(OutputError, match="not a safetensors file"):
        outputs.read(len(header).to_bytes(8, "little") + header, "safetensors")
