"""Model files: one spelling each, readable by the safetensors library itself."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods import oracle
from workers.artifacts import decode_head, decode_state, encode_head, encode_state
from workers.errors import ArtifactError
from workers.methods.base import RidgeConfig, RidgeState
from workers.methods.ridge_exact import METHOD

CONFIG = RidgeConfig(3, 2, (-4, 0, 9), 12, 10.1)
HEAD = np.array([[1, -2], [0.5, 0], [2.0**-90, 3e38]], dtype=np.float32)


def state() -> RidgeState:
    rows = oracle.random_rows(np.random.default_rng(0), 9, 3, 2, largest=2000)
    return METHOD.learn(CONFIG, None, rows).state


def test_the_bytes_are_these() -> None:
    config = RidgeConfig(1, 1, (-2,), 8, 0.5)
    data = encode_head(np.array([[1.0]], dtype=np.float32), config)
    header = (
        rb'{"__metadata__":{"lethe":"{\"bits\":8,\"classes\":1,\"dimension\":1,'
        rb"\"exponents\":[-2],\"kind\":\"ridge-head/1\","
        rb'\"penalty\":\"0x1.0000000000000p-1\"}"},'
        rb'"head":{"data_offsets":[0,4],"dtype":"F32","shape":[1,1]}}'
    )
    header += b" " * (-len(header) % 8)
    assert data == len(header).to_bytes(8, "little") + header + b"\x00\x00\x80\x3f"


def test_the_safetensors_library_reads_a_head(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    path.write_bytes(encode_head(HEAD, CONFIG))
    tensors = safetensors.numpy.load_file(path)
    assert list(tensors) == ["head"]
    assert tensors["head"].tobytes() == HEAD.tobytes()
    with safetensors.safe_open(path, framework="numpy") as opened:
        assert json.loads(opened.metadata()["lethe"])["exponents"] == [-4, 0, 9]


def test_the_safetensors_library_reads_a_state() -> None:
    kept = state()
    tensors = safetensors.numpy.load(encode_state(kept))
    assert sorted(tensors) == ["gram", "head", "moment", "witness"]
    assert np.array_equal(tensors["gram"], kept.statistics.gram)
    assert tensors["witness"].tobytes() == kept.witness.tobytes()


def test_head_round_trip_and_layout() -> None:
    data = encode_head(HEAD, CONFIG)
    head, config = decode_head(data)
    assert head.tobytes() == HEAD.tobytes()
    assert config == CONFIG
    assert encode_head(np.asfortranarray(HEAD), CONFIG) == data


def test_state_round_trip() -> None:
    kept = state()
    again = decode_state(encode_state(kept))
    assert np.array_equal(again.statistics.gram, kept.statistics.gram)
    assert np.array_equal(again.statistics.moment, kept.statistics.moment)
    assert again.statistics.rows == 9
    assert again.head.tobytes() == kept.head.tobytes()
    assert again.witness.tobytes() == kept.witness.tobytes()
    assert again.bound == kept.bound


@given(st.integers(0, 10**6), st.integers(0, 7))
@settings(deadline=None)
def test_a_flipped_bit_is_another_head_or_none(position: int, bit: int) -> None:
    data = bytearray(encode_head(HEAD, CONFIG))
    data[position % len(data)] ^= 1 << bit
    try:
        head, config = decode_head(bytes(data))
    except ArtifactError:
        return
    # What still parses is a file of its own, and never the same head.
    assert encode_head(head, config) == bytes(data)
    assert (head.tobytes(), config) != (HEAD.tobytes(), CONFIG)


def with_header(change: object) -> bytes:
    data = encode_head(HEAD, CONFIG)
    size = int.from_bytes(data[:8], "little")
    text = json.dumps(change, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def entry(**changes: object) -> dict[str, object]:
    data = encode_head(HEAD, CONFIG)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header["head"].update(changes)
    return dict(header)


def spoiled() -> dict[str, bytes]:
    good = encode_head(HEAD, CONFIG)
    return {
        "empty": b"",
        "cut": good[:-1],
        "longer": good + b"\0",
        "huge header": b"\xff" * 8 + good[8:],
        "no json": good[:8] + b"x" + good[9:],
        "a list": with_header([]),
        "a number": with_header(7),
        "no metadata": with_header({"head": {}}),
        "metadata no json": with_header({"__metadata__": {"lethe": "{"}}),
        "metadata no object": with_header({"__metadata__": {"lethe": "[]"}}),
        "no head": with_header({"__metadata__": entry()["__metadata__"]}),
        "other type": with_header(entry(dtype="F16")),
        "wrong type": with_header(entry(dtype="F64")),
        "other shape": with_header(entry(shape=[2, 3])),
        "negative offset": with_header(entry(data_offsets=[-1, 23])),
        "text offset": with_header(entry(data_offsets=["0", "24"])),
        "deep": b"\x10\x27" + bytes(6) + b"[" * 10000,
        "a state": encode_state(state()),
    }


@pytest.mark.parametrize("how", list(spoiled()))
def test_other_bytes_are_no_head(how: str) -> None:
    with pytest.raises(ArtifactError, match="canonical head file"):
        decode_head(spoiled()[how])


def state_with(part: str) -> bytes:
    """A state file with one bit of one tensor changed."""
    data = bytearray(encode_state(state()))
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    data[8 + size + header[part]["data_offsets"][0] + 8] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [b"", encode_head(HEAD, CONFIG), encode_state(state())[:-8], state_with("gram")],
    ids=["empty", "a head", "cut", "asymmetric gram"],
)
def test_other_bytes_are_no_state(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="canonical state file"):
        decode_state(data)


@pytest.mark.parametrize(
    "head",
    [np.zeros((2, 3), np.float32), np.zeros((3, 2)), np.zeros(6, np.float32)],
    ids=["turned", "float64", "flat"],
)
def test_a_head_that_does_not_fit_is_not_written(head: np.ndarray) -> None:
    with pytest.raises(ArtifactError, match="does not fit"):
        encode_head(head, CONFIG)
