"""A sentence-transformers directory of a tiny model made here; the library is the oracle."""

import json
import pickle
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workers.data.extractors import registry
from workers.data.extractors.base import ExtractorError
from workers.errors import MissingLibraryError

needed = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="lethe[text] is not installed"
)
TEXTS = np.array(["ein kurzer text", "another somewhat longer text , to pad", "", "text"])
# transformers and its dependencies warn about each other's releases when first imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    raw = tmp_path_factory.mktemp("bert")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "text", *letters]
    (raw / "vocab.txt").write_text("\n".join([*words, *(f"##{c}" for c in letters)]))
    BertTokenizer(str(raw / "vocab.txt")).save_pretrained(raw)
    config = BertConfig(
        vocab_size=len(words) + len(letters),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(raw)
    transformer = models.Transformer(str(raw), max_seq_length=32)
    pooling = models.Pooling(transformer.get_word_embedding_dimension())
    saved = tmp_path_factory.mktemp("saved")
    SentenceTransformer(modules=[transformer, pooling, models.Normalize()], device="cpu").save(
        str(saved)
    )
    return saved


@pytest.fixture
def copied(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def load(path: Path, **named: Any) -> Any:
    return registry.open_extractor("sentence-transformers", {}, path=path, **named)


@needed
def test_features_are_the_librarys(directory: Path) -> None:
    from sentence_transformers import SentenceTransformer

    extractor = load(directory)
    assert extractor.kind == "texts"
    got = extractor.extract(TEXTS)
    want = SentenceTransformer(str(directory), device="cpu").encode(TEXTS.tolist())
    assert got.dtype == np.float32
    assert np.allclose(got, want, atol=1e-5)
    assert np.allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
    assert np.array_equal(got, extractor.extract(TEXTS))
    assert np.array_equal(got[2:], extractor.extract(TEXTS[2:]))


@needed
def test_the_registry_builds_it_again(directory: Path, copied: Path) -> None:
    extractor = load(directory)
    assert extractor.parameters == {"dimension": "16"}
    again = registry.get(
        extractor.id, extractor.parameters, path=copied, digest=extractor.digest
    )
    assert np.array_equal(again.extract(TEXTS), extractor.extract(TEXTS))


@needed
@pytest.mark.parametrize(
    "name", ["model.safetensors", "1_Pooling/config.json", "tokenizer.json"]
)
def test_every_file_that_matters_is_pinned(directory: Path, copied: Path, name: str) -> None:
    pinned = load(directory).digest
    target = copied / name
    if name.endswith(".safetensors"):
        data = target.read_bytes()
        target.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        target.write_text(target.read_text() + "\n")
    with pytest.raises(ExtractorError, match="differs from the pinned one"):
        load(copied, digest=pinned)


@needed
def test_files_that_are_not_read_are_not_pinned(directory: Path, copied: Path) -> None:
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps("never opened"))
    (copied / "onnx").mkdir()
    (copied / "onnx" / "config.json").write_text("{}")
    assert load(copied).digest == load(directory).digest


@needed
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda d: (d / "model.safetensors").rename(d / "pytorch_model.bin"),
            "pickles are not read",
        ),
        (lambda d: (d / "modules.json").unlink(), "modules.json"),
        (lambda d: (d / "modules.json").write_text("{"), "must be a list"),
        (
            lambda d: (d / "modules.json").write_text(json.dumps([{"type": "os.system"}])),
            "classes",
        ),
        (lambda d: (d / "model.safetensors").write_bytes(b"x"), "cannot load"),
        (lambda d: (d / "config.json").write_text("{}"), "cannot load"),
        (shutil.rmtree, "modules.json"),
    ],
)
def test_odd_directories_are_refused(copied: Path, damage: Any, message: str) -> None:
    damage(copied)
    with pytest.raises(ExtractorError, match=message):
        load(copied)


@needed
@pytest.mark.parametrize(
    "bad", [np.zeros((2, 3)), np.zeros(2), np.array([["a"]]), np.array([b"a"])]
)
def test_only_strings_are_texts(directory: Path, bad: np.ndarray) -> None:
    with pytest.raises(ExtractorError, match="one string for each row"):
        load(directory).extract(bad)


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("workers.libraries.import_module", missing)
    with pytest.raises(MissingLibraryError, match=r"in a clone of Lethe: .*\[text\]"):
        load(tmp_path)
