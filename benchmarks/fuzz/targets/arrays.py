"""Of numbers: uploads, tables, images, tensors, model files, messages of silos, policies."""

import hashlib
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors.numpy import save as save_tensors

from app.uploads.rows import parse_rows, parse_table, parse_vectors
from app.uploads.statistics import parse_message
from benchmarks.fuzz.mutate import Mutator, as_json, as_lines, as_tensors, as_zip, plain
from benchmarks.fuzz.target import Target, text
from lethe.errors import LetheError
from tests.app.uploads.test_npz import DIMENSION, MAX, RIDGE, images, rows, sums
from tests.app.uploads.test_npz import inputs as parse_images
from tests.small import pack
from tests.uploads import parsed
from tests.workers.data.tables.test_files import TABLE, WRITERS
from tests.workers.judge.empirical_claims import World, committed, simulated
from tests.workers.silos import questions
from tests.workers.silos.test_message import SENT
from tests.workers.silos.test_scores import ANSWER, DIGEST, MESSAGE, TASK
from tests.workers.test_artifacts import CONFIG, HEAD, state
from tests.workers.training.fedavg.test_messages import FILE as WEIGHTS
from tests.workers.training.fedavg.test_messages import UPDATE
from workers.artifacts import decode_head, decode_state, encode_head, encode_state
from workers.data.extractors.described import Described, format_description, parse_description
from workers.data.image_npz import load_image_npz
from workers.data.masks import load_masks
from workers.data.npz import load_npz
from workers.data.raw import load_raw
from workers.data.tables.files import read_table
from workers.errors import ArtifactError, DatasetError, RefusedError
from workers.judge.policy.document import format_policy
from workers.judge.policy.document import parse_policy as parse_judging
from workers.judge.policy.policy import PolicyError, default
from workers.judge.scores.file import decode_scores, encode_scores
from workers.methods.ridge.statistics.gram import decode_statistics, encode_statistics
from workers.secure_sum.local import parse_rows as parse_local
from workers.silos import score_task, scores
from workers.silos.message import decode_message, encode_message
from workers.training.fedavg.errors import MessageError
from workers.training.fedavg.messages import decode_task, decode_update, encode_update
from workers.training.networks.weights import decode_weights
from workers.training.programs import outputs
from workers.training.programs.program import parse_lock
from workers.training.shards.container import ShardManifest

# Arrow's own pool keeps the addresses of what it frees, 4 GiB at once: the engine's bound on
# addresses would take that for memory.
pa.set_memory_pool(pa.system_memory_pool())

ZIP: tuple[Mutator, ...] = (as_zip, as_zip, plain)
LINES: tuple[Mutator, ...] = (as_lines, plain)
TENSORS: tuple[Mutator, ...] = (as_tensors, as_tensors, plain)
JSON: tuple[Mutator, ...] = (as_json, as_json, plain)


def _upload(parse: Callable[..., Any], **how: Any) -> Callable[[bytes], object]:
    return lambda data: parsed(data, partial(parse, **how, max_bytes=MAX))


def _file(suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes, as a file of this suffix."""

    def of_bytes(data: bytes) -> object:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            path.write_bytes(data)
            return read(path)

    return of_bytes


def _written(suffix: str) -> Callable[[], Sequence[bytes]]:
    def seeds() -> Sequence[bytes]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"rows{suffix}"
            WRITERS[suffix](TABLE, path)
            return [path.read_bytes()]

    return seeds


def _table(path: Path) -> object:
    table = read_table(path, most_bytes=1 << 24)
    return [
        table.ids(name) if table.column(name).kind == "text" else table.numbers(name)
        for name in table.names
    ]


def _png() -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 3).save(stream, "PNG")
    return stream.getvalue()


def _masks(data: bytes) -> object:
    with TemporaryDirectory() as folder:
        for kind, content in (("images", _png()), ("masks", data)):
            path = Path(folder) / kind / "site" / "one.png"
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        return load_masks(Path(folder), 3)


def _image_npz() -> bytes:
    stream = io.BytesIO()
    many = np.zeros((6, 4, 4), np.uint8)
    np.savez(stream, train_images=many, train_labels=np.arange(6) % 2)
    return stream.getvalue()


def _small_table() -> bytes:
    made = {**rows(), "features": np.ones((4, 3)), "labels": np.array([0, 1, 0, 1])}
    return pack(made)


def _tensors() -> Sequence[bytes]:
    return [
        save_tensors({"a": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2])}, {"x": "y"})
    ]


def _onnx() -> Sequence[bytes]:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data: bytes = model.SerializeToString()
    return [data]


def _statistics() -> Sequence[bytes]:
    kept = state()
    return [encode_statistics(kept.statistics, CONFIG.exponents, CONFIG.bits, CONFIG.penalty)]


def _scores_file() -> Sequence[bytes]:
    claim = simulated(1, World(rows=(20, 24, 12)))
    return [encode_scores(claim, committed(claim))]


def _scores(data: bytes) -> object:
    return scores.decode_scores(data, DIGEST, TASK, questions.CLASSES, classifies=True)


def _manifest() -> Sequence[bytes]:
    digest = hashlib.sha256(b"x").hexdigest()
    document = {"aggregate": "mean", "shards": [{"file": digest, "rows": digest}]}
    return [ShardManifest.parse({**_shard_kind(), **document}).to_bytes()]


def _shard_kind() -> dict[str, Any]:
    from workers.training.shards.container import ShardEntry

    made = ShardManifest("vote", (ShardEntry("a" * 64, "b" * 64),)).document
    return {name: value for name, value in made.items() if name not in ("aggregate", "shards")}


DESCRIBED = Described("made-up", "00" * 32, {"a": "1"}, 5)
CLASSES = ("a", "b", "c")
NPZ_REFUSED = (LetheError, RefusedError, DatasetError)

TARGETS = (
    Target(
        "upload-rows",
        _upload(parse_rows, config={"dimension": DIMENSION, "bits": 16}, classes=CLASSES),
        lambda: [pack(rows())],
        NPZ_REFUSED,
        ZIP,
    ),
    Target(
        "upload-statistics",
        _upload(parse_message, **RIDGE),
        lambda: [pack(sums())],
        NPZ_REFUSED,
        ZIP,
    ),
    Target("upload-images", parse_images, lambda: [pack(images())], NPZ_REFUSED, ZIP),
    Target(
        "upload-table",
        _upload(parse_table, columns=3, classes=2),
        lambda: [_small_table()],
        NPZ_REFUSED,
        ZIP,
    ),
    Target(
        "upload-vectors",
        _upload(parse_vectors, columns=3),
        lambda: [pack({**rows(), "features": np.ones((4, 3), np.float32)})],
        NPZ_REFUSED,
        ZIP,
    ),
    Target(
        "federation-npz",
        _file(".npz", load_npz),
        lambda: [pack({**rows(40), "clients": np.array([f"c{n % 4}" for n in range(40)])})],
        NPZ_REFUSED,
        ZIP,
    ),
    Target(
        "raw-npz",
        _file(".npz", load_raw),
        lambda: [pack({"features": np.ones((4, 3), np.float32)})],
        NPZ_REFUSED,
        ZIP,
    ),
    Target(
        "image-npz", _file(".npz", load_image_npz), lambda: [_image_npz()], NPZ_REFUSED, ZIP
    ),
    Target("local-rows", parse_local, lambda: [pack(rows())], NPZ_REFUSED, ZIP),
    Target("mask-png", _masks, lambda: [_png()], NPZ_REFUSED),
    *(
        Target(
            f"table{suffix.replace('.', '-')}",
            _file(suffix, _table),
            _written(suffix),
            NPZ_REFUSED,
            {".csv": LINES, ".tsv": LINES, ".npz": ZIP}.get(suffix, (plain,)),
        )
        for suffix in (".parquet", ".feather", ".ipc", ".csv", ".tsv", ".npz")
    ),
    Target(
        "features-description",
        text(parse_description),
        lambda: [format_description(DESCRIBED, 5).encode()],
        (LetheError, RefusedError, UnicodeDecodeError),
        JSON,
    ),
    Target(
        "head-file", decode_head, lambda: [encode_head(HEAD, CONFIG)], (ArtifactError,), TENSORS
    ),
    Target(
        "state-file", decode_state, lambda: [encode_state(state())], (ArtifactError,), TENSORS
    ),
    Target("statistics-file", decode_statistics, _statistics, (ArtifactError,)),
    Target(
        "network-file",
        decode_weights,
        lambda: [WEIGHTS],
        (ArtifactError, RefusedError),
        TENSORS,
    ),
    Target("shard-manifest", ShardManifest.from_bytes, _manifest, (ArtifactError,), JSON),
    Target("round-task", decode_task, lambda: [SENT], (MessageError,), TENSORS),
    Target(
        "round-update", decode_update, lambda: [encode_update(UPDATE)], (MessageError,), TENSORS
    ),
    Target(
        "silo-message",
        decode_message,
        lambda: [encode_message("a job", "a row", 1, 7, (0, 3), SENT)],
        (MessageError,),
        LINES,
    ),
    Target("score-task", score_task.decode_task, lambda: [MESSAGE], (MessageError,), JSON),
    Target("score-answer", _scores, lambda: [ANSWER], (MessageError,), TENSORS),
    Target("scores-file", decode_scores, _scores_file, (ArtifactError,), TENSORS),
    Target(
        "judging-policy",
        parse_judging,
        lambda: [format_policy(default(500))],
        (PolicyError,),
        JSON,
    ),
    Target(
        "program-safetensors",
        lambda data: outputs.read(data, "safetensors"),
        _tensors,
        (RefusedError,),
        TENSORS,
    ),
    Target("program-onnx", lambda data: outputs.read(data, "onnx"), _onnx, (RefusedError,)),
    Target(
        "lock-file",
        text(lambda file: parse_lock(file, "x")),
        lambda: [b"numpy==2.4.0 \\\n --hash=sha256:00\nScikit_Learn==1.9.0 # x\n"],
        (RefusedError, UnicodeDecodeError),
        LINES,
    ),
)
