"""Model files: one encoding each, readable by the safetensors library itself."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge import oracle
from workers.arrays import encode_tensors, parse_tensors
from workers.artifacts import decode_head, decode_state, encode_head, encode_state
from workers.errors import ArtifactError
from workers.methods.ridge import ridge_woodbury
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.ridge_exact import METHOD

CONFIG = RidgeConfig(3, 2, (-4, 0, 9), 12, 10.1)
HEAD64 = np.array([[1, -2], [1 / 3, 0], [2.0**-300, 1e300]])
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


def test_a_float64_head_round_trips_and_is_another_kind() -> None:
    data = encode_head(HEAD64, CONFIG)
    head, config = decode_head(data)
    assert head.dtype == np.float64
    assert head.tobytes() == HEAD64.tobytes()
    assert config == CONFIG
    assert b"ridge-head-float64/1" in data
    assert b"ridge-head-float64" not in encode_head(HEAD, CONFIG)
    assert encode_head(np.asfortranarray(HEAD64), CONFIG) == data
    assert safetensors.numpy.load(data)["head"].dtype == np.float64


def tracked() -> RidgeState:
    rows = oracle.random_rows(np.random.default_rng(0), 9, 3, 2, largest=2000)
    method, config = ridge_woodbury.METHOD, replace(CONFIG, penalty=1e5)
    known = method.learn(config, None, rows).state
    return method.forget(config, known, oracle.only(rows, [0])).state


def test_a_tracked_state_round_trips() -> None:
    kept = tracked()
    again = decode_state(encode_state(kept))
    assert kept.inverse is not None
    assert again.inverse is not None
    assert again.inverse.tobytes() == kept.inverse.tobytes()
    assert not again.inverse.flags.writeable
    assert (again.updates, again.bound) == (kept.updates, kept.bound) == (1, kept.bound)
    assert again.head.tobytes() == kept.head.tobytes()
    assert sorted(safetensors.numpy.load(encode_state(kept))) == [
        "gram",
        "head",
        "inverse",
        "moment",
        "witness",
    ]


def tracked_with(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """A tracked state's file, written after `change` to its tensors and metadata."""
    arrays, metadata = parse_tensors(encode_state(tracked()))
    change(arrays, metadata)
    return encode_tensors(arrays, metadata)


def entry_of_inverse(value: float, *places: tuple[int, int]) -> bytes:
    def change(arrays: dict[str, Any], _: dict[str, Any]) -> None:
        for place in places:
            arrays["inverse"][place] = value

    return tracked_with(change)


BROKEN_TRACKED = {
    "asymmetric": entry_of_inverse(0.5, (0, 1)),
    "NaN": entry_of_inverse(np.nan, (1, 1)),
    "infinite": entry_of_inverse(np.inf, (0, 1), (1, 0)),
    "negative count": tracked_with(lambda _, metadata: metadata.update(updates=-1)),
    "count is true": tracked_with(lambda _, metadata: metadata.update(updates=True)),
    "no count": tracked_with(lambda _, metadata: metadata.pop("updates")),
    "no inverse": tracked_with(lambda arrays, _: arrays.pop("inverse")),
    "plain kind": tracked_with(lambda _, metadata: metadata.update(kind="ridge-state/1")),
    "small inverse": tracked_with(lambda arrays, _: arrays.update(inverse=np.eye(2))),
    "float32 inverse": tracked_with(
        lambda arrays, _: arrays.update(inverse=np.eye(3, dtype=np.float32))
    ),
    "float gram": tracked_with(lambda arrays, _: arrays.update(gram=arrays["gram"] * 1.0)),
}


def test_a_tracked_state_rewritten_unchanged_is_read() -> None:
    assert decode_state(tracked_with(lambda arrays, metadata: None)).updates == 1


@pytest.mark.parametrize("how", list(BROKEN_TRACKED))
def test_a_broken_tracked_state_is_no_state(how: str) -> None:
    with pytest.raises(ArtifactError, match="canonical state file"):
        decode_state(BROKEN_TRACKED[how])


def test_parts_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(ArtifactError, match="tracked inverse"):
        encode_state(replace(tracked(), inverse=np.eye(2)))
    with pytest.raises(ArtifactError, match="another type"):
        encode_state(replace(tracked(), head=np.zeros((3, 2), np.int64)))  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="NaN"):
        encode_head(HEAD * np.float32(np.nan), CONFIG)


@given(st.integers(0, 10**6), st.integers(0, 7))
@settings(deadline=None)
def test_a_flipped_bit_is_another_head_or_none(position: int, bit: int) -> None:
    data = bytearray(encode_head(HEAD, CONFIG))
    data[position % len(data)] ^= 1 << bit
    try:
        head, config = decode_head(bytes(data))
    except ArtifactError:
        return
    # Bytes that still parse are a file of their own, never the same head.
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


def relabelled(data: bytes) -> bytes:
    """The same file with the kind of a float32 head, its header as long as before."""
    return data.replace(b"ridge-head-float64/1", b"ridge-head/1").replace(
        b"]}}", b"]}}" + b" " * 8
    )


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
        "float64 under the other kind": relabelled(encode_head(HEAD64, CONFIG)),
        "NaN": good[:-4] + np.float32(np.nan).tobytes(),
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
    [
        np.zeros((2, 3), np.float32),
        np.zeros((2, 3)),
        np.zeros(6, np.float32),
        np.zeros((3, 2), np.float16),
        np.zeros((3, 2), np.int64),
    ],
    ids=["turned", "float64, turned", "flat", "float16", "integers"],
)
def test_a_head_that_does_not_fit_is_not_written(head: np.ndarray) -> None:
    with pytest.raises(ArtifactError, match="does not fit"):
        encode_head(head, CONFIG)
