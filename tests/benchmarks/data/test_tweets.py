"""From Sentiment140's CSV to `lethe features extract`: the users become the clients."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks.data.__main__ import main
from workers.cli.features import features
from workers.data.extractors import registry

LINES = [
    '"0","1","d","q","anna","sad"',
    '"2","2","d","q","cleo","neither"',
    '"4","3","d","q","bert","good, very"',
    '"4","4","d","q","anna","fine"',
]


class Lengths:
    """Reads texts: their length, and how many letters e they have."""

    def __init__(self) -> None:
        self.id, self.digest, self.kind = "sentence-transformers", "0" * 64, "texts"
        self.parameters = {"dimension": "2"}

    def extract(self, inputs: np.ndarray) -> np.ndarray:
        assert inputs.dtype.kind == "U"
        return np.array([[len(t), t.count("e")] for t in inputs.tolist()], dtype=np.float32)


@pytest.fixture
def csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "open_extractor", lambda *_, **__: Lengths())
    path = tmp_path / "tweets.csv"
    path.write_bytes("\r\n".join(LINES).encode("latin-1"))
    return path


def convert(path: Path, *words: object) -> Result:
    given = ["sentiment140", path, path.parent / "raw.npz", *words]
    return CliRunner().invoke(main, [str(word) for word in given])


def extract(folder: Path) -> Result:
    given = ["extract", "--extractor", "sentence-transformers", "--data", folder / "raw.npz"]
    out = ["--out", folder / "features.npz"]
    return CliRunner().invoke(features, [str(word) for word in (*given, *out)])


def test_tweets_become_features_of_their_authors(csv: Path) -> None:
    assert convert(csv).output == f"3 rows in {csv.parent / 'raw.npz'}\n"
    result = extract(csv.parent)
    assert result.exit_code == 0, result.exception
    with np.load(csv.parent / "features.npz") as found:
        assert found["features"].tolist() == [[3, 0], [10, 1], [4, 1]]
        assert found["labels"].tolist() == [0, 1, 1]
        assert found["clients"].tolist() == ["anna", "bert", "anna"]
        assert found["records"].tolist() == [f"record-000000{row}" for row in range(3)]
        assert found["label_names"].tolist() == ["negative", "positive"]


def test_users_with_few_tweets_are_left_out_and_others_drawn(csv: Path) -> None:
    assert convert(csv, "--at-least", 2).exit_code == 0
    with np.load(csv.parent / "raw.npz") as found:
        assert found["texts"].tolist() == ["sad", "fine"]
        assert found["texts"].dtype == np.dtype("<U4")  # not as wide as what was left out
        assert set(found["clients"]) == {"anna"}
        assert found["records"].tolist() == ["record-0000000", "record-0000002"]
    drawn = set()
    for seed in range(8):
        assert convert(csv, "--draw", 1, "--seed", seed).exit_code == 0
        with np.load(csv.parent / "raw.npz") as found:
            drawn.add(tuple(found["clients"].tolist()))
    assert drawn == {("anna", "anna"), ("bert",)}


def test_what_cannot_be_is_refused_with_its_reason(csv: Path) -> None:
    assert "only 1 clients" in convert(csv, "--draw", 2, "--at-least", 2).output
    assert "leave --coarse out" in convert(csv, "--coarse").output
    csv.write_text('"3","1","d","q","secret","t"')
    refused = convert(csv)
    assert refused.exit_code == 1
    assert "line 1: polarity must be 0, 2 or 4" in refused.output
    assert not (csv.parent / "raw.npz").exists()
